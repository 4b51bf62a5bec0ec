"""`logs` of a run whose logs are gone, or only in part here: what is left, why the rest is not, exit code 1."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk
from airflow_training.state.store import RunRecord, Store
from airflow_training.supervise import runtimes
from tests.state.samples import a_job, a_key, a_ledger, worker

WORDS = b"step 1\nstep 2\n"


def put(home: Path, **fields: Any) -> RunRecord:
    """Put a run that is over into the store, both of whose workers had run unless `fields` say otherwise."""
    ended = {"state": "failed", "final": True, "failure_class": "user", "exit_code": 1}
    known = fields or {"was_running": True, **ended}
    entries = [worker(index, **known) for index in (0, 1)]
    ledger = a_ledger(*entries, state="Failed", reason="InstanceFailed", drained=True)
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    record = store.create_run(a_key("one"), a_job(), ledger, controller="here", queue=False)
    store.close()
    return record


def on_this_machine(home: Path, run: RunRef) -> RunFolder:
    """Make the folder of a run whose workers have printed something, and which was removed as it ended."""
    folder = RunFolder(home / "training", run.uid)
    folder.make()
    for index in (0, 1):
        attempt = folder.attempt("worker", index, (0, 0, 0))
        attempt.path.mkdir(parents=True)
        attempt.log.write_bytes(WORDS)
    folder.bury(run.generation)
    return folder


def test_a_folder_that_was_moved_away_while_its_run_went_on_is_no_empty_log(home, typed):
    folder = on_this_machine(home, put(home).ref())
    folder.tombstone.unlink()  # nobody has removed the run
    (folder.names / "one-worker-0").write_text("worker-0")
    shutil.move(folder.path / "worker-0", home / "moved-away")
    answer = typed(*SHOW)
    assert (answer.code, answer.stdout) == (1, "")
    assert "its folder is not on this machine: somebody removed it" in answer.stderr


SHOW = ("logs", "show", "one", "--role", "worker", "--index", "0")


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        pytest.param("worker-0/attempt-0.0.0/log", "somebody removed it", id="file"),
        pytest.param("worker-0", "its folder is not on this machine", id="folder"),
        pytest.param("", "the folder of its run is not on this machine", id="folder-of-the-run"),
    ],
)
@pytest.mark.parametrize("words", [SHOW, (*SHOW, "--tail", "1")], ids=["show", "tail"])
def test_local_logs_that_somebody_removed(home, typed, gone, why, words):
    folder = on_this_machine(home, put(home).ref())
    assert typed(*SHOW).stdout.encode() == WORDS
    path = folder.path / gone
    path.unlink() if path.is_file() else shutil.rmtree(path)
    answer = typed(*words)
    assert (answer.code, answer.stdout) == (1, "")
    assert "the log of worker-0 is not complete" in answer.stderr
    assert why in answer.stderr


def test_an_instance_that_was_never_seen_misses_no_log(home, typed):
    put(home, desired=True, state="pending")
    answer = typed(*SHOW)
    assert (answer.code, answer.stderr) == (0, "worker-0 was never started\n")


ALL_COMMANDS = [
    pytest.param(SHOW, id="show"),
    pytest.param((*SHOW, "--tail", "9"), id="tail"),
    pytest.param((*SHOW, "--size", "100"), id="bytes"),
    pytest.param(("logs", "show", "one", "--merge"), id="merged"),
    pytest.param(("logs", "search", "one", "step"), id="search"),
    pytest.param(("logs", "diagnose", "one"), id="diagnose"),
]


@pytest.mark.parametrize("left", [pytest.param(b"", id="all"), pytest.param(WORDS, id="a-part")])
@pytest.mark.parametrize("words", ALL_COMMANDS)
def test_what_an_archive_lost_is_said_with_the_reason(home, typed, monkeypatch, words, left):
    class Archived:
        async def read_log(self, _: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk:
            data = left[cursor.offset : cursor.offset + limit]
            place = Cursor(offset=cursor.offset + len(data))
            why = "its pod was gone before its end was read"
            return LogChunk(data=data, next=place, end=len(data) < limit, missing=why)

    put(home)
    monkeypatch.setattr(runtimes, "make_runtime", lambda *_, **__: Archived())
    answer = typed(*words)
    assert answer.code == 1
    assert "worker-0 is not complete: its pod was gone before its end was read" in answer.stderr
    if left and "diagnose" not in words:
        assert "step 2" in answer.stdout, "what is left is shown all the same"
    assert "printed nothing" not in answer.stdout, "what was lost is not known to be empty"
