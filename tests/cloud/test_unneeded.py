"""What a service keeps and no run needs: which of it goes, by age and by size; an account's part of the disk."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_training.cloud.packing import plan_packs
from airflow_training.cloud.service.unneeded import (
    UnneededItem,
    choose_unneeded,
    collect_garbage,
    find_unneeded,
    trim_chunks,
)
from airflow_training.cloud.submit import submit
from airflow_training.errors import InputError
from airflow_training.remote_data.chunks import ChunkCache, digest_of_chunk, open_chunk_store
from airflow_training.state.store import open_store
from tests.cloud.conftest import LoopbackService, captured
from tests.cloud.elsewhere import cloud, done

pytestmark = pytest.mark.e2e


def item(kind, name, since, size=10):
    return UnneededItem(kind=kind, name=name, bytes=size, since=since, paths=[])


OLD_RUN, RUN, CHUNK, CONTENT = (
    item("run", "old", 1.0),
    item("run", "new", 50.0),
    item("chunk", "c", 90.0),
    item("content", "d", 95.0),
)


@pytest.mark.parametrize(
    ("before", "too_many", "gone"),
    [
        (0.0, 0, ""),
        (10.0, 0, "old"),
        (10.0, 10, "old"),
        (10.0, 11, "old c"),
        (0.0, 15, "c d"),
        (0.0, 25, "c d old"),
        (0.0, 1000, "c d old new"),
        (100.0, 0, "c d old new"),
    ],
)
def test_what_can_be_had_again_goes_first_and_runs_by_age(before, too_many, gone):
    chosen = choose_unneeded([RUN, CONTENT, OLD_RUN, CHUNK], before=before, too_many_bytes=too_many)
    assert [each.name for each in chosen] == gone.split()


def test_for_want_of_room_nothing_goes_that_has_to_wait_for_its_time():
    waiting = replace(OLD_RUN, makes_room=False)
    assert [*choose_unneeded([waiting, RUN], before=0.0, too_many_bytes=1000)] == [RUN]
    assert [*choose_unneeded([waiting], before=10.0)] == [waiting]


def sent(service: LoopbackService, project: Path, **options) -> str:
    result = submit(service.client(), captured(project, **options), target="here")
    return result.run_id


def aged(service: LoopbackService, days: float) -> None:
    """Let everything of the service be so old."""
    at = time.time() - days * 86400
    for each in service.folder.rglob("*"):
        os.utime(each, (at, at), follow_symlinks=False)


def test_what_a_run_of_the_store_needs_stays_and_the_rest_goes(service, project):
    run = sent(service, project)
    store = open_store()
    assert not collect_garbage(service.folder, store, before=time.time() + 60)
    aged(service, 40)  # the store has no such run any more
    folder = service.folder / "runs" / run
    assert (folder / "project" / "train.py").exists()
    would = collect_garbage(service.folder, store, before=time.time() - 30 * 86400, is_dry=True)
    assert (folder / "project" / "train.py").exists()
    gone = collect_garbage(service.folder, store, before=time.time() - 30 * 86400)
    assert {each.name for each in gone} == {each.name for each in would}
    assert {each.kind for each in gone} == {"run", "content"}
    assert not folder.exists()
    assert not [*(service.folder / "content" / "whole").glob("*/*")]
    assert not [*(service.folder / "content" / "accounts").glob("*/*/*")]
    with pytest.raises(InputError):
        service.client().run(run)
    sent(service, project)  # the same again is simply sent again


def test_a_submission_that_is_just_being_sent_keeps_its_content(service, project):
    client = service.client()
    prepared = captured(project)
    request = replace(prepared.request, key="0" * 64)
    client.submit(request)
    found = find_unneeded(service.folder, open_store(), now=time.time())
    assert not [each for each in found if each.kind == "run"]
    later = find_unneeded(service.folder, open_store(), now=time.time() + 2 * 86400)
    assert [each.kind for each in later if each.kind == "run"] == ["run"]


def record(run: str, state: str, *, finished_at: float | None = None) -> SimpleNamespace:
    """What the store says of a run."""
    key = SimpleNamespace(run_id=run)
    return SimpleNamespace(key=key, state=state, finished_at=finished_at, submitted_at=0.0)


class StoreOfRuns:
    """A store with these runs."""

    def __init__(self, *records: SimpleNamespace) -> None:
        self._records = records

    def runs(self, *, limit: int) -> Sequence[SimpleNamespace]:
        return self._records[:limit]


NOTHING: Any = StoreOfRuns()


def test_a_run_that_just_ended_does_not_make_room_and_goes_by_age(service, project):
    run = sent(service, project)
    aged(service, 40)
    now = time.time()
    store: Any = StoreOfRuns(record(run, "Succeeded", finished_at=now - 60))
    collect_garbage(service.folder, store, before=0.0, most_bytes=1)
    assert (service.folder / "runs" / run / "project" / "train.py").exists()
    collect_garbage(service.folder, store, before=now + 60)
    assert not (service.folder / "runs" / run).exists()


@pytest.mark.parametrize("state", ["Suspended", "Running", "Pending"])
def test_what_a_living_run_needs_stays_however_old_it_is(service, project, state):
    run = sent(service, project)
    aged(service, 400)
    store: Any = StoreOfRuns(record(run, state))
    assert not collect_garbage(service.folder, store, before=time.time(), most_bytes=1)


def test_a_run_of_another_store_stays_while_it_writes(service, project):
    run = sent(service, project)
    aged(service, 40)
    (service.folder / "runs" / run / "project" / "step.txt").write_text("40,000\n")
    assert not collect_garbage(service.folder, NOTHING, before=time.time() + 60, most_bytes=1)
    aged(service, 8)  # nor does it ever go for room alone: who knows what it is
    assert not [
        each
        for each in collect_garbage(service.folder, NOTHING, before=0.0, most_bytes=1)
        if each.kind == "run"
    ]


def test_a_submission_that_is_sent_again_after_its_run_stays(service, project):
    client = service.client()
    answer = client.submit(replace(captured(project).request, key="1" * 64))
    store: Any = StoreOfRuns(record(answer.run_id, "Failed", finished_at=1.0))
    collect_garbage(service.folder, store, before=time.time() + 60, most_bytes=1)
    assert client.submit(replace(captured(project).request, key="1" * 64)).id == answer.id
    assert (service.folder / "submissions" / answer.id / "submission.json").exists()


def test_what_cannot_be_removed_is_not_said_to_be_gone_and_is_tried_again(
    service, project, monkeypatch
):
    run = sent(service, project)
    aged(service, 40)
    before = time.time() - 30 * 86400

    def refuse(path: Path) -> None:
        raise PermissionError(f"{path} belongs to somebody else")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        gone = collect_garbage(service.folder, open_store(), before=before)
    assert not gone
    gone = collect_garbage(service.folder, open_store(), before=before)
    assert [each.name for each in gone if each.kind == "run"] == [run]
    assert not (service.folder / "runs" / run).exists()


def test_what_is_sent_while_something_is_deleted_waits_for_nothing_and_is_whole(
    service, project, monkeypatch
):
    sent(service, project)
    aged(service, 40)
    again: list[str] = []
    delete = shutil.rmtree

    def deleting(path: Path) -> None:
        with (service.folder / "garbage.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as who lays a submission out
        monkeypatch.setattr(shutil, "rmtree", delete)
        again.append(sent(service, project))
        delete(path)

    monkeypatch.setattr(shutil, "rmtree", deleting)
    gone = collect_garbage(service.folder, open_store(), before=time.time() - 30 * 86400)
    assert {each.kind for each in gone} == {"run", "content"}
    [run] = again
    assert (service.folder / "runs" / run / "project" / "pkg" / "model.py").exists()
    content = service.submissions.content
    assert all(content.has(each) for each in captured(project).capture.tree.blobs)
    assert not [*(service.folder / "garbage").glob("*/*")]


class WatchedOutputs:
    """A storage that says whether something may start while it removes; `more` happens meanwhile."""

    def __init__(self, folder: Path, more: Callable[[], object] = list) -> None:
        self._lock = folder / "garbage.lock"
        self._more = more
        self.was_alone: list[bool] = []

    def with_size(self, run: UnneededItem) -> UnneededItem:
        return run

    def remove(self, run: UnneededItem) -> None:
        with self._lock.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self.was_alone.append(False)
            except BlockingIOError:
                self.was_alone.append(True)
        self._more()


def test_nobody_starts_a_submission_whose_outputs_are_being_removed(service, project):
    service.client().submit(replace(captured(project).request, key="1" * 64))
    aged(service, 40)
    outputs: Any = WatchedOutputs(service.folder)
    gone = collect_garbage(service.folder, NOTHING, before=time.time(), outputs=outputs)
    assert [each.kind for each in gone if each.kind == "run"] == ["run"]
    assert outputs.was_alone == [True]
    assert not [*(service.folder / "submissions").glob("*")]


def test_a_run_that_is_needed_again_once_its_outputs_are_removed_stays(service, project):
    run = sent(service, project)
    aged(service, 40)
    place = service.folder / "runs" / run / "project" / "step.txt"
    outputs: Any = WatchedOutputs(service.folder, lambda: place.write_text("1"))
    gone = collect_garbage(service.folder, NOTHING, before=time.time() - 60, outputs=outputs)
    assert outputs.was_alone == [False]
    assert not [each for each in gone if each.kind == "run"]
    assert place.exists()


def test_what_a_kill_has_left_to_delete_goes_next_time(service, project, monkeypatch):
    run = sent(service, project)
    aged(service, 40)

    def die(path: Path) -> None:
        raise KeyboardInterrupt

    before = time.time() - 30 * 86400
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            collect_garbage(service.folder, open_store(), before=before)
    assert not (service.folder / "runs" / run).exists()
    gone = collect_garbage(service.folder, open_store(), before=0.0)
    assert run in [each.name for each in gone]
    assert not [*(service.folder / "garbage").glob("*/*")]


def test_nothing_outside_of_the_folder_goes(service, project, tmp_path):
    run = sent(service, project)
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "thesis.txt").write_text("mine")
    (service.folder / "runs" / run / "project" / "mine").symlink_to(beside)
    [state] = (service.folder / "submissions").glob("*")
    document = json.loads((state / "submission.json").read_text())
    other = service.folder / "submissions" / ("2" * 32)
    other.mkdir()
    path = os.path.relpath(beside, service.folder / "runs")
    (other / "submission.json").write_text(json.dumps({**document, "run_id": path}))
    aged(service, 40)
    collect_garbage(service.folder, open_store(), before=time.time() - 30 * 86400)
    assert not (service.folder / "runs" / run).exists()
    assert (beside / "thesis.txt").read_text() == "mine"


def test_chunks_go_the_longest_unread_first(tmp_path):
    cache = ChunkCache(open_chunk_store(str(tmp_path)))
    names = []
    for number in range(5):
        data = bytes([number]) * 100
        names.append(digest_of_chunk(data))
        cache.put(names[-1], data)
        path = tmp_path / "chunks" / names[-1][:2] / names[-1]
        os.utime(path, (1000 + number, 1000 + number))
    assert trim_chunks(tmp_path, most_bytes=250) == 300
    assert [cache.has(each) for each in names] == [False, False, False, True, True]
    assert trim_chunks(tmp_path, most_bytes=250) == 0


def test_a_submission_beyond_an_accounts_part_of_the_disk_moves_nothing(
    tmp_path, airflow_home, project, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__TRAINING__CLOUD_ACCOUNT_GB", "1")
    service = LoopbackService(tmp_path / "service")
    sent(service, project)
    whole = service.folder / "content" / "whole"
    before = {*whole.glob("*/*")}
    large = next(each for each in before if each.stat().st_size == 256 * 200)
    os.truncate(large, 10**9)  # as if much had been sent before
    (project / "more.py").write_text("width = 4\n" * 2000)
    with pytest.raises(InputError) as refused:
        sent(service, project)
    [problem] = refused.value.problems
    assert problem.code == "quota"
    assert "bytes of ada" in problem.message
    assert "cloud gc" in problem.hint
    came = {*whole.glob("*/*")} - before  # what describes it, and nothing of it
    assert all(each.stat().st_size < 20_000 for each in came)


def test_many_submissions_at_once_never_exceed_an_accounts_part_of_the_disk(
    tmp_path, airflow_home, project, monkeypatch
):
    service = LoopbackService(tmp_path / "service")
    sent(service, project)
    kept = service.submissions.content.account_bytes("ada")
    prepared = []
    for number in range(4):
        (project / "more.py").write_text(f"x = {number}\n" * 1700)
        each = captured(project)
        sources = {
            sha256: source if isinstance(source, bytes) else source.read_bytes()
            for sha256, source in each.sources.items()
        }
        prepared.append((replace(each.request, key=str(number) * 64), sources))
    room = kept + 25_000  # for two of them, and what describes all of them
    service.submissions._room.most_bytes = room
    client, let_in, refused = service.client(), [], []
    for request, sources in prepared:
        sizes = {sha256: len(source) for sha256, source in sources.items()}
        answer = client.submit(request)
        for pack in plan_packs(answer.missing, sizes):
            client.send(answer.id, pack, sources)
        try:  # none has sent its content yet
            let_in.append((client.submit(request), sizes, sources))
        except InputError as error:
            refused += [each.code for each in error.problems]
    assert (len(let_in), refused) == (2, ["quota", "quota"])
    for answer, sizes, sources in let_in:
        for pack in plan_packs(answer.missing, sizes):
            client.send(answer.id, pack, sources)
    assert service.submissions.content.account_bytes("ada") <= room


def test_the_command_says_what_would_go(service, project):
    run = sent(service, project)
    aged(service, 40)
    words = ["cloud", "gc", "--folder", str(service.folder), "-o", "json"]
    process = cloud(*words[1:], "--dry-run", cwd=service.folder)
    code, out, said = done(process)
    assert code == 0, said
    rows = json.loads(out)["removed"]
    assert [row["name"] for row in rows if row["kind"] == "run"] == [run]
    assert (service.folder / "runs" / run).exists()
