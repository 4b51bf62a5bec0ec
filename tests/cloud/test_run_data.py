"""What a service believes of a list of shared data, and what a run says of its data."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from airflow_training.capture.model import Tree, TreeEntry
from airflow_training.cloud.protocol import CloudRunState
from airflow_training.cloud.service.run_data import (
    DataPlace,
    RunData,
    read_manifest,
    with_variables,
)
from airflow_training.errors import InputError
from airflow_training.remote_data.manifest import DataFile, DataManifest, DataRoot

TREE = Tree(
    entries=[
        TreeEntry(path="project/train.py"),
        TreeEntry(path="project/out", kind="folder"),
        TreeEntry(path="project/link", kind="symlink", link="out"),
    ]
)
FILE = DataFile(path="data/a.csv", size=3, mtime_ns=5)
ROOT = DataRoot(name="project", path="/home/ada/project", files=[FILE], folders=["data"])


def sent(*roots: DataRoot) -> bytes:
    return DataManifest(source="", roots=roots).to_bytes()


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(ROOT, id="data of the project"),
        pytest.param(replace(ROOT, name="imports/tools"), id="of a package"),
        pytest.param(replace(ROOT, name="data/0"), id="from elsewhere"),
        pytest.param(replace(ROOT, folders=["out", "out/old"]), id="in a folder that travels"),
        pytest.param(replace(ROOT, links={"data/b": "a.csv"}), id="with a link"),
    ],
)
def test_a_list_that_a_client_writes_is_taken(root):
    [found] = read_manifest(sent(root), TREE).roots
    assert (found.name, found.path, found.links) == (root.name, root.path, root.links)
    assert [each.path for each in found.files] == [each.path for each in root.files]


@pytest.mark.parametrize(
    ("root", "why"),
    [
        (replace(ROOT, name="elsewhere"), "is no place in a run's folder"),
        (replace(ROOT, name="project/.."), "is no place in a run's folder"),
        (replace(ROOT, files=[replace(FILE, path="../a")]), "is no path below a root"),
        (replace(ROOT, files=[replace(FILE, path="/etc/passwd")]), "is no path below a root"),
        (replace(ROOT, files=[replace(FILE, path="a/./b")]), "is no path below a root"),
        (replace(ROOT, files=[replace(FILE, size=-1)]), "has no size, time and permissions"),
        (replace(ROOT, files=[replace(FILE, size="9")]), "has no size, time and permissions"),  # type: ignore[arg-type]  # what a client could send
        (replace(ROOT, files=[replace(FILE, mode=0o4755)]), "has no size, time and permissions"),
        (replace(ROOT, files=[replace(FILE, mtime_ns=1 << 70)]), "has no size, time and"),
        (replace(ROOT, files=[replace(FILE, path="train.py")]), "something else of the program"),
        (replace(ROOT, files=[replace(FILE, path="link/a")]), "something else of the program"),
        (replace(ROOT, links={"l": "../../etc"}), "leads out of its root"),
        (replace(ROOT, links={"l": "/etc"}), "leads out of its root"),
        (
            replace(ROOT, links={"data": "out"}),
            "something else of the program",
        ),
    ],
)
def test_a_list_that_would_lead_elsewhere_is_refused(root, why):
    with pytest.raises(InputError, match=why):
        read_manifest(sent(root), TREE)


@pytest.mark.parametrize(
    "document", [b"", b"3", b'{"a": 1}', b"[3]", b'[{"name": "project"}]', b"\xff"]
)
def test_what_is_no_list_is_refused(document):
    with pytest.raises(InputError, match="cannot be read"):
        read_manifest(document, TREE)


def test_the_hook_stands_before_the_paths_of_the_program():
    job = {
        "spec": {"env": [{"name": "PYTHONPATH", "value": "/run/src"}, {"name": "A", "value": "1"}]}
    }
    found = with_variables(job, {"PYTHONPATH": "/hook", "TRAINING_DATA_GUARD": "leases"})
    assert {row["name"]: row["value"] for row in found["spec"]["env"]} == {
        "PYTHONPATH": "/hook:/run/src",
        "A": "1",
        "TRAINING_DATA_GUARD": "leases",
    }
    assert with_variables({"spec": {}}, {"B": "2"})["spec"]["env"] == [{"name": "B", "value": "2"}]


RUNNING = CloudRunState(
    run_id="r", uid="u", state="Running", over=False, exit_code=None, message=""
)
ENDED = replace(RUNNING, state="Succeeded", over=True, exit_code=0)
EARLY = {"reason": "UnfetchedDataRead", "message": "/data/a: it was read too early"}


@pytest.mark.parametrize(
    ("status", "state", "shown"),
    [
        ({}, RUNNING, ("Running", None, "")),
        ({"waiting": "since 9:00"}, RUNNING, ("Running", None, "WaitingForData: since 9:00")),
        ({"waiting": "since 9:00"}, replace(RUNNING, state="Paused"), ("Paused", None, "")),
        ({"ended": True}, ENDED, ("Succeeded", 0, "")),
        (
            {"ended": True, "failure": EARLY},
            ENDED,
            ("Failed", 1, "UnfetchedDataRead: /data/a: it was read too early"),
        ),
        (
            {"ended": True, "failure": {"reason": "DataSourceChanged", "message": "a"}},
            ENDED,
            ("Failed", 1, "DataSourceChanged: a"),
        ),
        ({}, ENDED, ("Succeeded", None, "")),
        (
            {"ended": True, "failure": {"reason": "DataSourceChanged", "message": "a"}},
            replace(ENDED, state="Failed", exit_code=1, message="exit code 1"),
            ("Failed", 1, "DataSourceChanged: a"),
        ),
    ],
)
def test_a_run_says_how_its_data_is(tmp_path, status, state, shown):
    data = RunData(
        run_id="r",
        uid="u",
        folder=tmp_path / "run",
        state=tmp_path,
        place=DataPlace(storage=str(tmp_path / "chunks")),
    )
    data.tell_status(status)
    found = data.described(state)
    assert (found.state, found.exit_code, found.message) == shown


def test_what_the_service_cannot_keep_is_told_to_who_follows(tmp_path):
    data = RunData(
        run_id="r",
        uid="u",
        folder=tmp_path / "run",
        state=tmp_path,
        place=DataPlace(storage=str(tmp_path / "chunks")),
    )
    data.tell_status({"ended": True})
    data.note_trouble(errno.ENOSPC)
    assert data.described(RUNNING).message == (
        "WaitingForData: the service cannot keep what is sent: No space left on device; make room there"
    )
    assert data.described(ENDED) == ENDED
    os.utime(tmp_path / f"trouble-{errno.ENOSPC}", (1, 1))
    assert data.described(RUNNING) == RUNNING
