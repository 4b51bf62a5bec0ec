"""What is recorded of a Python: versions, origins and builds; as JSON it says the same, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_training.environments.addresses import public_url
from airflow_training.environments.markers import holds
from airflow_training.environments.model import PythonEnvironment
from airflow_training.environments.programs import uv_settings
from airflow_training.environments.recording import record, record_of
from airflow_training.errors import InputError
from tests.environments.records import RECORD, dist, with_dist, without


def test_a_record_travels_as_json():
    record = with_dist(RECORD, dist("x", "1", hashes=("sha256:" + "0" * 64,), installed=False))
    again = PythonEnvironment.from_json(json.loads(json.dumps(record.to_json())))
    assert (again, again.digest) == (record, record.digest)


def test_the_digest_is_of_what_matters():
    place = {"origin": "editable", "url": "file:///home/user/a"}
    mine = with_dist(RECORD, dist("mine", "1", **place))
    moved = with_dist(RECORD, dist("mine", "1", **{**place, "url": "file:///home/other/a"}))
    assert mine.digest == moved.digest
    changed = [
        RECORD,
        replace(RECORD, python="3.11.8"),
        replace(RECORD, machine="arm64"),
        without(RECORD, "tqdm"),
        with_dist(RECORD, dist("tqdm", "4.67.1")),
        with_dist(RECORD, dist("torch", "2.9.1+cpu", build="cuda 12.6")),
        mine,
    ]
    assert len({each.digest for each in changed}) == len(changed)


SCANNED = {
    "python": "3.11.7", "implementation": "cpython", "free_threaded": False, "system": "linux", "machine": "x86_64",
    "platform": "linux-x86_64", "libc": "glibc 2.36", "conda": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param({}, dist("a", "1"), id="index"),
        pytest.param({"origin": "conda"}, dist("a", "1", origin="conda"), id="conda"),
        pytest.param({"build": "cuda 12.6"}, dist("a", "1", build="cuda 12.6"), id="build"),
        pytest.param(
            {
                "direct_url": {
                    "url": "https://ann:secret@git.example.com/a.git",
                    "vcs_info": {"vcs": "git", "commit_id": "abc"},
                    "subdirectory": "python",
                }
            },
            dist(
                "a", "1", origin="git", commit="abc",
                url="https://git.example.com/a.git#subdirectory=python",
            ),
            id="git",
        ),
        pytest.param(
            {"direct_url": {"url": "https://e.com/a", "vcs_info": {"vcs": "hg", "commit_id": "a"}}},
            dist("a", "1", origin="folder", url="https://e.com/a"),
            id="mercurial",
        ),
        pytest.param(
            {"direct_url": {"url": "file:///home/user/a", "dir_info": {"editable": True}}},
            dist("a", "1", origin="editable", url="file:///home/user/a"),
            id="editable",
        ),
        pytest.param(
            {"direct_url": {"url": "file:///home/user/a", "dir_info": {}}},
            dist("a", "1", origin="folder", url="file:///home/user/a"),
            id="folder",
        ),
        pytest.param(
            {"direct_url": {"url": "file:///home/user/a-1-py3-none-any.whl", "archive_info": {}}},
            dist("a", "1", origin="folder", url="file:///home/user/a-1-py3-none-any.whl"),
            id="wheel-of-this-machine",
        ),
        pytest.param(
            {
                "direct_url": {
                    "url": "https://example.com/a-1.zip?token=secret",
                    "archive_info": {"hashes": {"sha256": "e" * 64}},
                }
            },
            dist(
                "a", "1", origin="archive", url="https://example.com/a-1.zip",
                hashes=("sha256:" + "e" * 64,),
            ),
            id="archive",
        ),
        pytest.param(
            {"markers": ['sys_platform == "darwin"', 'os_name == "nt"']},
            dist("a", "1", marker='(sys_platform == "darwin") or (os_name == "nt")'),
            id="of-some-platforms",
        ),
    ],
)  # fmt: skip
def test_where_a_distribution_is_from(row: dict[str, Any], expected: Any):
    scanned = {**SCANNED, "distributions": [{"name": "a", "version": "1", **row}]}
    assert record_of(scanned).distributions == [expected]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://ann:secret@example.com/simple", "https://example.com/simple"),
        ("https://token@example.com/a.git@main", "https://example.com/a.git@main"),
        ("ssh://git@example.com/a.git", "ssh://git@example.com/a.git"),
        ("https://ann:p@ss@example.com/x", "https://example.com/x"),
        ("https://example.com/x?sig=secret#sha256=abc", "https://example.com/x#sha256=abc"),
        ("failed at https://ann:secret@example.com/a", "failed at https://example.com/a"),
    ],
)
def test_no_password_is_left_in_an_address(address: str, expected: str):
    assert public_url(address) == expected


@pytest.mark.parametrize(
    "row",
    [
        {"name": "a\n--index-url https://evil.example.com", "version": "1"},
        {"name": "a", "version": "1\nb==2"},
        {"name": "a", "version": "1", "hashes": ["sha256:x --index-url"]},
        {"name": "a", "version": "1", "origin": "git", "url": "ext::sh -c id", "commit": "abc"},
        {"name": "a", "version": "1", "origin": "git", "url": "https://x/y", "commit": "abc --x"},
        {"name": "a", "version": "1", "origin": "git", "url": "https://x/${KEY}", "commit": "abc"},
        {"name": "a", "version": "1", "origin": "git", "url": "https://x/y#z\\", "commit": "abc"},
        {"name": "a", "version": "1", "origin": "git", "url": "https://x/y"},
        {"name": "a", "version": "1", "origin": "svn", "url": "https://x/y", "commit": "12"},
        {"name": "a", "version": "1", "marker": 1},
        {"name": "a", "version": "1", "surprise": 1},
        {"version": "1"},
    ],
)
def test_a_record_of_others_cannot_smuggle_lines_into_an_installation(row: dict[str, Any]):
    with pytest.raises(InputError, match="is no record of a Python"):
        PythonEnvironment.from_json({**SCANNED, "distributions": [row]})


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ("", True),
        ('sys_platform == "linux"', True),
        ('platform_system == "Darwin"', False),
        ('platform_machine == "x86_64" and python_version >= "3.11"', True),
        ('python_full_version < "3.11.7"', False),
        ('platform_python_implementation == "CPython" and os_name == "posix"', True),
        ('extra == "dev"', False),
        ("no marker", False),
    ],
)
def test_markers_are_judged_for_the_recorded_python(marker: str, *, expected: bool):
    assert holds(marker, RECORD) is expected


@pytest.mark.parametrize(
    "change", [{"python": 3.11}, {"python": "three"}, {"conda": "no"}, {"libc": None}]
)
def test_a_record_with_values_of_other_kinds_is_refused(change: dict[str, Any]):
    with pytest.raises(InputError, match="is no record of a Python"):
        PythonEnvironment.from_json({**RECORD.to_json(), **change})


def test_variables_of_pip_count_more_than_its_file():
    config = (
        ":env:.index-url='https://one.example.com/simple'\n"
        "download.index-url='https://other.example.com/simple'\n"
        "global.index-url='https://two.example.com/simple'\n"
        "install.extra-index-url='https://three.example.com/simple'\n"
    )
    found, _ = uv_settings({}, config)
    assert found["UV_DEFAULT_INDEX"] == "https://one.example.com/simple"
    assert found["UV_INDEX"] == "https://three.example.com/simple"


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("global.no-index='true'", ["--no-index"]),
        (":env:.no-index='1'", ["--no-index"]),
        (":env:.no-index='0'", []),
        ("global.timeout='1'", []),
    ],
)
def test_uv_asks_no_index_where_pip_may_not(line: str, options: list[str]):
    assert uv_settings({}, line)[1] == options


def test_a_list_on_several_lines_of_the_file_of_pip_is_read():
    config = "global.extra-index-url=" + repr("\nhttps://a.example.com\nhttps://b.example.com")
    assert uv_settings({}, config)[0]["UV_INDEX"] == "https://a.example.com https://b.example.com"


def test_what_conda_has_installed_is_of_conda_wherever_it_was_built(tmp_path: Path):
    """Packages of conda bring the direct_url.json of the machine that built them."""
    info = tmp_path / "tinyconda-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tinyconda\nVersion: 1.0\n")
    (info / "INSTALLER").write_text("conda\n")
    (info / "direct_url.json").write_text('{"url": "file:///croot/tinyconda", "dir_info": {}}')
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        found = record().by_name["tinyconda"]
    assert found == dist("tinyconda", "1.0", origin="conda")


def test_uv_looks_where_pip_does():
    config = (
        ":env:.find-links='/opt/wheels'\n"
        "global.index-url='https://pypi.example.com/simple'\n"
        "global.extra-index-url='file:///srv/one file:///srv/two'\n"
        "global.timeout='60'\n"
    )
    assert uv_settings({}, config)[0] == {
        "UV_FIND_LINKS": "/opt/wheels",
        "UV_DEFAULT_INDEX": "https://pypi.example.com/simple",
        "UV_INDEX": "file:///srv/one file:///srv/two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert uv_settings({"UV_DEFAULT_INDEX": "https://other.example.com"}, config) == ({}, [])
