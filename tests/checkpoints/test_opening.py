"""A process opens its group as its job says, or as it says itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_training.checkpoints import open_group, reading
from airflow_training.checkpoints.errors import CheckpointError
from tests.checkpoints.groups import assert_is_state_of, by_ranks, train


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRAINING_CHECKPOINT", "RANK", "WORLD_SIZE", "TRAINING_RANK"):
        monkeypatch.delenv(name, raising=False)


def told(root: Path, **more: object) -> str:
    return json.dumps({"root": str(root), "incarnation": "0.0.0", "order": 1, **more})


def test_without_a_job_and_a_root_there_is_none():
    assert open_group() is None


def test_a_script_says_where(tmp_path):
    group = open_group(tmp_path)
    assert group is not None
    assert group.base is None
    train(group, 1, 2)
    again = open_group(tmp_path)
    assert again is not None
    assert again.base is not None
    assert again.base.step == 2
    assert_is_state_of(again, again.base)


def test_ranks_that_share_nothing_but_the_store_open_it_together(tmp_path):
    groups = by_ranks(2, lambda rank: open_group(tmp_path, rank=rank, world=2))
    assert [group and (group.rank, group.world, group.generation) for group in groups] == [
        (0, 2, 1),
        (1, 2, 1),
    ]


def test_what_the_job_says_counts(tmp_path, monkeypatch):
    group = open_group(tmp_path / "job")
    assert group is not None
    train(group, 1, 2, 3)
    resume = {"kind": "latest", "not_after": 2}
    monkeypatch.setenv("TRAINING_CHECKPOINT", told(tmp_path / "job", resume=resume, keep=9))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    later = open_group(tmp_path / "elsewhere")
    assert later is not None
    assert later.base is not None
    assert later.base.step == 2
    assert not (tmp_path / "elsewhere").exists()


def test_the_checkpoint_of_another_training_is_not_passed_over_in_silence(tmp_path, monkeypatch):
    first = open_group(tmp_path / "first")
    assert first is not None
    (manifest,) = train(first, 6)
    initial = reading.reference(str(tmp_path / "first"), manifest)
    monkeypatch.setenv("TRAINING_CHECKPOINT", told(tmp_path / "second", initial=initial))
    with pytest.raises(CheckpointError, match=r"begins with step 6 of .*first.*restore\(\) reads"):
        open_group()
