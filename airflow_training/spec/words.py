"""How numbers of things are said. Imports nothing."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Return `1 instance`, `2 instances`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
