"""Weights, gradients and optimizer states on one device, by precision and ZeRO stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.strategy import Precision

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesPerParameter:
    """What one parameter takes on a device that shares nothing with its replicas."""

    weights: float
    gradients: float
    optimizer: float


FULL_PRECISION = BytesPerParameter(weights=4.0, gradients=4.0, optimizer=8.0)
"""fp32 weights, gradients and the two moments of Adam."""


def bytes_per_parameter(
    precision: Precision, mixed: Mapping[str, BytesPerParameter]
) -> BytesPerParameter:
    """Bytes per parameter of training with Adam, by precision.

    Mixed precision keeps weights to compute with (2 bytes), the weights and two moments in fp32 (12),
    and gradients: 16 bytes or more (Micikevicius et al. 2018), 18 in Megatron-LM, which adds gradients
    up in fp32 (Korthikanti et al. 2022).

    Args:
        precision: of the training step; fp8 keeps its states as bf16 does.
        mixed: what the runtime keeps in `fp16` and in `bf16`.
    """
    if precision in ("fp32", "tf32"):
        return FULL_PRECISION
    return mixed["fp16" if precision == "fp16" else "bf16"]


def model_states(
    elements: Floats, each: BytesPerParameter, *, zero: npt.NDArray[np.int64], replicas: Floats
) -> Floats:
    """Return the bytes of weights, gradients and optimizer states on one device, shape (3, n).

    ZeRO parts the optimizer states (stage 1), also the gradients (2), also the weights (3) among the
    replicas (Rajbhandari et al. 2020, figure 1).

    Args:
        elements: parameters of the device that holds all of them, shape (n,).
        each: bytes for each of them.
        zero: stage, shape (n,).
        replicas: how many devices hold the same parameters, shape (n,).
    """
    whole = np.array([each.weights, each.gradients, each.optimizer])[:, None] * elements
    first_split_at = np.array([3, 2, 1])[:, None]
    return whole / np.where(zero >= first_split_at, replicas, 1.0)
