"""Products whose rows do not begin at multiples of 16 bytes take several times as long on tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.cost.roofline import kernel_seconds
from airflow_training.planning.sources.clusters import device
from airflow_training.planning.view.program import Compute


def seconds(columns: int, precision: str) -> float:
    product = Compute(
        name="logits",
        kind="matmul",
        phase="forward",
        flops=2.0 * 16384 * columns * 768,
        read_bytes=0.0,
        written_bytes=0.0,
        gemm=(1.0, 16384.0, float(columns), 768.0),
    )
    found = kernel_seconds(
        [product], rows=1, device=device("H200"), precision=precision, constants=FROZEN
    )
    return float(np.asarray(found)[0, 0])


@pytest.mark.parametrize(("columns", "slower"), [(50264, 1.0), (50260, 3.0), (50257, 8.0)])
def test_a_vocabulary_that_is_no_multiple_of_eight_is_dear_in_bf16(columns, slower):
    ratio = seconds(columns, "bf16") / seconds(50304, "bf16")
    assert ratio == pytest.approx(ratio) and ratio >= 0.9 * slower
    if slower == 1.0:
        assert ratio < 1.05


def test_fp32_does_not_use_tensor_cores():
    assert seconds(50257, "fp32") / seconds(50304, "fp32") < 1.05
