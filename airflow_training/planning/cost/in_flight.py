"""How many micro-batches a pipeline stage keeps activations of at once, by schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.strategy import Schedule

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def micro_batches_in_flight(
    schedule: Schedule,
    *,
    stage: int | Counts,
    stages: int | Counts,
    virtual_stages: Counts,
    micro_batches: Counts,
) -> Floats:
    """Return the most micro-batches of which a stage keeps activations, shape of `micro_batches`.

    A stage of `virtual_stages` chunks keeps parts of micro-batches, hence the fractions.

    - GPipe runs every forward pass before the first backward pass (Huang et al. 2019): all of them.
    - 1F1B: as many as stages follow, and its own (Narayanan et al. 2019, PipeDream-Flush).
    - Interleaved 1F1B: `2 (stages - stage - 1) + (chunks - 1) stages + 1` chunks, so that the first
      stage keeps `1 + (stages - 1) / (stages chunks)` times as much as under 1F1B (Narayanan et
      al. 2021; Korthikanti et al. 2022, section 4.2.3).
    """
    if schedule == "gpipe":
        return micro_batches.astype(np.float64)
    behind = stages - stage - 1
    plain = np.minimum(behind + 1, micro_batches)
    chunks = 2 * behind + (virtual_stages - 1) * stages + 1
    interleaved = np.minimum(chunks, micro_batches * virtual_stages) / virtual_stages
    return np.where(virtual_stages > 1, interleaved, plain).astype(np.float64)
