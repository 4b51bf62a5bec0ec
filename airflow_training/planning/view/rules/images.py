"""Rules of convolutional networks. Tensors are (batch, channels, *space); space is never split."""

from __future__ import annotations

from math import prod

from airflow_training.planning.view.computation import Operator
from airflow_training.planning.view.rules.registry import OperatorRule, Tensors, rule


@rule("conv")
def conv(operator: Operator, tensors: Tensors) -> OperatorRule:
    """A convolution with weight (out, in / groups, *window), with or without bias.

    As a matrix multiplication: m is batch and space, n the output channels, k input channels times
    window. Groups cannot be split, but for one group per channel, which goes with the channels.
    """
    weight = tensors[operator.inputs[1]].shape
    window = prod(weight[2:])
    rank = len(weight) - 2
    open_, space = ("",) * rank, tuple(f"space{i}" for i in range(rank))
    channels = tensors[operator.inputs[0]].shape[1]
    groups = channels // weight[1]
    whole = frozenset(space) | (frozenset({"out", "in"}) if groups > 1 else frozenset())
    into, out = "in", "out"
    if groups == channels == weight[0]:
        into = out = "channels"
    within = "" if groups > 1 else into
    return OperatorRule(
        inputs=(
            ("batch", into, *open_),
            (out, within, *open_),
            *(((out,),) if operator.inputs[2:] else ()),
        ),
        outputs=(("batch", out, *space),),
        kind="conv",
        flops=2.0 * window / (groups if into != out else 1),
        whole=whole,
        depth=window / (groups if into != out else 1),
        separate=True,
        once=frozenset(operator.inputs[2:]),
        saves=frozenset(operator.inputs[:2]),
    )


@rule("pool")
def pool(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Average, maximum, padding or resizing over space, of `window` elements each."""
    before = len(tensors[operator.inputs[0]].shape)
    after = len(tensors[operator.outputs[0]].shape)
    space = tuple(f"space{i}" for i in range(after - 2))
    return OperatorRule(
        inputs=(("batch", "channels", *(("",) * (before - 2))),),
        outputs=(("batch", "channels", *space),) * len(operator.outputs),
        flops=float(operator.attributes.get("window", 1)),
        whole=frozenset(space),
        saves=frozenset(operator.inputs),
    )


@rule("batch_norm")
def batch_norm(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Normalisation of each channel over batch and space; every device uses its own statistics."""
    shape = tensors[operator.inputs[0]].shape
    space = tuple(f"space{i}" for i in range(len(shape) - 2))
    box = ("batch", "channels", *space)
    vectors = tuple(("channels",) for _ in operator.inputs[1:])
    return OperatorRule(
        inputs=(box, *vectors),
        outputs=(box, *(("channels",) for _ in operator.outputs[1:])),
        kind="norm",
        flops=7.0,
        whole=frozenset(space),
        saves=frozenset(operator.inputs[:2]),
    )


@rule("group_norm")
def group_norm(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Normalisation over groups of channels and space, of each sample alone."""
    made = batch_norm(operator, tensors)
    return OperatorRule(
        inputs=made.inputs,
        outputs=made.outputs,
        kind="norm",
        flops=7.0,
        whole=made.whole | {"channels"},
        saves=made.saves,
    )
