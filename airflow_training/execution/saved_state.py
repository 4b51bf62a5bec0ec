"""The state of a split training by the names of parameters, each rank's part a box of the whole tensor.

So a checkpoint says nothing of the split that wrote it: another number of ranks in another split takes from it
what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from airflow_training.checkpoints import resharding, torch_state, tree
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.rejoin_decision import Boxes
from airflow_training.checkpoints.tree import Shard
from airflow_training.execution.loss_scale import LossScale

if TYPE_CHECKING:
    import torch

__all__ = ["SavedParts", "boxes_of", "capture_state", "load_tensors", "restore_state"]


class SavedParts(Protocol):
    """A state that was taken, whole or in parts: a `ResumePoint`, or what a live rank holds."""

    @property
    def mine(self) -> bool:
        """Whether this rank's own random numbers are in it."""

    def state(self) -> Any:
        """Return the tree of this rank's part, or of the first."""

    def parts(self) -> Iterable[tuple[Any, Mapping[str, Any]]]:
        """Document and blobs of each part."""


def boxes_of(held: Sequence[tuple[str, Any]]) -> Boxes:
    """Which part of each tensor a rank holds, by the tensor's name: what tells ranks apart that split a state."""
    parts = {name: _part(tensor) for name, tensor in held}
    return {name: (each.offset, tuple(each.tensor.shape)) for name, each in parts.items()}


def capture_state(
    held: Sequence[tuple[str, Any]],
    optimizer: torch.optim.Optimizer,
    *,
    step: int,
    loss_scale: LossScale | None = None,
    data: Any = None,
) -> dict[str, Any]:
    """Return a tree of this rank's part: parameters, buffers, optimizer state, random numbers.

    Args:
        held: parameters and buffers, each with its name; copies of one have the same.
        optimizer: whose parameters are among them.
        step: steps that are done.
        loss_scale: that of fp16.
        data: the place in the data, with a `state_dict` that is the same on all ranks; None: there is none to keep.

    """
    names = {id(tensor): name for name, tensor in held}
    return {
        "model": {name: _part(tensor) for name, tensor in held},
        "optimizer": {
            names[id(parameter)]: {
                key: _part(value) if hasattr(value, "shape") else value
                for key, value in entry.items()
            }
            for parameter, entry in optimizer.state.items()
        },
        "execution": {
            "step": step,
            "loss_scale": None if loss_scale is None else loss_scale.state_dict(),
            "groups": [
                {key: value for key, value in group.items() if key != "params"}
                for group in optimizer.param_groups
            ],
        },
        "rng": torch_state.random_state(),
        **({} if data is None else {"data": data.state_dict()}),
    }


def restore_state(
    found: SavedParts,
    held: Sequence[tuple[str, Any]],
    optimizer: torch.optim.Optimizer,
    *,
    loss_scale: LossScale | None = None,
    data: Any = None,
) -> int:
    """Fill parameters, buffers and optimizer from a state of any split; return the steps that were done.

    Raises:
        CheckpointError: it was not saved by a plan, lacks a part, a shape is another, or the optimizer has other groups of
            parameters.
        ValueError: as of `data.load_state_dict`.

    """
    import torch

    document = found.state()
    try:
        execution = document["execution"]
        place = None if data is None else document["data"]
    except KeyError as error:
        raise CheckpointError(
            "the checkpoint is of a training that no plan splits: begin a new run with another checkpoint.uri"
        ) from error
    if data is not None:
        data.load_state_dict(place)
    modules = dict(held)
    state: dict[str, Any] = {"model": {}, "optimizer": {}}
    templates: dict[tuple[Any, ...], Any] = {}
    plain: dict[tuple[str, str], Any] = {}
    wanted: dict[tuple[Any, ...], Any] = {}

    def want(path: tuple[Any, ...], dtype: torch.dtype, template: Any) -> None:
        shape = tuple(template.shape)
        empty = torch.empty((0,) * max(len(shape), 1), dtype=dtype)
        section: Any = {}
        holder = section
        for key in path[:-1]:
            holder = holder.setdefault(key, {})
        holder[path[-1]] = Shard(empty, shape, (-1,) * len(shape))
        templates[path] = template
        wanted.update(resharding.fit_state(section, {path: template}))
        target = state
        for key in path[:-1]:
            section, target = section[key], target.setdefault(key, {})
        target[path[-1]] = section[path[-1]]

    for name, tensor in modules.items():
        want(("model", name), tensor.dtype, tensor)

    def parts() -> Iterator[Any]:
        for document, blobs in found.parts():
            for path, entry in tree.shards(document):
                if path[0] == "optimizer" and path[1] in modules and path not in templates:
                    template = modules[path[1]]
                    like = tuple(entry["whole"]) == tuple(template.shape)
                    dtype = tree.decode({"$shard": entry}, blobs).tensor.dtype
                    want(path, dtype, template if like else torch.empty(tuple(entry["whole"])))
            for name, values in tree.decode(document, blobs)["optimizer"].items():
                for key, value in values.items():
                    if not isinstance(value, Shard):
                        plain[name, key] = value
            yield document, blobs

    resharding.fill_state(wanted, parts())
    with torch.no_grad():
        for name, tensor in held:
            value = state["model"][name]
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            local.copy_(value.tensor if isinstance(value, Shard) else value)
    updated = {id(each) for group in optimizer.param_groups for each in group["params"]}
    optimizer.state.clear()
    for name, tensor in held:
        if id(tensor) in updated and name in state["optimizer"]:
            optimizer.state[tensor] = {
                key: torch_state.place_like(value, tensor)
                for key, value in state["optimizer"][name].items()
            } | {key: value for (owner, key), value in plain.items() if owner == name}
    if found.mine:
        torch_state.apply_random(document["rng"])
    saved_scale = execution.get("loss_scale")  # none of another precision
    if loss_scale is not None and saved_scale is not None:
        loss_scale.load_state_dict(saved_scale)
    groups = execution["groups"]
    if len(groups) != len(optimizer.param_groups):
        raise CheckpointError(
            f"the optimizer has {len(optimizer.param_groups)} groups of parameters, the checkpoint {len(groups)}"
        )
    for group, saved in zip(optimizer.param_groups, groups, strict=True):
        group.update(saved)
    return int(execution["step"])


def load_tensors(held: Sequence[tuple[str, Any]], weights: Mapping[str, Any]) -> None:
    """Fill this rank's parts of tensors from whole ones."""
    import torch

    with torch.no_grad():
        for name, tensor in held:
            if name in weights:
                here = _part(tensor)
                ends = map(sum, zip(here.offset, here.tensor.shape, strict=True))
                box = tuple(map(slice, here.offset, ends))
                here.tensor.copy_(weights[name][box])


def _part(tensor: Any) -> Shard:
    if hasattr(tensor, "device_mesh"):
        return torch_state.shard_of(tensor)
    value = tensor.detach()
    return Shard(value, tuple(value.shape), (0,) * value.dim())
