"""Rules of what networks are made of: normalisation, softmax, attention, embedding, loss."""

from __future__ import annotations

from airflow_training.planning.view.computation import Operator
from airflow_training.planning.view.rules.algebra import aligned
from airflow_training.planning.view.rules.registry import (
    OperatorCommunication,
    OperatorRule,
    Tensors,
    rule,
)


@rule("softmax")
def softmax(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Softmax over dimension `dim` (the last), which stays whole."""
    factors = tuple(f"d{i}" for i in range(len(tensors[operator.inputs[0]].shape)))
    dim = int(operator.attributes.get("dim", -1)) % len(factors)
    return OperatorRule(
        inputs=(factors,),
        outputs=(factors,),
        kind="softmax",
        flops=5.0,
        backward_flops=4.0,
        whole=frozenset({factors[dim]}),
        saves=frozenset(operator.outputs),
    )


@rule("norm")
def norm(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Layer or RMS norm over the last dimensions, as many as the weight (or `rank`) has."""
    shape = tensors[operator.inputs[0]].shape
    factors = aligned(shape, shape)
    weights = tuple(aligned(tensors[name].shape, shape) for name in operator.inputs[1:])
    rank = int(operator.attributes.get("rank", len(weights[0]) if weights else 1))
    return OperatorRule(
        inputs=(factors, *weights),
        outputs=(factors,),
        kind="norm",
        flops=7.0,
        whole=frozenset(factors[len(factors) - rank :]),
        saves=frozenset(operator.inputs[:2]),
    )


@rule("attention")
def attention(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Fused attention (FlashAttention) of q (batch, sequence, heads, head) with k and v.

    Scores are never written; a float32 number per row is, for the gradient, which computes the scores
    again (five products instead of two: Dao et al. 2022, arXiv:2205.14135). `causal` skips half of them.
    Split along the sequence, keys and values travel round a ring (Liu et al. 2023, arXiv:2310.01889),
    and in the gradient so do their gradients. `heads_first` is for (batch, heads, sequence, head).
    """
    query = ("batch", "sequence", "heads", "head")
    if operator.attributes.get("heads_first"):
        query = ("batch", "heads", "sequence", "head")
    share = 0.5 if operator.attributes.get("causal") else 1.0
    keys = tensors[operator.inputs[1]].shape[query.index("sequence")]
    products = 2.0 * share * keys
    ring = OperatorCommunication(
        factor="sequence",
        collective="send_recv",
        payload=operator.inputs[1:3],
        forward=1.0,
        backward=2.0,
    )
    return OperatorRule(
        inputs=(query,) * len(operator.inputs[:3])
        + tuple(("",) * len(tensors[name].shape) for name in operator.inputs[3:]),
        outputs=(query, ("batch", "heads", "sequence"))[: len(operator.outputs)],
        kind="attention",
        flops=2 * products,
        backward_flops=5 * products,
        whole=frozenset({"head"}),
        exchanges=(ring,),
        saves=frozenset((*operator.inputs, *operator.outputs)),
    )


@rule("gated")
def gated(operator: Operator, tensors: Tensors) -> OperatorRule:
    """A gate times a value: input (..., 2, n), output (..., n); SwiGLU and its kin.

    A second output of the shape of the first is the gate behind its activation, kept for the gradient
    by implementations that multiply in a kernel of its own.
    """
    factors = tuple(f"d{i}" for i in range(len(tensors[operator.outputs[0]].shape)))
    both = (*factors[:-1], "", factors[-1])
    saves = frozenset((*operator.inputs, *operator.outputs[1:]))
    return OperatorRule(
        inputs=(both,), outputs=(factors,) * len(operator.outputs), flops=5.0, saves=saves
    )


@rule("embedding")
def embedding(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Rows of a table (second input) by number; where the table is split, each device sums its hits."""
    rows = tuple(f"d{i}" for i in range(len(tensors[operator.inputs[0]].shape)))
    return OperatorRule(
        inputs=(rows, ("rows", "width")),
        outputs=((*rows, "width"),),
        kind="embedding",
        flops=0.0,
        saves=frozenset(operator.inputs[:1]),
        sparse=frozenset(operator.inputs[1:]),
    )


@rule("cross_entropy")
def cross_entropy(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Loss of logits (..., classes) against class numbers.

    Split along the classes it reduces a maximum, a sum and the logit that was asked for, each of the
    size of the loss (Shoeybi et al. 2019, arXiv:1909.08053, section 3). As in Megatron-LM, the logits
    become their softmax and then their gradient in one and the same memory.
    """
    rows = tuple(f"d{i}" for i in range(len(tensors[operator.inputs[1]].shape)))
    reduced = OperatorCommunication(
        factor="classes", collective="all_reduce", payload=operator.outputs[:1], forward=3.0
    )
    return OperatorRule(
        inputs=((*rows, "classes"), rows),
        outputs=(rows,),
        kind="loss",
        flops=6.0,
        backward_flops=3.0,
        exchanges=(reduced,),
        saves=frozenset(operator.inputs),
        in_place=True,
    )
