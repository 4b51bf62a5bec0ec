"""An environment is built once, whole or not at all, from where this machine looks for packages."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_training import environments
from airflow_training.environments import building
from airflow_training.environments.cache import (
    CachedEnvironment,
    cached_digests,
    collect,
    find_cached,
    find_whole,
    pin,
    remove,
    unpin,
    verify,
)
from airflow_training.environments.catalogue import EnvironmentCatalogue
from airflow_training.environments.locks import parse_lock
from airflow_training.environments.matching import Match
from airflow_training.errors import InputError
from tests.environments.records import dist, with_dist
from tests.environments.wheels import write_wheel
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("wheels")

HERE = environments.catalogue_here()
(THIS,) = [image.record for image in HERE.images]


@pytest.fixture(params=["uv", "pip"])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pip":
        monkeypatch.setattr(building, "find_uv", lambda: None)
    return str(request.param)


def on_top(*names: str) -> Match:
    pins = [dist(*name.split("==")) for name in names]
    return environments.match(with_dist(THIS, *pins), HERE)


def own(*names: str) -> Match:
    """The match of a script that has another version of a framework than this Python."""
    there = with_dist(THIS, dist("lightgbm", "0.0.1"))
    image = replace(HERE.images[0], record=there)
    pins = [dist(*name.split("==")) for name in (*names, "lightgbm==0.0.2")]
    return environments.match(
        replace(THIS, distributions=pins), EnvironmentCatalogue(images=[image])
    )


def python(prepared: environments.PreparedEnvironment, code: str) -> str:
    done = subprocess.run(
        [str(prepared.python), "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.strip()


def test_what_the_image_lacks_is_installed_on_top(tmp_path: Path, installer: str):
    found = environments.prepare(on_top("tinyone==1.0"), tmp_path / "cache")
    assert (list(found.installed), found.cached) == (["tinyone==1.0"], False), installer
    code = "import tinyone, pydantic; print(tinyone.__version__, pydantic.__name__)"
    assert python(found, code) == "1.0 pydantic"
    again = environments.prepare(on_top("tinyone==1.0"), tmp_path / "cache")
    assert (again.python, again.installed, again.cached) == (found.python, found.installed, True)


def test_what_was_installed_can_be_installed_by_others(tmp_path: Path, wheels: Path):
    found = environments.prepare(on_top("tinyone==1.0"), tmp_path / "cache")
    assert found.lock
    text = found.lock.read_text()
    (locked,) = parse_lock(text, "pylock.toml").packages
    digest = hashlib.sha256((wheels / "tinyone-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    assert (locked.name, locked.version, list(locked.hashes)) == (
        "tinyone",
        "1.0",
        [f"sha256:{digest}"],
    )
    assert 'lock-version = "1.0"' in text


def test_an_own_environment_has_nothing_of_the_image(tmp_path: Path, installer: str, wheels: Path):
    write_wheel(wheels, "lightgbm", "0.0.2")
    found = environments.prepare(own("tinyone==1.1"), tmp_path / "cache")
    assert list(found.installed) == ["lightgbm==0.0.2", "tinyone==1.1"], installer
    code = "import importlib.util as u; print([bool(u.find_spec(n)) for n in ('tinyone', 'lightgbm', 'pydantic')])"
    assert python(found, code) == "[True, True, False]"


def test_nothing_is_prepared_where_the_image_has_it_all(tmp_path: Path):
    found = environments.prepare(environments.match(THIS, HERE), tmp_path / "cache")
    assert (found.python, found.cached) == (Path(sys.executable), True)
    assert not (tmp_path / "cache").exists()


def test_recorded_versions_hold_whatever_packages_ask_of_each_other(tmp_path: Path):
    """An environment in which `tinytwo` wants another `tinyone` was in use, so that is what is made."""
    found = environments.prepare(on_top("tinyone==1.0", "tinytwo==2.0"), tmp_path / "cache")
    assert list(found.installed) == ["tinyone==1.0", "tinytwo==2.0"]


def test_another_platform_gets_what_it_needs_besides(tmp_path: Path):
    laptop = replace(with_dist(THIS, dist("tinytwo", "2.0"), dist("tinyone", "1.0")), system="darwin")  # fmt: skip
    found = environments.prepare(environments.match(laptop, HERE), tmp_path / "cache")
    assert list(found.installed) == ["tinyone==1.0", "tinythree==3.0", "tinytwo==2.0"]


def test_another_version_than_the_recorded_one_is_refused(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
):
    """pip takes the version that a dependency asks for, after the locked one was there."""
    monkeypatch.setattr(building, "find_uv", lambda: None)
    write_wheel(wheels, "tinysix", "1.0", requires=["tinyone<1.1"])
    (digest,) = [f"sha256:{hashlib.sha256((wheels / 'tinyone-1.1-py3-none-any.whl').read_bytes()).hexdigest()}"]  # fmt: skip
    pins = [dist("tinyone", "1.1", hashes=(digest,)), dist("tinysix", "1.0")]
    laptop = replace(with_dist(THIS, *pins), system="darwin")
    with pytest.raises(InputError, match=r"tinyone: 1\.0 was installed"):
        environments.prepare(environments.match(laptop, HERE), tmp_path / "cache")
    assert cached_digests(tmp_path / "cache") == frozenset()


def test_paths_may_be_relative(tmp_path: Path, installer: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(sys.prefix)
    cache = Path(os.path.relpath(tmp_path / "cache"))
    there = environments.catalogue_here("bin/python")
    asked = environments.match(with_dist(THIS, dist("tinyone", "1.0")), there)
    found = environments.prepare(asked, cache)
    assert python(found, "import tinyone; print(tinyone.__version__)") == "1.0", installer
    assert found.python.resolve() == Path(sys.executable).resolve()
    assert found.python.parents[1].samefile(tmp_path / "cache" / asked.digest)
    assert environments.prepare(asked, cache).cached


def test_a_file_with_other_bytes_than_the_locked_ones_is_not_installed(
    tmp_path: Path, installer: str
):
    pin = dist("tinyone", "1.0", hashes=("sha256:" + "0" * 64,))
    locked = environments.match(with_dist(THIS, pin), HERE)
    with pytest.raises(InputError, match="tinyone: cannot be installed") as refused:
        environments.prepare(locked, tmp_path / "cache")
    assert "0" * 64 in str(refused.value), installer
    assert cached_digests(tmp_path / "cache") == frozenset()


def test_the_locked_bytes_are_installed(tmp_path: Path, installer: str, wheels: Path):
    digest = write_wheel(wheels, "tinyfour", "4.0")
    pins = [dist("tinyfour", "4.0", hashes=(digest,)), dist("tinyone", "1.0")]
    found = environments.prepare(
        environments.match(with_dist(THIS, *pins), HERE), tmp_path / "cache"
    )
    assert list(found.installed) == ["tinyfour==4.0", "tinyone==1.0"], installer


def test_a_package_that_cannot_be_had_is_named(tmp_path: Path, installer: str):
    with pytest.raises(InputError, match=r"tinyfive: cannot be installed for here") as refused:
        environments.prepare(on_top("tinyfive==5.0", "tinyone==1.0"), tmp_path / "cache")
    assert [each.field for each in refused.value.problems] == ["tinyfive"], installer
    assert cached_digests(tmp_path / "cache") == frozenset()


@pytest.mark.parametrize("closed", ["0", "1"])
def test_where_pip_may_ask_no_index_none_is_asked(
    tmp_path: Path, installer: str, monkeypatch: pytest.MonkeyPatch, closed: str
):
    folder = tmp_path / "index" / "tinyfive"
    write_wheel(folder, "tinyfive", "5.0")
    (wheel,) = folder.iterdir()
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_NO_INDEX", closed)
    if closed == "0":
        found = environments.prepare(on_top("tinyfive==5.0"), tmp_path / "cache")
        assert list(found.installed) == ["tinyfive==5.0"], installer
        return
    with pytest.raises(InputError, match="tinyfive: cannot be installed"):
        environments.prepare(on_top("tinyfive==5.0"), tmp_path / "cache")


def test_twenty_that_ask_at_once_build_once(tmp_path: Path):
    asked = on_top("tinyone==1.0")
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: environments.prepare(asked, tmp_path / "cache"), range(20)))
    assert sorted(each.cached for each in found) == [False] + [True] * 19
    assert len({each.python for each in found}) == 1


BUILD = """
import json, sys
from pathlib import Path
from airflow_training import environments
record = environments.PythonEnvironment.from_json(json.loads(Path(sys.argv[1]).read_text()))
environments.prepare(environments.match(record, environments.catalogue_here()), Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param("*.lock", id="lock"),
        pytest.param("*/pyvenv.cfg", id="venv"),
        pytest.param("*/lib/python*/site-packages/tinybig", id="files"),
        pytest.param("*/lib/python*/site-packages/tinybig-1.0.dist-info", id="metadata"),
    ],
)
def test_a_build_killed_in_between_is_begun_anew(tmp_path: Path, wheels: Path, seen: str):
    write_wheel(wheels, "tinybig", "1.0", {f"part{n}.py": f"X = {n}\n" for n in range(3000)})
    record, cache = with_dist(THIS, dist("tinybig", "1.0")), tmp_path / "cache"
    (tmp_path / "record.json").write_text(json.dumps(record.to_json()))
    command = [sys.executable, "-c", BUILD, str(tmp_path / "record.json"), str(cache)]
    killed = subprocess.Popen(command)
    wait_until(lambda: any(cache.glob(seen)), alive=lambda: killed.poll() is None)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    digest = environments.match(record, HERE).digest
    assert find_cached(cache, digest) is None
    found = environments.prepare(environments.match(record, HERE), cache)
    assert (found.cached, verify(_whole(cache, digest))) == (False, [])
    assert python(found, "import tinybig.part2999 as m; print(m.X)") == "2999"


def _whole(cache: Path, digest: str) -> CachedEnvironment:
    found = find_cached(cache, digest)
    assert found
    return found


@pytest.fixture
def whole(tmp_path: Path) -> CachedEnvironment:
    asked = on_top("tinyone==1.0", "tinytwo==2.0")
    environments.prepare(asked, tmp_path / "cache")
    return _whole(tmp_path / "cache", asked.digest)


def flip(path: Path, draw: random.Random) -> Callable[[], object]:
    """Flip one bit of a file in place, links to it too; returns what undoes that."""
    before = path.read_bytes()
    at = draw.randrange(len(before))
    changed = bytes([before[at] ^ 1 << draw.randrange(8)])
    path.write_bytes(before[:at] + changed + before[at + 1 :])
    return lambda: path.write_bytes(before)


def _flipped_bits_found(environment: CachedEnvironment, times: int) -> int:
    draw = random.Random(11)
    files = [
        path
        for path in sorted(environment.folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size
    ]
    found = 0
    for _ in range(times):
        path = draw.choice(files)
        undo = flip(path, draw)
        if find_whole(environment.folder.parent, environment.digest) is not None:
            undo()
            continue
        again = find_cached(environment.folder.parent, environment.digest)
        found += again is None or verify(again) == [str(path.relative_to(environment.folder))]
        undo()
    assert verify(environment) == []
    return found


def test_a_flipped_bit_is_found(whole: CachedEnvironment):
    assert _flipped_bits_found(whole, 30) == 30


@pytest.mark.soak
def test_every_flipped_bit_is_found(whole: CachedEnvironment):
    assert _flipped_bits_found(whole, 1000) == 1000


@pytest.mark.parametrize("link", ["tinyone/evil.py", "evil", "RECORD", "../../../bin/python"])
def test_links_and_files_named_record_are_compared_too(whole: CachedEnvironment, link: str):
    (packages,) = whole.folder.glob("lib/python*/site-packages")
    path = Path(os.path.normpath(packages / link))
    path.unlink(missing_ok=True)
    path.symlink_to("/usr/bin/env" if link.endswith("python") else "/tmp")
    assert verify(whole) == [str(path.relative_to(whole.folder))]


@pytest.mark.parametrize("change", ["changed", "removed", "added"])
def test_what_is_not_as_it_was_installed_is_found(whole: CachedEnvironment, change: str):
    (packages,) = whole.folder.glob("lib/python*/site-packages")
    path = packages / "tinyone" / ("new.py" if change == "added" else "more.py")
    path.unlink() if change == "removed" else path.write_text("X = 2\n")
    assert verify(whole) == [str(path.relative_to(whole.folder))]


def test_a_damaged_environment_is_built_anew_from_sound_files(tmp_path: Path):
    """The installer's own cache shares its files by hard links: it cannot mend what was damaged there too."""
    asked, cache = on_top("tinyone==1.0"), tmp_path / "cache"
    found = environments.prepare(asked, cache)
    (path,) = found.python.parents[1].glob("lib/python*/site-packages/tinyone/more.py")
    with path.open("r+") as file:
        file.write("X = 7")
    again = environments.prepare(asked, cache)
    assert (again.cached, path.read_text()) == (False, "X = 1\n")
    assert environments.prepare(asked, cache, check_files=True).cached


def test_a_removed_environment_is_built_again(tmp_path: Path):
    asked, cache = on_top("tinyone==1.0"), tmp_path / "cache"
    environments.prepare(asked, cache)
    assert cached_digests(cache) == {asked.digest}
    assert remove(cache, asked.digest) > 0
    assert cached_digests(cache) == frozenset()
    assert not environments.prepare(asked, cache).cached


def test_what_nobody_uses_goes_and_what_is_pinned_stays(tmp_path: Path):
    cache = tmp_path / "cache"
    old, pinned, used = (on_top(name) for name in ("tinyone==1.0", "tinyone==1.1", "tinythree==3.0"))  # fmt: skip
    for asked in (old, pinned, used):
        environments.prepare(asked, cache)
        os.utime(cache / f"{asked.digest}.lock", (1000, 1000))
    pin(_whole(cache, pinned.digest))
    environments.prepare(used, cache)  # that is a use
    (cache / ("0" * 64)).mkdir()  # what a killed build left
    assert set(collect(cache, before=2000)) == {old.digest, "0" * 64}
    assert cached_digests(cache) == {pinned.digest, used.digest}
    os.utime(cache / f"{pinned.digest}.lock", (1000, 1000))
    unpin(_whole(cache, pinned.digest))
    assert set(collect(cache, before=2000)) == {pinned.digest}
