"""How operators can be split, as data: the type of a rule and the registry that users extend.

A rule gives every dimension of an operator's tensors a *factor*. Dimensions that run together share
one: a matrix multiplication has the factors m, n and k. Splitting an operator along a factor splits all
tensors that have it; a result that lacks it becomes partial; an operand that lacks it must be whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from airflow_training.planning.view.computation import Operator, Tensor
from airflow_training.planning.view.program import Collective

Tensors = Mapping[str, Tensor]
Maker = Callable[[Operator, Tensors], "OperatorRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCommunication:
    """Communication that an operator does inside, when it is split along `factor`."""

    factor: str
    collective: Collective
    payload: tuple[str, ...]
    """Names of the tensors that it moves."""
    forward: float = 1.0
    """How often the forward operator moves the payload, and below how often its gradient does."""
    backward: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRule:
    """What splitting, pricing and differentiating one operator need to know."""

    inputs: tuple[tuple[str, ...], ...]
    """A factor per dimension of every input; "" for a dimension that is broadcast or stays whole.

    A dimension in which rows of several factors lie in any order joins them (`batch*sequence`).
    """
    outputs: tuple[tuple[str, ...], ...]
    kind: str = "elementwise"
    """The class of kernel, which the cost model has a rate for."""
    flops: float = 1.0
    """Operations per point of the box that the factors span."""
    backward_flops: float | None = None
    """The same for the gradient; None: twice `flops`."""
    whole: frozenset[str] = frozenset()
    """Factors that cannot be split."""
    depth: float = 1.0
    """What a matrix multiplication sums over besides factors (a convolution's window)."""
    separate: bool = False
    """Every input has a gradient operator of its own, with `flops` per point."""
    exchanges: tuple[OperatorCommunication, ...] = ()
    saves: frozenset[str] = frozenset()
    """Names of the inputs and outputs that the gradient reads."""
    passes: frozenset[str] = frozenset()
    """Inputs whose gradient is the first output's gradient itself."""
    sparse: frozenset[str] = frozenset()
    """Inputs of which only as much is touched as the first output is long."""
    once: frozenset[str] = frozenset()
    """Inputs that enter one term only, where the result is made as a sum over devices (a bias)."""
    free: bool = False
    """It moves no data: another look at the same memory."""
    in_place: bool = False
    """The gradients of its inputs are written over the inputs that were kept for them."""
    linear: bool = False
    """Applied to the terms of a sum it gives the terms of the result."""
    known: bool = True
    """False for the rule of a kind that has none: nothing is split."""

    def factors(self) -> tuple[str, ...]:
        """Return every factor once, in the order in which the operands name them."""
        named = (f for dims in (*self.inputs, *self.outputs) for f in dims if f and "*" not in f)
        return tuple(dict.fromkeys(named))


_MAKERS: dict[str, Maker] = {}


def rule(*kinds: str) -> Callable[[Maker], Maker]:
    """Register a function that makes the rule of these kinds of operators; the last one wins.

    It is given the operator and all tensors of its view by name.
    """

    def register(maker: Maker) -> Maker:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return register


def kinds() -> tuple[str, ...]:
    """Return the kinds that have a rule, sorted."""
    return tuple(sorted(_MAKERS))


def rule_of(
    operator: Operator, tensors: Tensors, operators: Mapping[str, Operator]
) -> OperatorRule:
    """Return the rule of an operator; that of a gradient follows from its forward operator.

    Args:
        operator: The operator.
        tensors: All tensors of its view by name.
        operators: All operators of its view by name.

    """
    maker = _MAKERS.get(operator.kind)
    if maker is not None:
        return maker(operator, tensors)
    forward = operators.get(operator.of)
    if forward is not None and "like" in operator.attributes:
        return _gradient_rule(operator, forward, rule_of(forward, tensors, operators))
    return _unknown(operator, tensors)


def _gradient_rule(operator: Operator, forward: Operator, of: OperatorRule) -> OperatorRule:
    """A gradient's tensors lie in the same box as the forward tensors that they are `like`."""
    boxes = dict(zip((*forward.inputs, *forward.outputs), (*of.inputs, *of.outputs), strict=True))
    like: tuple[str, ...] = operator.attributes["like"]
    names = (*operator.inputs, *operator.outputs)
    sparse = {name for name, as_in in zip(names, like, strict=True) if as_in in of.sparse}
    return replace(
        of,
        inputs=tuple(boxes[name] for name in like[: len(operator.inputs)]),
        outputs=tuple(boxes[name] for name in like[len(operator.inputs) :]),
        flops=_gradient_flops(of),
        exchanges=tuple(
            replace(exchange, forward=exchange.backward, backward=0.0)
            for exchange in of.exchanges
            if exchange.backward
        ),
        saves=frozenset(),
        passes=frozenset(),
        once=frozenset(),
        free=of.free and len(forward.outputs) == 1,  # parts are copied into one again
        sparse=frozenset(sparse),
    )


def _gradient_flops(of: OperatorRule) -> float:
    if of.separate:
        return of.flops
    return 2 * of.flops if of.backward_flops is None else of.backward_flops


def _unknown(operator: Operator, tensors: Tensors) -> OperatorRule:
    inputs = tuple(("",) * len(tensors[name].shape) for name in operator.inputs)
    outputs = tuple(("",) * len(tensors[name].shape) for name in operator.outputs)
    saves = frozenset((*operator.inputs, *operator.outputs))
    return OperatorRule(inputs=inputs, outputs=outputs, saves=saves, known=False)
