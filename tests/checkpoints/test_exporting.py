"""One plain file of what several ranks saved: whole tensors under their own names, and no pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors import safe_open

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.checkpointer import Checkpointer
from airflow_training.checkpoints.errors import BadCheckpoint, CheckpointError
from airflow_training.checkpoints.exporting import (
    full_model,
    full_state,
    write_safetensors,
    write_torch,
)
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.tree import Shard, encode
from tests.checkpoints.groups import SECONDS, by_ranks, open_group

WHOLE = torch.arange(15, dtype=torch.bfloat16).reshape(5, 3)
BIAS = torch.arange(6, dtype=torch.float32).reshape(2, 3).T
"""Not contiguous."""


def rows(tensor: torch.Tensor, rank: int) -> Shard:
    """Return the rows of a rank of two: three and two."""
    part = tensor[:3] if rank == 0 else tensor[3:]
    return Shard(part.clone(), tuple(tensor.shape), (3 * rank, 0))


def split(rank: int) -> dict[str, Any]:
    """Return the state of a model that is split over two ranks."""
    return {
        "buffers": {"model": {"mean": torch.ones(3), "transient": torch.zeros(9)}},
        "model": {"0.weight": rows(WHOLE, rank), "0.bias": BIAS, "mean": None},
        "optimizer": {
            "state": {0: {"exp_avg": rows(WHOLE * 2, rank), "step": torch.tensor(7.0)}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}],
        },
        "rng": {"python": (3, (rank, 2), None), "numpy": ("MT", numpy.arange(4), 1)},
    }


def saved(
    root: Path, state_of: Callable[[int], Mapping[str, Any]], *, world: int = 2, **options: Any
) -> tuple[str, Manifest]:
    """Save what each rank has; return the root and what names it."""
    groups = open_group(str(root), world)

    def save(rank: int) -> Manifest | None:
        document, blobs = encode(dict(state_of(rank)), **options)
        groups[rank].write(9, blobs, document=document)
        return groups[rank].commit(9, deadline=SECONDS)

    manifest = by_ranks(world, save)[0]
    assert manifest is not None
    return str(root), manifest


def test_a_model_that_was_split_over_ranks_is_whole_again(tmp_path: Path):
    model = full_model(*saved(tmp_path / "ckpt", split))
    assert list(model) == ["0.weight", "0.bias", "mean"]
    assert torch.equal(model["0.weight"], WHOLE)
    assert torch.equal(model["0.bias"], BIAS)


class Network(torch.nn.Module):
    """Buffers of both kinds beside its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_what_is_exported_is_what_the_model_itself_would_save(tmp_path: Path):
    model = Network()
    model.layers(torch.randn(4, 3))
    with Checkpointer(model=model, root=tmp_path / "ckpt", optimizer=None) as saver:
        saver.restore()
        manifest = saver.save(0)
    assert manifest is not None
    exported = full_model(str(tmp_path / "ckpt"), manifest)
    assert list(exported) == list(model.state_dict())
    assert all(torch.equal(exported[key], value) for key, value in model.state_dict().items())


def test_safetensors_hold_every_tensor_and_say_where_they_are_from(tmp_path: Path):
    root, manifest = saved(tmp_path / "ckpt", split)
    file = tmp_path / "all.safetensors"
    write_safetensors(full_state(root, manifest), file, about=reading.reference(root, manifest))
    with safe_open(file, "pt") as opened:
        about = opened.metadata()
        assert torch.equal(opened.get_tensor("optimizer.state.0.exp_avg"), WHOLE * 2)
        assert torch.equal(opened.get_tensor("model.0.bias"), BIAS)
        assert opened.get_tensor("rng.numpy.1").tolist() == [0, 1, 2, 3]
    assert (about["step"], about["digest"], about["uri"]) == ("9", manifest.digest, root)
    assert json.loads(about["rest"])["optimizer.param_groups"][0]["lr"] == 0.1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.safetensors", "ckpt"]


def test_torch_loads_the_file_without_running_code(tmp_path: Path):
    file = tmp_path / "all.pt"
    write_torch(full_state(*saved(tmp_path / "ckpt", split)), file)
    state = torch.load(file, weights_only=True)
    assert torch.equal(state["model"]["0.weight"], WHOLE)
    assert state["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.99)
    assert torch.equal(state["rng"]["numpy"][1], torch.arange(4))


def test_a_state_of_arrays_needs_no_torch_names(tmp_path: Path):
    state = full_state(
        *saved(tmp_path / "ckpt", lambda _: {"weights": numpy.arange(3), "step": 9}, world=1)
    )
    file = tmp_path / "all.safetensors"
    write_safetensors(state, file, about={})
    with safe_open(file, "np") as opened:
        assert opened.get_tensor("weights").tolist() == [0, 1, 2]
        assert opened.metadata() == {"rest": '{"step": 9}'}


def test_a_state_without_a_model_says_what_it_has(tmp_path: Path):
    place = saved(tmp_path / "ckpt", lambda _: {"weights": numpy.arange(3), "step": 9}, world=1)
    with pytest.raises(CheckpointError, match="has no part called model: export all"):
        full_model(*place)


def test_stages_of_a_pipeline_are_not_taken_for_a_whole_model(tmp_path: Path):
    place = saved(tmp_path / "ckpt", lambda rank: {"model": {f"{rank}.weight": WHOLE}})
    with pytest.raises(CheckpointError, match="different models"):
        full_model(*place)


def test_a_part_that_is_missing_leaves_no_hole(tmp_path: Path):
    place = saved(tmp_path / "ckpt", lambda _: {"model": {"weight": rows(WHOLE, 0)}})
    with pytest.raises(CheckpointError, match=r"only parts of model\.weight"):
        full_model(*place)


def test_what_was_pickled_is_not_loaded_and_does_not_hold_the_model_back(tmp_path: Path):
    place = saved(
        tmp_path / "ckpt",
        lambda _: {"model": {"weight": WHOLE}, "extra": Path()},
        world=1,
        allow_pickle=True,
    )
    assert torch.equal(full_model(*place)["weight"], WHOLE)
    with pytest.raises(CheckpointError, match="was pickled"):
        full_state(*place)


def test_what_is_damaged_is_not_exported(tmp_path: Path):
    root, manifest = saved(tmp_path / "ckpt", split)
    path = Path(root, manifest.ranks[1].shards[0].key)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadCheckpoint):
        full_model(root, manifest)
