"""How far equal computations may differ by rounding alone. Pure.

The rounding of a sum of n products grows with the square root of n, in the unit roundoff of the numbers, as long as errors are
independent (Higham and Mary, 2019, "A new approach to probabilistic rounding error analysis"). Another split adds in another order,
so outputs differ by about that. Errors of operators that follow each other add up.
"""

from __future__ import annotations

import math

__all__ = ["UNIT_ROUNDOFF", "rounding_units", "tolerance"]

UNIT_ROUNDOFF = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "bf16": 2.0**-9,
    "fp16": 2.0**-11,
}
_SAFETY = 16.0
"""Operators that are not sums (softmax, norms, activations) magnify what comes in by such factors."""
_STEP_GROWTH = 4.0
"""An update carries the difference of a step into the next one, where it is magnified again."""


def rounding_units(products: int) -> float:
    """By how many unit roundoffs one operator's result may differ; `products`: how many a number of it adds up."""
    return math.sqrt(max(1, products))


def tolerance(precision: str, units: float, *, step: int) -> float:
    """Bound the difference relative to a tensor's norm.

    Args:
        precision: of the computation.
        units: sum of `rounding_units` of all operators so far, backward passes among them.
        step: from 0; parameters differ by what steps before have left.

    """
    rounding = UNIT_ROUNDOFF[precision] * max(units, 1.0)
    return min(0.5, _SAFETY * rounding * _STEP_GROWTH ** min(step, 8))
