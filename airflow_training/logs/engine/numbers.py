"""How numbers, clocks and ranks are written: what `parse_line` finds and what a layout takes are the same texts. Pure.

Two readings agree only if neither takes more of a line than the other, so both use these, and from a place on both take
the longest text that is one.
"""

from __future__ import annotations

__all__ = ["CLOCK", "NUMBER", "PLAIN", "RANK", "RANK_DIGITS"]

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"

NUMBER = rf"[-+]?(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?i:nan|infinity|inf)"
"""What Python's `float` takes, with thousands separators, `nan`, `inf` and `infinity` in any case."""

PLAIN = rf"{_DIGITS}(?:\.[0-9]+)?"
"""A number without sign and exponent, as steps and totals are written."""

CLOCK = r"(?:[0-9]+ days?, )?[0-9?]+(?::[0-9?]+)*"

RANK_DIGITS = 6
RANK = rf"[0-9]{{1,{RANK_DIGITS}}}"
