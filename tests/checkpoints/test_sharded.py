"""FSDP2: every rank saves its shards; other numbers of ranks read them, or are told why they cannot."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from airflow_training.checkpoints import reading, tree
from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.exporting import full_state
from airflow_training.checkpoints.torch_state import TrainingObjects, capture
from tests.checkpoints.training import Rank, digest_of, noted, processes

pytestmark = pytest.mark.e2e


def network(seed: int) -> nn.Sequential:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    # 5 and 7 do not divide by 2 or 4: some ranks hold less than others, or nothing
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3, bias=False))


class Sharded:
    """A model that is split over the ranks, or whole where there is one, and its optimizer."""

    def __init__(self, me: Rank, seed: int) -> None:
        self.model = network(seed)
        if me.world > 1:
            mesh = init_device_mesh("cpu", (me.world,))
            fully_shard(self.model[0], mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3)

    def given(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}

    def step(self) -> None:
        loss = self.model(torch.randn(4, 5)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()

    def whole(self) -> str:
        """Return the digest of all parameters and moments, put together from all ranks."""

        def full(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: full(item) for key, item in value.items()}
            return value.full_tensor() if isinstance(value, DTensor) else value

        return digest_of(
            {"model": full(self.model.state_dict()), "optimizer": full(self.optimizer.state_dict())}
        )


def go_on(me: Rank, steps: int, seed: int) -> None:
    """Restore, train `steps` more, save; note the whole state before and after, and this rank's own."""
    me.join()
    training = Sharded(me, seed)
    checkpointer = Checkpointer(**training.given(), root=me.folder / "root", every={"steps": 100})
    start = checkpointer.restore()
    me.note(start=start, whole=training.whole())
    for step in range(start, start + steps):
        training.step()
        checkpointer.step(step)
    checkpointer.close()
    me.note(whole=training.whole(), own=digest_of(capture(TrainingObjects(**training.given()))))
    me.leave()


def test_ranks_that_are_as_many_go_on_bit_for_bit(tmp_path):
    assert processes(go_on, 2, tmp_path / "whole", 8, 0) == [0, 0]
    assert processes(go_on, 2, tmp_path / "parts", 3, 0) == [0, 0]
    assert processes(go_on, 2, tmp_path / "parts", 5, 1) == [0, 0]
    for rank in (0, 1):
        assert noted(tmp_path / "parts", rank)[-1] == noted(tmp_path / "whole", rank)[-1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (2, 1),
        (2, 3),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in ((1, 2), (4, 2), (2, 4), (4, 3))),
    ],
)
def test_another_number_of_ranks_has_the_same_whole_state(before, after, tmp_path):
    assert processes(go_on, before, tmp_path, 3, 0) == [0] * before
    saved = noted(tmp_path, 0)[-1]["whole"]
    assert processes(go_on, after, tmp_path, 1, 1) == [0] * after
    restored = noted(tmp_path, 0)[2]
    assert restored == {"start": 3, "whole": saved}


def test_what_ranks_saved_apart_can_be_put_together_without_them(tmp_path):
    assert processes(go_on, 4, tmp_path, 3, 0) == [0] * 4
    root = str(tmp_path / "root")
    state = full_state(root, reading.find(root, step=3))
    assert (
        digest_of({k: state[k] for k in ("model", "optimizer")}) == noted(tmp_path, 0)[-1]["whole"]
    )


class OwnPart:
    """An optimizer that keeps another part of its state on every rank, and does not say so."""

    def __init__(self, rank: int) -> None:
        self.part = torch.full((3,), float(rank))

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"part": self.part}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.part = state["part"]


def save_own_part(me: Rank) -> None:
    me.join()
    optimizer = OwnPart(me.rank)
    checkpointer = Checkpointer(optimizer=optimizer, root=me.folder / "root")
    start = checkpointer.restore()
    me.note(start=start, part=optimizer.part.tolist())
    checkpointer.save(start)
    me.leave()


def test_what_differs_without_a_placement_fits_only_as_many_ranks(tmp_path):
    assert processes(save_own_part, 2, tmp_path) == [0, 0]
    assert processes(save_own_part, 2, tmp_path) == [0, 0]
    assert noted(tmp_path, 1)[-1] == {"start": 1, "part": [1.0] * 3}
    checkpointer = Checkpointer(optimizer=OwnPart(0), root=tmp_path / "root")
    with pytest.raises(
        CheckpointError, match=r"different bytes of optimizer/\d+ .*go on with 2 ranks"
    ):
        checkpointer.restore()


def test_a_tensor_of_another_shape_is_refused(tmp_path):
    assert processes(go_on, 2, tmp_path, 1, 0) == [0, 0]
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3, bias=False))
    checkpointer = Checkpointer(
        model=model, optimizer=torch.optim.AdamW(model.parameters()), root=tmp_path / "root"
    )
    with pytest.raises(
        CheckpointError, match=r"model.0.weight: saved as \(7, 5\), the script has \(9, 5\)"
    ):
        checkpointer.restore()


def test_fsdp1_is_refused_with_what_to_use():
    class FullyShardedDataParallel(nn.Module):
        pass

    with pytest.raises(CheckpointError, match=r"use torch\.distributed\.fsdp\.fully_shard"):
        capture(TrainingObjects(model=nn.Sequential(FullyShardedDataParallel())))


def test_shards_are_named_in_the_document():
    whole = torch.arange(12.0).reshape(4, 3)
    document, _ = tree.encode({"model": {"w": tree.Shard(whole[1:3], (4, 3), (1, 0))}})
    ((path, entry),) = tree.shards(document)
    assert path == ("model", "w")
    assert (entry["whole"], entry["offset"], entry["shape"]) == ([4, 3], [1, 0], [2, 3])
