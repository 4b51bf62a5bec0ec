"""The plans that nobody beats in both time and money."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def front(
    seconds: npt.NDArray[np.float64], money: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Return the rows that no other row beats in one and equals in the other, fastest first.

    Rows that are equal in both count once, the first of them; infinite ones never do.
    """
    order = np.lexsort((np.arange(len(seconds)), money, seconds))
    order = order[np.isfinite(seconds[order]) & np.isfinite(money[order])]
    cheapest_before = np.minimum.accumulate(np.concatenate(([np.inf], money[order])))[:-1]
    return np.asarray(order[money[order] < cheapest_before], dtype=np.int64)
