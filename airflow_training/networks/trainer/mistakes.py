"""What is wrong with what a user gave: one class, so that none of it ends in a traceback."""

from __future__ import annotations

import re

__all__ = ["EXIT_LOST", "EXIT_MISTAKE", "TrainerError", "public_address"]

EXIT_MISTAKE = 2
"""Exit code: the same start ends the same way."""
EXIT_LOST = 75
"""Exit code, EX_TEMPFAIL: a peer went away, or something that another start may not meet."""

_USER = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(://[^\s?]*)\?[^\s'\"]*")


def public_address(text: str) -> str:
    """Return a text whose addresses have no user, password and query, where storages take secrets."""
    return _QUERY.sub(r"\1", _USER.sub("", text))


class TrainerError(Exception):
    """A mistake in data, settings or starting model, told with its place and its fix.

    Args:
        place: file, row and column, as far as they are known.
        message: what is wrong there.
        fix: what a user may do.
    """

    def __init__(self, place: str, message: str, fix: str = "") -> None:
        self.place = place = public_address(place)
        self.message = message = public_address(message)
        self.fix = fix = public_address(fix)
        told = f"{place}: {message}" if place else message
        super().__init__(f"{told}\n  fix: {fix}" if fix else told)

    def __reduce__(self) -> tuple[type[TrainerError], tuple[str, str, str]]:
        return TrainerError, (self.place, self.message, self.fix)
