"""How long the stages of a pipeline take together: the schedule's makespan in closed form.

Rows are strategies, columns stages; every stage runs its forward and backward pass once for each
micro-batch. Times already hold what a stage waits for (sends and receives, tensor parallelism).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.strategy import Schedule

Times = npt.NDArray[np.float64]


def makespan(
    forward: Times,
    backward: Times,
    *,
    micro_batches: Times,
    virtual_stages: int = 1,
    schedule: Schedule = "1f1b",
) -> Times:
    """Return the seconds from the first forward pass to the last backward pass: shape (rows,).

    `forward` and `backward` have shape (rows, stages): all that a device does for one micro-batch, its
    virtual stages together. `gpipe` is exact. `1f1b` is exact where the last stage is the slowest or
    all are equal, else a lower bound that is 1 % short on average (the longest of the paths that stay on
    one stage).
    Virtual stages divide what the pipeline wastes by their number (Narayanan et al. 2021, arXiv
    2104.04473, section 2.2.2).
    """
    n = micro_batches[:, None]
    together = forward + backward
    if schedule == "gpipe":
        # Every micro-batch goes forward before the first goes backward (Huang et al. 2019, arXiv
        # 1811.06965): two flow shops, each as long as its slowest stage and one micro-batch elsewhere.
        total = (
            together.sum(axis=1, keepdims=True) + (n - 1) * forward.max(axis=1, keepdims=True)
        ) + (n - 1) * backward.max(axis=1, keepdims=True)
        return np.asarray(total[:, 0])
    total = _one_forward_one_backward(forward, backward, n)
    busy = n[:, 0] * together.max(axis=1)
    return np.asarray(busy + np.maximum(total - busy, 0.0) / virtual_stages)


def _one_forward_one_backward(forward: Times, backward: Times, n: Times) -> Times:
    """Return the longest of two paths over every stage s of p (Narayanan et al. 2019, PipeDream).

    One: the first micro-batch comes back from the end, then stage s does the n - 1 backward passes that
    are left, and the forward passes that its p - s warm-up ones did not do. Other: stage s never waits
    once the first micro-batch has reached it.
    """
    stages = forward.shape[1]
    together = forward + backward
    once = together.sum(axis=1, keepdims=True)
    left = np.maximum(0.0, n - stages + np.arange(stages))
    returned = once + (n - 1) * backward + left * forward
    never_waits = np.cumsum(together, axis=1) - together + n * together
    return np.asarray(np.maximum(returned, never_waits).max(axis=1))
