"""What a collective adds to a training step, beside other work and other groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost import collectives
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.group import RankGroup
from airflow_training.planning.view.program import Collective, Number

Array = npt.NDArray[np.float64]


def collective_seconds(
    collective: Collective, payload_bytes: Number, group: RankGroup, constants: TimeConstants
) -> Array:
    """Return the seconds of a collective inside a training step.

    A group that leaves its nodes reaches `constants.network_efficiency` of what it reaches alone
    (nccl-tests): ranks come late, and other traffic is on the way.
    """
    alone = np.asarray(collectives.seconds(collective, payload_bytes, group))
    return np.where(np.asarray(group.nodes) > 1, alone / constants.network_efficiency, alone)


def exposed(transfer: Array, window: Array, constants: TimeConstants) -> Array:
    """Seconds that a transfer adds to a window of compute that it runs beside.

    The part that does not fit, and what the rest takes from the compute: both use the device's memory
    and some of its units (Galvatron, Miao et al. 2022, arXiv 2211.13878, measures the slow-down).
    """
    inside = np.minimum(transfer, window)
    return np.asarray(transfer - inside * (1.0 - constants.overlap_contention))
