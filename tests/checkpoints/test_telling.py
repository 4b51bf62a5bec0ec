"""What a training process tells about itself arrives as states of subtasks, whichever lines are seen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.checkpoints.generation_state import read_generation_state
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import marker_key
from airflow_training.checkpoints.records import Marker
from airflow_training.checkpoints.reporting import ProcessReporter, newest_environment, own_group
from airflow_training.control.subtasks import apply_reports, new_subtasks, rank_states
from airflow_training.runtimes.progress import progress_of
from tests.builders import restorable
from tests.checkpoints.groups import open_group, save, train, train_together
from tests.checkpoints.stores import DictStore


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "attempt" / "progress.jsonl"
    path.parent.mkdir()
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(path))
    return path


def lines(progress: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["subtask"] for line in progress.read_text().splitlines()]


def standing_of(progress: Path):
    """Return the subtasks after everything in the file, as the controller reads it."""
    said = progress_of(NewestProgress(progress).poll())
    assert said is not None
    return apply_reports(new_subtasks(1), said.subtasks)


def test_a_group_tells_every_state_it_goes_through(tmp_path, progress):
    train(Group.open(str(tmp_path / "c")), 5)
    said = lines(progress)
    assert [each["state"] for each in said] == [
        "STARTING", "RUNNING", "SAVING", "SAVED", "RUNNING",
    ]  # fmt: skip
    assert [each["sequence"] for each in said] == [1, 2, 3, 4, 5]
    assert {each["generation"] for each in said} == {1}
    seen = standing_of(progress)
    assert (rank_states(seen), restorable(seen)) == (["RUNNING"], 5)


def test_what_is_restored_is_verified_in_the_new_generation(tmp_path, progress):
    train(Group.open(str(tmp_path / "c")), 5)
    Group.open(str(tmp_path / "c"))
    said = [each for each in lines(progress) if each["generation"] == 2]
    assert [(each["state"], each.get("step")) for each in said] == [
        ("STARTING", None), ("RESTORING", 5), ("RUNNING", 5),
    ]  # fmt: skip
    assert restorable(standing_of(progress)) == 5


def test_a_save_that_fails_is_over_and_verifies_nothing(tmp_path, progress):
    group = Group.open(str(tmp_path / "c"))
    group.fail(7, "no room")
    assert group.commit(7, deadline=5.0) is None
    train(group, 8)
    group.write(9, {}, document={})
    group.fail(9, "no room")
    assert group.commit(9, deadline=5.0) is None
    seen = standing_of(progress)
    assert (rank_states(seen), restorable(seen)) == (["RUNNING"], 8)


def test_a_checkpoint_that_is_rejected_is_told_by_one_rank_with_its_file(progress):
    store = DictStore()
    newest = train_together(open_group(store, 2), 10, 20, 30)[-1]
    damaged = newest.ranks[1].shards[0].key
    store.objects[damaged] = b"?" + store.objects[damaged][1:]
    open_group(store, 2)
    told = {each["rank"]: each for each in lines(progress) if each["generation"] == 2}
    assert "rejected" not in told[1]
    [rejected] = told[0]["rejected"]
    assert rejected["step"] == 30
    assert damaged in rejected["why"]
    assert told[0]["state"] == "RUNNING", "and the state goes on"


@pytest.mark.parametrize("kind", ["manifests", "fences"])
def test_a_document_that_is_damaged_is_told_before_anything_is_restored(progress, kind):
    store = DictStore()
    train(Group.open(store), 10, 20)
    key = max(key for key in store.objects if key.startswith(kind))
    store.objects[key] = b"{}"
    Group.open(store)
    [first] = [each for each in lines(progress) if each["generation"] == 2][1]["rejected"][:1]
    assert first.get("step") == (20 if kind == "manifests" else None)
    assert key in first["why"]


def test_the_newest_rejections_are_told_with_every_state_and_no_story_is_too_long(progress):
    telling = ProcessReporter(rank=0, world=1, generation=1)
    telling.say("STARTING")
    for step in range(12):
        telling.reject(step, "x" * 1000)
    telling.say("RUNNING")
    said = lines(progress)
    assert [each["sequence"] for each in said] == [1] * 13 + [2]
    assert [each["step"] for each in said[-1]["rejected"]] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert {len(each["why"]) for each in said[-1]["rejected"]} == {300}


def test_only_the_newest_line_says_every_step_that_counts(progress):
    telling = ProcessReporter(rank=0, world=1, generation=1)
    for step in range(1, 8):
        telling.say("SAVED", step=step, verified=step)
    assert lines(progress)[-1]["verified"] == [4, 5, 6, 7]
    progress.write_text(progress.read_text().splitlines()[-1] + "\n")
    assert standing_of(progress).full == (4, 5, 6, 7)


def test_nothing_is_told_where_nobody_listens(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINING_PROGRESS_FILE", raising=False)
    ProcessReporter(rank=0, world=1, generation=1).say("RUNNING")
    monkeypatch.setenv("TRAINING_PROGRESS_FILE", str(tmp_path / "no" / "folder"))
    ProcessReporter(rank=0, world=1, generation=1).say("RUNNING")
    assert newest_environment() is None


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param('{"group": "instance"}', "worker-2", id="alone"),
        pytest.param('{"group": "job"}', "", id="together"),
        pytest.param("", "", id="no-controller"),
        pytest.param("[", "", id="broken"),
        pytest.param("[]", "", id="no-object"),
    ],
)
def test_an_instance_that_saves_alone_is_a_group_of_its_own(order, expected):
    environ = {
        "TRAINING_CHECKPOINT": order,
        "TRAINING_ROLE": "worker",
        "TRAINING_INDEX": "2",
    }
    assert own_group(environ) == expected


# the record of the environment -----------------------------------------------------------------------
def test_marker_manifest_and_line_name_the_record_of_the_save(tmp_path, progress):
    records = progress.with_name("environment.jsonl")
    records.write_text('{"number": 0}\n{"number": 1}\n')
    digest = "sha256:" + hashlib.sha256(b'{"number": 1}').hexdigest()
    group = Group.open(str(tmp_path / "c"))
    manifest = save(group, 5)
    assert manifest is not None
    key = marker_key(manifest.save, 0)
    assert Marker.from_bytes(group.store.read(key), what=key).environment == digest
    assert manifest.ranks[0].environment == digest
    assert [each["environment"] for each in lines(progress) if each["state"] == "SAVED"] == [digest]


# without any line ----------------------------------------------------------------------------------------
def test_documents_alone_say_who_has_which_step(tmp_path):
    root = str(tmp_path / "c")
    assert read_generation_state(root).generation == 0
    group = Group.open(root)
    train(group, 5, 6)
    group.write(7, {}, document={})
    found = read_generation_state(root)
    assert (found.generation, found.world) == (1, 1)
    assert found.verified == {5: {0}, 6: {0}, 7: {0}}
    Group.open(root, not_after=5)
    found = read_generation_state(root)
    assert found.generation == 2
    assert found.verified == {5: {0}}
