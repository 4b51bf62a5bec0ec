"""Lock files of uv, pip, poetry and pdm say the same: the hashes of what is installed, and what other platforms need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_training.environments.locks import Lock, LockedPackage, find_lock, parse_lock
from airflow_training.environments.matching import match
from airflow_training.environments.model import PythonEnvironment
from airflow_training.environments.recording import with_lock
from airflow_training.errors import InputError
from tests.environments.records import RECORD, catalogue_of, dist, with_dist, without

ONE, TWO, THREE = ("sha256:" + digit * 64 for digit in "123")
COMMIT = "0123456789abcdef0123456789abcdef01234567"

UV = f"""\
version = 1
requires-python = ">=3.10"

[[package]]
name = "demo"
version = "0.1"
source = {{ virtual = "." }}
dependencies = [{{ name = "tqdm" }}]

[[package]]
name = "tqdm"
version = "4.67.0"
source = {{ registry = "https://ann:secret@index.example.com/simple" }}
dependencies = [{{ name = "colorama", marker = "sys_platform == 'win32'" }}]
sdist = {{ url = "https://ann:secret@index.example.com/tqdm-4.67.0.tar.gz", hash = "{ONE}", size = 1 }}
wheels = [{{ url = "https://index.example.com/tqdm-4.67.0-py3-none-any.whl", hash = "{TWO}", size = 1 }}]

[[package]]
name = "colorama"
version = "0.4.6"
source = {{ registry = "https://index.example.com/simple" }}
resolution-markers = ["sys_platform == 'win32'"]
wheels = [{{ url = "https://index.example.com/colorama-0.4.6-py3-none-any.whl", hash = "{THREE}", size = 1 }}]

[[package]]
name = "Metrics.Core"
version = "0.3"
source = {{ git = "https://ann:secret@git.example.com/metrics.git?rev=main#{COMMIT}" }}
"""

PYLOCK = f"""\
lock-version = "1.0"
created-by = "pip"

[[packages]]
name = "tqdm"
version = "4.67.0"
sdist = {{ url = "https://index.example.com/tqdm-4.67.0.tar.gz", hashes = {{ sha256 = "{"1" * 64}" }} }}
wheels = [{{ name = "tqdm-4.67.0-py3-none-any.whl", url = "https://index.example.com/t.whl", hashes = {{ sha256 = "{"2" * 64}" }} }}]

[[packages]]
name = "colorama"
version = "0.4.6"
marker = "sys_platform == 'win32'"
wheels = [{{ name = "colorama-0.4.6-py3-none-any.whl", url = "https://index.example.com/c.whl", hashes = {{ sha256 = "{"3" * 64}" }} }}]

[[packages]]
name = "metrics-core"
version = "0.3"
vcs = {{ type = "git", url = "https://ann:secret@git.example.com/metrics.git", requested-revision = "main", commit-id = "{COMMIT}" }}
"""

POETRY = f"""\
[[package]]
name = "tqdm"
version = "4.67.0"
description = "Fast"
optional = false
python-versions = ">=3.7"
groups = ["main"]
files = [
    {{file = "tqdm-4.67.0.tar.gz", hash = "{ONE}"}},
    {{file = "tqdm-4.67.0-py3-none-any.whl", hash = "{TWO}"}},
]

[package.dependencies]
colorama = {{version = "*", markers = "platform_system == \\"Windows\\""}}

[[package]]
name = "colorama"
version = "0.4.6"
optional = false
groups = ["main", "dev"]
markers = {{main = "sys_platform == 'win32'", dev = "sys_platform == 'win32'"}}
files = [{{file = "colorama-0.4.6-py3-none-any.whl", hash = "{THREE}"}}]

[[package]]
name = "Metrics_Core"
version = "0.3"
files = []
[package.source]
type = "git"
url = "https://ann:secret@git.example.com/metrics.git"
reference = "main"
resolved_reference = "{COMMIT}"

[metadata]
lock-version = "2.1"
"""

PDM = f"""\
[metadata]
groups = ["default"]
lock_version = "4.5.0"

[[package]]
name = "tqdm"
version = "4.67.0"
groups = ["default"]
files = [
    {{file = "tqdm-4.67.0.tar.gz", hash = "{ONE}"}},
    {{file = "tqdm-4.67.0-py3-none-any.whl", hash = "{TWO}"}},
]

[[package]]
name = "colorama"
version = "0.4.6"
marker = "sys_platform == 'win32'"
files = [{{file = "colorama-0.4.6-py3-none-any.whl", hash = "{THREE}"}}]

[[package]]
name = "metrics-core"
version = "0.3"
git = "https://ann:secret@git.example.com/metrics.git"
ref = "main"
revision = "{COMMIT}"
"""

REQUIREMENTS = f"""\
# made by pip-compile
--index-url https://ann:secret@index.example.com/simple
tqdm[notebook]==4.67.0 \\
    --hash={ONE} \\
    --hash={TWO}
    # via demo
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash={THREE}
metrics-core @ git+https://git.example.com/metrics.git@{COMMIT}
"""

FILES = {
    "uv.lock": UV,
    "pylock.toml": PYLOCK,
    "pylock.train.toml": PYLOCK,
    "poetry.lock": POETRY,
    "pdm.lock": PDM,
    "requirements.txt": REQUIREMENTS,
}


@pytest.mark.parametrize("name", FILES)
def test_a_lock_is_read(name: str):
    lock = parse_lock(FILES[name], name)
    packages = {each.name: each for each in lock.packages}
    assert lock.source == name
    tqdm, colorama = packages["tqdm"], packages["colorama"]
    assert (tqdm.version, sorted(tqdm.hashes), tqdm.marker) == ("4.67.0", [ONE, TWO], "")
    assert (colorama.version, list(colorama.hashes)) == ("0.4.6", [THREE])
    assert "sys_platform == 'win32'" in colorama.marker
    assert "demo" not in packages
    assert "secret" not in repr(lock)
    if name != "requirements.txt":
        assert packages["metrics-core"] == LockedPackage(
            name="metrics-core",
            version="0.3",
            origin="git",
            url="https://git.example.com/metrics.git",
            commit=COMMIT,
        )


@pytest.mark.parametrize("name", FILES)
def test_a_lock_adds_hashes_to_what_is_installed(name: str):
    found = with_lock(RECORD, parse_lock(FILES[name], name))
    assert sorted(found.by_name["tqdm"].hashes) == [ONE, TWO]
    assert found.by_name["numpy"].hashes == ()  # installed, though no lock names it
    assert (found.lock, found.lock_deviations) == (name, ())
    (elsewhere,) = [each for each in found.distributions if not each.installed]
    assert (elsewhere.name, list(elsewhere.hashes)) == ("colorama", [THREE])


def test_the_installed_version_counts_and_the_deviation_is_told():
    installed = with_dist(RECORD, dist("tqdm", "4.66.0"))
    found = with_lock(installed, parse_lock(UV, "uv.lock"))
    assert found.by_name["tqdm"] == dist("tqdm", "4.66.0")
    assert found.lock_deviations == ("tqdm 4.66.0, uv.lock has 4.67.0",)


def test_what_the_lock_has_for_this_platform_and_is_not_installed_is_not_needed():
    windows = replace(RECORD, system="win32")
    found = with_lock(windows, parse_lock(UV, "uv.lock"))
    assert "colorama" not in [each.name for each in found.distributions]


def test_a_package_of_another_source_than_the_locked_one_gets_no_hashes():
    mine = dist("tqdm", "4.67.0", origin="editable", url="file:///home/user/tqdm")
    found = with_lock(with_dist(RECORD, mine), parse_lock(UV, "uv.lock"))
    assert found.by_name["tqdm"] == mine


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.lock", "no toml ="),
        ("uv.lock", '[[package]]\nversion = "1"'),
        ("pylock.toml", 'lock-version = "1.0"'),
        ("poetry.lock", '[[package]]\nname = "a"'),
        ("pdm.lock", "package = 3"),
    ],
)
def test_a_lock_that_cannot_be_read_is_named(name: str, text: str):
    with pytest.raises(InputError, match=name):
        parse_lock(text, name)


def test_the_lock_of_a_project_is_found(tmp_path: Path):
    (tmp_path / "requirements.txt").write_text("tqdm\n")
    assert find_lock(tmp_path) is None
    for name in ("requirements.txt", "pylock.train.toml", "pdm.lock", "poetry.lock", "pylock.toml", "uv.lock"):  # fmt: skip
        (tmp_path / name).write_text(FILES[name])
        assert find_lock(tmp_path) == tmp_path / name


@pytest.mark.parametrize(
    "marker", ['extra == "gpu"', "'dev' in dependency_groups", "sys_platform == 'win32'"]
)
def test_what_is_installed_is_needed_whatever_the_lock_asks_it_for(marker: str):
    """`tqdm` is there, so the script may use it: an extra that asked for it is no reason to leave it out."""
    lock = Lock(
        source="pylock.toml",
        packages=[LockedPackage(name="tqdm", version="4.67.0", marker=marker, hashes=(ONE,))],
    )
    found = with_lock(RECORD, lock)
    assert match(found, catalogue_of(without(RECORD, "tqdm"))).requirements == [
        f"tqdm==4.67.0 --hash={ONE}"
    ]


def test_files_of_all_indexes_of_a_lock_are_allowed():
    rows = [
        LockedPackage(
            name="tqdm", version="4.67.0", marker=f"sys_platform == '{system}'", hashes=(digest,)
        )
        for system, digest in (("linux", ONE), ("darwin", TWO))
    ]
    found = with_lock(RECORD, Lock(source="uv.lock", packages=rows)).by_name["tqdm"]
    assert (found.marker, found.hashes) == ("sys_platform == 'linux'", (ONE, TWO))


def test_a_locked_package_without_version_is_no_deviation():
    """PEP 751 leaves out the version of a commit and of a folder."""
    text = PYLOCK.replace('name = "metrics-core"\nversion = "0.3"', 'name = "metrics-core"')
    source: Any = {"origin": "git", "url": "https://git.example.com/metrics.git", "commit": COMMIT}
    installed = with_dist(RECORD, dist("metrics-core", "0.3", **source))
    found = with_lock(installed, parse_lock(text, "pylock.toml"))
    assert found.lock_deviations == ()
    assert found.by_name["metrics-core"].commit == COMMIT


def test_only_hashes_that_installers_are_told_are_read():
    text = UV.replace(ONE, "md5:" + "1" * 32)
    found = with_lock(RECORD, parse_lock(text, "uv.lock"))
    assert list(found.by_name["tqdm"].hashes) == [TWO]
    assert PythonEnvironment.from_json(found.to_json()).by_name["tqdm"].hashes == (TWO,)
