"""Ranks that survive keep their state and give it to those that come new; where that cannot be, all restore."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from airflow_training.checkpoints import reading, torch_transfer
from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.torch_boundary import Boundary
from airflow_training.checkpoints.torch_state import TrainingObjects
from tests.checkpoints.rejoining import TOTAL, Plan, Repeatable, never_killed, run
from tests.checkpoints.test_sharded import Sharded
from tests.checkpoints.training import Rank, course, noted, processes

pytestmark = pytest.mark.e2e


def starts(folder: Path, rank: int) -> list[int]:
    return [note["start"] for note in noted(folder, rank) if "start" in note]


def reads(folder: Path, world: int) -> list[str]:
    """Return the shards that any rank read."""
    return [note["read"] for rank in range(world) for note in noted(folder, rank) if "read" in note]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the notes of three ranks that were never killed."""
    folder = tmp_path_factory.mktemp("whole") / "notes"
    run(folder, never_killed(Plan(worlds=(3,))))
    assert len(course(folder, 0)[0]) == TOTAL
    return folder


def test_newcomers_get_the_state_from_a_live_rank_and_nothing_is_read(whole, tmp_path):
    """First the last rank is killed and then the middle one, both some steps after a save."""
    killed = tmp_path / "killed"
    run(killed, Plan(worlds=(3, 3, 3), kills=[(2, 17), (1, 28)]))
    assert starts(killed, 0) == [0, 17, 28]
    assert starts(killed, 1) == [0, 17, 28]
    assert starts(killed, 2) == [0, 17, 28]
    assert reads(killed, 3) == []
    for rank in range(3):
        assert course(killed, rank) == course(whole, rank)


def test_a_single_survivor_is_enough_also_where_rank_0_is_new(tmp_path):
    """Rank 0's own buffers are lost with it: batch normalisation goes on with those of rank 1."""
    run(tmp_path / "whole", never_killed(Plan(worlds=(2,))))
    run(tmp_path / "killed", Plan(worlds=(2, 2), kills=[(0, 25)]))
    assert starts(tmp_path / "killed", 0) == [0, 25]
    assert reads(tmp_path / "killed", 2) == []
    for rank in range(2):
        assert course(tmp_path / "killed", rank)[0] == course(tmp_path / "whole", rank)[0]
    last = reading.history(str(tmp_path / "killed" / "root"))[0]
    assert (last.step, last.state) == (TOTAL, "committed")


def spoil_one_survivor(rank: int, number: int, training: Repeatable) -> None:
    """Change what no counter of torch sees."""
    if (rank, number) == (1, 1):
        next(training.network.parameters()).data.view(-1)[0] += 1


def apply_half_a_step(_: int, number: int, training: Repeatable) -> None:
    if number == 1:
        training.optimizer.step()


def write_parameters(_: int, number: int, training: Repeatable) -> None:
    if number == 1:
        with torch.no_grad():
            next(training.network.parameters()).add_(1)


def flip_a_bit_on_the_way(rank: int, number: int, _: Repeatable) -> None:
    if (rank, number) != (2, 1):
        return
    right = torch_transfer._broadcast

    def wrong(view: memoryview, **options: object) -> None:
        right(view, **options)  # type: ignore[arg-type]  # as it came
        if not bytes(view).startswith(b"{"):  # the document
            view[-1] ^= 1

    torch_transfer._broadcast = wrong


def flip_a_bit_of_the_document(rank: int, number: int, _: Repeatable) -> None:
    if (rank, number) != (2, 1):
        return
    right = torch_transfer._broadcast

    def wrong(view: memoryview, **options: object) -> None:
        right(view, **options)  # type: ignore[arg-type]  # as it came
        view[20] ^= 1

    torch_transfer._broadcast = wrong


def wrap_too_early(_: int, number: int, training: Repeatable) -> None:
    """Let DistributedDataParallel give everybody the parameters of rank 0, which is new."""
    if number == 1:
        DistributedDataParallel(training.network)


@pytest.mark.parametrize(
    ("before", "killed", "why"),
    [
        pytest.param(
            spoil_one_survivor, 2, "ranks 0 and 1 hold different model", id="survivors-that-differ"
        ),
        pytest.param(
            apply_half_a_step,
            2,
            "the optimizer was at work",
            id="half-a-step",
            marks=pytest.mark.soak,
        ),
        pytest.param(write_parameters, 2, "parameters were changed", id="parameters-written"),
        pytest.param(
            wrap_too_early,
            0,
            "parameters were changed",
            id="wrapped-too-early",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            flip_a_bit_on_the_way, 2, "what rank 2 got is not what rank 0 has", id="bit-flipped"
        ),
        pytest.param(
            flip_a_bit_of_the_document,
            2,
            "what rank 2 got is not what",
            id="bit-of-the-document",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_where_no_state_can_be_trusted_all_restore_the_newest_checkpoint(
    before, killed, why, whole, tmp_path
):
    run(tmp_path, Plan(worlds=(3, 3), kills=[(killed, 17)], before=before))
    for rank in range(3):
        assert starts(tmp_path, rank)[-1] == 10
        assert course(tmp_path, rank) == course(whole, rank)
        (warned,) = [note["warned"] for note in noted(tmp_path, rank) if "warned" in note]
        assert why in warned


@pytest.mark.parametrize("worlds", [(2, 3), (3, 2), pytest.param((2, 1), marks=pytest.mark.soak)])
def test_another_number_of_ranks_goes_on_from_the_live_state(worlds, tmp_path):
    run(tmp_path / "ranks", Plan(worlds=worlds, leave_at=17))
    for rank in range(worlds[1]):
        assert starts(tmp_path / "ranks", rank)[-1] == 17
    assert reads(tmp_path / "ranks", max(worlds)) == []
    last = reading.find(str(tmp_path / "ranks" / "root"), step=TOTAL)
    assert last.world == worlds[1]


def rejoin_sharded(me: Rank) -> None:
    me.join()
    training = Sharded(me, 0)
    checkpointer = Checkpointer(**training.given(), root=me.folder / "root", every={"steps": 2})
    checkpointer.rejoin()
    for step in range(3):
        training.step()
        checkpointer.step(step)
    me.note(start=checkpointer.rejoin())
    me.leave()


def test_state_that_is_split_over_ranks_comes_from_the_store(tmp_path):
    assert processes(rejoin_sharded, 2, tmp_path) == [0, 0]
    assert [starts(tmp_path, rank) for rank in range(2)] == [[2], [2]]


def test_without_a_whole_state_and_a_checkpoint_it_says_to_start_anew(tmp_path):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpointer = Checkpointer(model=model, optimizer=optimizer, root=tmp_path)
    assert checkpointer.rejoin() == 0
    optimizer.step()
    with pytest.raises(CheckpointError, match="start all processes anew"):
        checkpointer.rejoin()


def test_several_ranks_without_a_process_group_are_told_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    checkpointer = Checkpointer(model=torch.nn.Linear(2, 2), root=tmp_path)
    with pytest.raises(CheckpointError, match="rank 1 of 2 calls init_process_group first"):
        checkpointer.rejoin()


def test_no_step_over_nccl_is_believed_to_be_done_whatever_was_set_for_it(monkeypatch):
    """What torch averages is not waited for by it, and no machine of ours has the GPUs: only the name is told here."""
    network = torch.nn.Linear(2, 2)
    boundary = Boundary(TrainingObjects(model=network))
    boundary.mark(3)
    assert boundary.roll_back() == (3, "")
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    step, why = boundary.roll_back()
    assert step is None
    assert why.startswith("NCCL tells of failures only later")
