"""Rules of mixtures of experts: choosing experts, sending rows to them and bringing them back.

Rows are tensors (experts, rows, width); a row count is the average, as if the router were balanced. A
device sorts only its own rows, so that what follows is a move from "split by rows" to "split by experts":
an all-to-all.
"""

from __future__ import annotations

from airflow_training.planning.view.computation import Operator
from airflow_training.planning.view.rules.registry import OperatorRule, Tensors, rule

ROWS = ("", "batch*sequence", "width")
TOKENS = ("batch", "sequence", "width")
CHOICE = ("batch", "sequence", "")


@rule("top_k")
def top_k(operator: Operator, tensors: Tensors) -> OperatorRule:
    """The best few of each token's scores (batch, sequence, experts), and which experts they are."""
    del tensors
    return OperatorRule(
        inputs=(TOKENS,),
        outputs=(CHOICE, CHOICE),
        flops=2.0,
        whole=frozenset({"width"}),
        saves=frozenset(operator.outputs[1:]),
    )


@rule("dispatch")
def dispatch(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Copy tokens (batch, sequence, width) to the rows of the experts chosen for them."""
    del tensors
    return OperatorRule(
        inputs=(TOKENS, CHOICE),
        outputs=(ROWS,),
        flops=0.0,
        saves=frozenset(operator.inputs[1:]),
    )


@rule("combine")
def combine(operator: Operator, tensors: Tensors) -> OperatorRule:
    """Add up the rows of each token, weighted by its scores: inputs rows, scores, choice."""
    del tensors
    return OperatorRule(
        inputs=(ROWS, CHOICE, CHOICE),
        outputs=(TOKENS,),
        flops=2.0,
        saves=frozenset(operator.inputs),
    )
