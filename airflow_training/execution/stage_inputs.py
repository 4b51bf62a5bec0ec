"""The inputs of the module that stages other than the first read.

Every rank is given the whole batch, so such a stage takes them from there: torch's runtime gives inputs to the first
stage alone, and sends on only what has a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.execution.forwarding import wrap_forward

if TYPE_CHECKING:
    import torch

__all__ = ["InputFeed", "feed_later_stages", "first_stage_places", "read_given", "take_given"]

_given: list[tuple[Any, ...]] = [()]
"""Inputs of the micro-batch that runs now in this process."""


def take_given(place: int) -> Any:
    """Return an input of the micro-batch that runs now; what a traced stage calls."""
    return _given[0][place]


def feed_later_stages(traced: torch.fx.GraphModule, cut: torch.fx.Node) -> None:
    """Let every node from `cut` on take the inputs it reads by `take_given`."""
    order = {node: number for number, node in enumerate(traced.graph.nodes)}
    inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    for place, node in enumerate(inputs):
        for user in [each for each in node.users if order[each] >= order[cut]]:
            with traced.graph.inserting_before(user):
                taken = traced.graph.call_function(take_given, (place,))
            taken.meta = {**user.meta, "val": node.meta["val"]}
            user.replace_input_with(node, taken)


def first_stage_places(traced: torch.fx.GraphModule) -> list[int]:
    """Return which inputs are still read by the graph itself: those of the first stage."""
    inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    return [place for place, node in enumerate(inputs) if node.users]


def read_given(stage: torch.nn.Module) -> None:
    """Let a stage's forward pass take `given`; recomputation hands it the same again."""

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, given: tuple[Any, ...]) -> Any:
            _given[0] = given
            return forward(*args)

        return wrapped

    wrap_forward(stage, wrap)


class InputFeed:
    """Hands each stage the inputs of its micro-batches in turn: every schedule runs them in order."""

    def __init__(self) -> None:
        self._parts: Sequence[tuple[Any, ...]] = ()
        self._next: dict[int, int] = {}

    def begin(self, parts: Sequence[tuple[Any, ...]]) -> None:
        """Begin a step with the inputs of its micro-batches."""
        self._parts = parts
        self._next.clear()

    def attach(self, stage: torch.nn.Module, index: int) -> None:
        """Let a stage whose `forward` takes `given` be called without it."""

        def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any) -> Any:
                number = self._next.get(index, 0)
                self._next[index] = number + 1
                return forward(*args, given=self._parts[number])

            return wrapped

        wrap_forward(stage, wrap)
