"""How many examples of a property are tried: a quarter in `make test`, all in `make soak`."""

from __future__ import annotations

import os

__all__ = ["examples"]

ALL = "ALL_EXAMPLES"
"""The variable in the environment that `make soak` sets."""


def examples(count: int) -> int:
    """Return how many of `count` examples to try."""
    return count if os.environ.get(ALL) else -(-count // 4)
