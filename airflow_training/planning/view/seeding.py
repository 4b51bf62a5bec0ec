"""The splits that the names of a view's dimensions ask for, before anything is propagated."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.labels import AxisSeed

SPLIT_WEIGHTS = {
    "heads": "tp",
    "kv_heads": "tp",
    "heads+kv_heads": "tp",
    "ffn": "tp",
    "vocab": "tp",
    "columns": "tp",
    "classes": "tp",
    "experts": "ep",
}
"""Which mesh axis splits a dimension of a parameter, by its name."""
SPLIT_INPUTS = {"batch": "ep", "sequence": "cp"}
STREAM = ("batch", "sequence", "hidden")
"""The activations that sequence parallelism splits (Korthikanti et al. 2022, arXiv:2205.05198)."""


def seeds(view: ComputationView, *, sequence_parallel: bool) -> Iterator[AxisSeed]:
    """Yield the known splits over the mesh axes tp, cp and ep.

    Parameters come first (their split is what makes tensor and expert parallelism), then the inputs'
    batch and sequence, then the residual stream.
    """
    for tensor in view.tensors.values():
        for dim, axis in enumerate(tensor.axes):
            if tensor.kind == "parameter" and axis in SPLIT_WEIGHTS:
                yield AxisSeed(tensor.name, SPLIT_WEIGHTS[axis], dim, 0)
            elif tensor.kind == "input" and axis in SPLIT_INPUTS:
                yield AxisSeed(tensor.name, SPLIT_INPUTS[axis], dim, 1)
        if sequence_parallel and tensor.axes == STREAM:
            yield AxisSeed(tensor.name, "tp", STREAM.index("sequence"), 2)
