"""Random numbers by position: equal under any split of a training, and in any micro-batches.

What an operator draws for a sample follows from the seed, the step, the place of the sample in the step's batch, and the
operator: the module that calls it, its call and its draw within that. No generator is moved. The numbers are those of
SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators"), the same on every device.

Operators are known by what they are: those that torch tags as drawing from a generator. They are looked for, and replaced,
below everything that composes them, so that attention and user's own functions are seen as `nn.Dropout` is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_training.execution.forwarding import cuda_devices, run_eagerly, wrap_forward

if TYPE_CHECKING:
    import torch

__all__ = ["PositionStreams", "drawing_modules", "draws", "original_path"]

_USE = re.compile(r"@(\d+)")
"""torch.export calls the second use of a module `name@1`."""


@dataclass(slots=True)
class _Frame:
    """A call of a module that draws."""

    path: str
    call: int
    draws: int = 0


@dataclass(slots=True)
class _Pass:
    """How far the pass of a micro-batch over a stage is."""

    positions: range | None = None
    """Places of its samples in the batch of the step; None: it is of no step, as an evaluation, and draws as torch does."""
    calls: dict[str, int] = field(default_factory=dict)
    frames: list[_Frame] = field(default_factory=list)


class PositionStreams:
    """The random numbers of one rank's modules."""

    def __init__(self, seed: int, owners: Collection[str]) -> None:
        """Take the seed, the same on all ranks, and the paths of the modules that draw."""
        self.owners = frozenset(owners)
        self._seed = seed
        self._step = 0
        self._parts: Sequence[range] = ()
        self._next: dict[int, int] = {}
        self._pass = _Pass()
        self._mode: Any = None

    def begin(self, step: int, parts: Sequence[range]) -> None:
        """Begin a step: `parts` are the places of the samples of each micro-batch in the step's batch."""
        self._step, self._parts = step, parts
        self._next.clear()

    def attach(self, module: torch.nn.Module, *, stage: int = 0) -> None:
        """Let a module, the whole one or a stage of it, draw by position: it is called once for each micro-batch, in turn."""
        for name, inner in module.named_modules():
            if original_path(name) in self.owners:
                wrap_forward(inner, partial(self._scoped, name))

        def enter(*_: Any) -> None:
            number = self._next.get(stage, 0)
            self._next[stage] = number + 1
            self._pass = _Pass(self._parts[number] if number < len(self._parts) else None)

        module.register_forward_pre_hook(enter)

    def replayed(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward pass that draws the same when it runs again, as for recomputation."""
        step, begun = self._step, _Pass(self._pass.positions, dict(self._pass.calls))
        ran = False

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal ran
            if not ran:
                ran = True
                return forward(*args, **kwargs)
            kept = self._step, self._pass
            self._step, self._pass = step, _Pass(begun.positions, dict(begun.calls))
            try:
                return forward(*args, **kwargs)
            finally:
                self._step, self._pass = kept

        return run

    def _scoped(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        path, uses = original_path(name), _USE.findall(name)

        def run(*args: Any, **kwargs: Any) -> Any:
            here = self._pass
            if here.positions is None:
                return forward(*args, **kwargs)
            call = here.calls.get(name, 0)
            here.calls[name] = call + 1
            here.frames.append(_Frame(path, call + (int(uses[-1]) if uses else 0)))
            try:
                with self._drawing():
                    return forward(*args, **kwargs)
            finally:
                here.frames.pop()

        return run

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        if self._mode is not None:
            yield
            return
        from torch.nn.attention import SDPBackend, sdpa_kernel

        self._mode = _mode(self._draw)
        try:
            # fused attention draws inside its kernel
            with self._mode, sdpa_kernel(SDPBackend.MATH):
                yield
        finally:
            self._mode = None

    def _draw(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from airflow_training.execution.random_bits import draw_by_position

        frame, positions = self._pass.frames[-1], self._pass.positions or range(1)
        name = f"{self._seed}/{self._step}/{frame.path}/{frame.call}/{frame.draws}"
        frame.draws += 1
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "little", signed=True)
        return draw_by_position(operator, key, positions, args, kwargs)


def drawing_modules(module: torch.nn.Module, inputs: tuple[Any, ...]) -> set[str]:
    """Find which modules draw random numbers themselves, by running the whole once; it stays as it is."""
    import torch

    stack: list[str] = [""]
    found: set[str] = set()

    def note(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found.add(stack[-1])
        return operator(*args, **kwargs)

    handles = []
    for name, inner in module.named_modules():
        handles += [
            inner.register_forward_pre_hook(lambda *_, name=name: stack.append(name)),
            inner.register_forward_hook(lambda *_: stack.__delitem__(-1)),
        ]
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        generators = torch.random.fork_rng(cuda_devices([module]))
        with torch.no_grad(), generators, run_eagerly(), _mode(note):
            module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
    return found


def original_path(name: str) -> str:
    """Return a module's path in the user's module, of that in a trace."""
    return _USE.sub("", name)


def draws(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call of an operator draws from a generator: torch tags those that can."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(operator, "tags", ()):
        return False
    for place, argument in enumerate(operator._schema.arguments):
        if argument.name == "dropout_p":  # fused attention, which most models let drop nothing
            given = args[place] if place < len(args) else argument.default_value
            return bool(kwargs.get(argument.name, given) != 0)
    return True


def _mode(draw: Callable[..., Any]) -> Any:
    """Return a mode that hands operators that draw to a function, those in loops and branches too."""
    from torch._ops import HigherOrderOperator
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    class DrawMode(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if isinstance(func, HigherOrderOperator):
                return func(*tree_map(self._seen_inside, args), **kwargs)
            return draw(func, args, kwargs) if draws(func, args, kwargs) else func(*args, **kwargs)

        def _seen_inside(self, value: Any) -> Any:
            """Return a body of `cond` or `scan` that runs in this mode, and other values as they are."""
            if not callable(value):
                return value

            def body(*args: Any) -> Any:
                with self:
                    return value(*args)

            return body

    return DrawMode()  # type: ignore[no-untyped-call]  # torch's own constructor
