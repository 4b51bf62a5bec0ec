"""The state of PyTorch training as a tree, and back into the living objects. Imports torch inside functions only.

`TrainingObjects` is what the user gave. `capture` returns references, nothing is copied; `apply` changes the objects in
place. Tensors that are split over ranks (DTensor, so FSDP2 and tensor parallel) are captured as this rank's
`Shard`; `apply` is given them as the ranks need them now, see `resharding`.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.tree import Shard

__all__ = [
    "NOT_GIVEN",
    "TrainingObjects",
    "apply",
    "apply_random",
    "capture",
    "iterate_objects",
    "missing_arguments",
    "random_state",
    "shard_of",
    "templates",
]

Tree: TypeAlias = Any


class _Unset:
    def __repr__(self) -> str:
        return "not given"


NOT_GIVEN: Any = _Unset()
"""Default of each part: `None` says that there is none, and is not warned of."""

_DEVICES = ("cuda", "xpu", "npu", "mlu", "mps")

_MEANS = {
    "model": "the parameters",
    "optimizer": "its moments and step counts",
    "scheduler": "the learning-rate schedule",
    "scaler": "the gradient scaler of mixed precision",
    "data": "the position in the data",
    "ema": "averaged weights",
}


@dataclass(frozen=True, kw_only=True)
class TrainingObjects:
    """What is saved: objects with `state_dict` and `load_state_dict`, or lists and dicts of such objects.

    `extra` is a dict that is changed in place on restoring: values, such objects, or random generators of
    torch and numpy. `files` are paths whose content goes along.
    """

    model: Any = NOT_GIVEN
    optimizer: Any = NOT_GIVEN
    scheduler: Any = NOT_GIVEN
    scaler: Any = NOT_GIVEN
    data: Any = NOT_GIVEN
    ema: Any = NOT_GIVEN
    extra: MutableMapping[str, Any] = field(default_factory=dict)
    files: Sequence[str | os.PathLike[str]] = ()

    def given(self) -> dict[str, Any]:
        """Return the parts that have a state, by name."""
        named = {name: getattr(self, name) for name in _MEANS}
        return {k: v for k, v in named.items() if v is not None and v is not NOT_GIVEN}


def missing_arguments(parts: TrainingObjects) -> list[str]:
    """Parts of the state that were not given, each with the consequence of leaving it out."""
    absent = [name for name in _MEANS if getattr(parts, name) is NOT_GIVEN]
    driven = any(
        hasattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched")
        for optimizer in iterate_objects(parts.optimizer)
    )
    notes = {"scheduler": " (one drives this optimizer)"} if driven else {}
    return [f"{name}: found none given, {_MEANS[name]}{notes.get(name, '')}" for name in absent]


def capture(parts: TrainingObjects) -> dict[str, Tree]:
    """Return the whole state but `step`, by section; tensors are those of the living objects."""
    state: dict[str, Tree] = {}
    buffers: dict[str, Tree] = {}
    for name, part in parts.given().items():
        state[name], own = _capture(part)
        if own:
            buffers[name] = own
    if parts.extra:
        state["extra"] = {key: _capture_extra(value) for key, value in parts.extra.items()}
    if parts.files:
        state["files"] = {os.fspath(path): _file_bytes(path) for path in parts.files}
    if buffers:
        state["buffers"] = buffers
    state["rng"] = random_state()
    return dict(sorted(state.items()))


def apply(parts: TrainingObjects, state: Mapping[str, Tree]) -> None:
    """Put a captured state into the objects; random numbers are `apply_random`'s, and come last.

    Raises `CheckpointError`, which names the part, where state and objects do not fit together.
    """
    given = parts.given()
    lacking = [name for name in given if name not in state]
    surplus = [name for name in _MEANS if name in state and name not in given]
    if lacking or surplus:
        both = [f"it has no {', '.join(lacking)}"] if lacking else []
        both += [f"{', '.join(surplus)} of it was given nothing to go to"] if surplus else []
        raise CheckpointError(f"the checkpoint was saved by another script: {'; '.join(both)}")
    buffers = state.get("buffers", {})
    for name, part in given.items():
        _fit(name, part, state[name], buffers.get(name, {}))
    for key, value in state.get("extra", {}).items():
        _apply_extra(parts.extra, key, value)
    for path, content in state.get("files", {}).items():
        if content is not None:
            _write_file(Path(path), content)


def templates(parts: TrainingObjects) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield path in the captured state and living tensor, for all that may be split over ranks.

    The state of an optimizer does not exist before its first step: it is split as its parameter is.
    """
    for name, part in parts.given().items():
        for path, item in _leaves(part, (name,)):
            if _is_module(item):
                yield from (((*path, key), value) for key, value in item.state_dict().items())
            elif hasattr(item, "param_groups"):
                for number, tensor in enumerate(_parameters(item)):
                    yield (*path, "state", number), tensor


def random_state() -> dict[str, Tree]:
    """Return the state of every source of random numbers that the process has: Python, numpy, torch, devices."""
    state: dict[str, Tree] = {"python": random.getstate()}
    if "numpy" in sys.modules:
        state["numpy"] = sys.modules["numpy"].random.get_state()
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        for kind, module in _used_devices(torch):
            many = hasattr(module, "get_rng_state_all")
            state[kind] = module.get_rng_state_all() if many else [module.get_rng_state()]
    return state


def apply_random(state: Mapping[str, Tree]) -> None:
    """Set every source of random numbers as it was."""
    random.setstate(state["python"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(state["torch"])
        for kind in _DEVICES:
            module = getattr(torch, kind, None)
            if kind not in state or module is None or not module.is_available():
                continue
            if hasattr(module, "set_rng_state_all"):
                module.set_rng_state_all(state[kind][: module.device_count()])
            else:
                module.set_rng_state(state[kind][0])


def _used_devices(torch: Any) -> Iterator[tuple[str, Any]]:
    for kind in _DEVICES:
        module = getattr(torch, kind, None)
        if module is None or not module.is_available():
            continue
        # asking would start a device that the training does not use, and take its memory
        if getattr(module, "is_initialized", bool)() or kind == "mps":
            yield kind, module


def _is_module(part: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(part, torch.nn.Module)


def _bare(module: Any) -> Any:
    """Return the module inside DistributedDataParallel and torch.compile: names without their prefix."""
    import torch

    while True:
        if isinstance(module, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            module = module.module
        elif hasattr(module, "_orig_mod"):
            module = module._orig_mod
        else:
            break
    for inner in module.modules():
        if type(inner).__name__ == "FullyShardedDataParallel":
            raise CheckpointError(
                "model: FullyShardedDataParallel keeps flat parameters that cannot be saved rank by rank;"
                " use torch.distributed.fsdp.fully_shard"
            )
    return module


def iterate_objects(part: Any) -> Iterator[Any]:
    """Yield every single object of a part."""
    if part is not None and part is not NOT_GIVEN:
        yield from (item for _, item in _leaves(part, ()))


def _leaves(part: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(part, Mapping):
        for key, item in part.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(part, list | tuple):
        for number, item in enumerate(part):
            yield from _leaves(item, (*path, number))
    else:
        yield path, _bare(part) if _is_module(part) else part


def _capture(part: Any) -> tuple[Tree, Tree]:
    """Return the state of a part, and apart from it the buffers of its modules: ranks differ in them.

    Of a buffer that belongs to `state_dict`, the state keeps the name, with None.
    """
    if isinstance(part, Mapping):
        both = {key: _capture(item) for key, item in part.items()}
        return {k: s for k, (s, _) in both.items()}, {k: b for k, (_, b) in both.items() if b}
    if isinstance(part, list | tuple):
        pairs = [_capture(item) for item in part]
        return [s for s, _ in pairs], {n: b for n, (_, b) in enumerate(pairs) if b}
    if not _is_module(part):
        return _with_shards(part.state_dict()), {}
    module = _bare(part)
    persistent = module.state_dict()
    buffers = dict(module.named_buffers())
    state = {
        key: None if key in buffers else _with_shards(value) for key, value in persistent.items()
    }
    return state, {key: _with_shards(value) for key, value in buffers.items()}


def _fit(name: str, part: Any, state: Tree, buffers: Tree) -> None:
    try:
        _apply(part, state, buffers)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"{name}: the saved state does not fit: {error}") from error


def _apply(part: Any, state: Tree, buffers: Tree) -> None:
    if isinstance(part, Mapping):
        for key, item in part.items():
            _apply(item, state[key], buffers.get(key, {}))
    elif isinstance(part, list | tuple):
        for number, item in enumerate(part):
            _apply(item, state[number], buffers.get(number, {}))
    elif _is_module(part):
        _apply_module(_bare(part), state, buffers)
    elif hasattr(part, "param_groups"):
        part.load_state_dict(_optimizer_state(part, state))
    else:
        part.load_state_dict(state)


def _apply_module(module: Any, state: Tree, buffers: Tree) -> None:
    import torch

    living = module.state_dict()
    named = dict(module.named_buffers())
    own = {key: value for key, value in state.items() if key not in buffers}
    both = {**own, **{key: value for key, value in buffers.items() if key in living}}
    module.load_state_dict({key: place_like(value, living.get(key)) for key, value in both.items()})
    with torch.no_grad():
        for key in buffers.keys() - living.keys():  # those that are not persistent
            if key in named:
                named[key].copy_(place_like(buffers[key], named[key]))


def _optimizer_state(optimizer: Any, state: Tree) -> Tree:
    """Return the state with split tensors as DTensors of their parameter's layout."""
    parameters = _parameters(optimizer)
    return {
        **state,
        "state": {
            number: {key: place_like(value, parameters[number]) for key, value in entry.items()}
            if isinstance(number, int) and number < len(parameters)
            else entry
            for number, entry in state["state"].items()
        },
    }


def _parameters(optimizer: Any) -> list[Any]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def place_like(value: Any, living: Any) -> Any:
    """Return a DTensor laid out as the living one for what came as `Shard`, else the value."""
    if not isinstance(value, Shard):
        return value
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        value.tensor.to(living.to_local().device),
        living.device_mesh,
        living.placements,
        run_check=False,
        shape=living.shape,
        stride=living.stride(),
    )


def _with_shards(value: Any) -> Tree:
    """Return a tree in which every DTensor is this rank's `Shard`."""
    if isinstance(value, dict) and any(_composite(item) for item in value.values()):
        return {key: _with_shards(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_with_shards(item) for item in value)
    return shard_of(value) if hasattr(value, "device_mesh") else value


def _composite(value: Any) -> bool:
    return isinstance(value, dict | list | tuple) or hasattr(value, "device_mesh")


def shard_of(tensor: Any) -> Shard:
    """Return a DTensor's local part with its place in the whole.

    Raises `CheckpointError` where that part is not one box, or still has to be summed over ranks.
    """
    if any(placement.is_partial() for placement in tensor.placements):
        raise CheckpointError(f"a tensor that is not yet summed over ranks: {tensor.placements}")
    local = tensor.to_local()
    chunks = tensor.__create_chunk_list__()
    if not local.numel():
        return Shard(local, tuple(tensor.shape), (0,) * tensor.dim())
    if len(chunks) != 1 or tuple(chunks[0].sizes) != tuple(local.shape):
        raise CheckpointError(f"a tensor whose part is not one box: {tensor.placements}")
    return Shard(local, tuple(tensor.shape), tuple(chunks[0].offsets))


def _capture_extra(value: Any) -> Tree:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Generator):
        return value.get_state()
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return value.bit_generator.state
    return _with_shards(value.state_dict()) if hasattr(value, "state_dict") else value


def _apply_extra(extra: MutableMapping[str, Any], key: str, value: Tree) -> None:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    living = extra.get(key)
    if torch is not None and isinstance(living, torch.Generator):
        living.set_state(value)
    elif numpy is not None and isinstance(living, numpy.random.Generator):
        living.bit_generator.state = value
    elif living is not None and hasattr(living, "load_state_dict"):
        living.load_state_dict(value)
    else:
        extra[key] = value


def _file_bytes(path: str | os.PathLike[str]) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None


def _write_file(path: Path, content: bytes) -> None:
    """Replace a file at once: whoever reads it sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    Path(name).replace(path)
