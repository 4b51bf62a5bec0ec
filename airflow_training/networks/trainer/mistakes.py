"""What is wrong with what a user gave: one class, so that none of it ends in a traceback."""

from __future__ import annotations

__all__ = ["TrainerError"]


class TrainerError(Exception):
    """A mistake in data, settings or starting model, told with its place and its fix.

    Args:
        place: file, row and column, as far as they are known.
        message: what is wrong there.
        fix: what a user may do.
    """

    def __init__(self, place: str, message: str, fix: str = "") -> None:
        self.place = place
        self.message = message
        self.fix = fix
        told = f"{place}: {message}" if place else message
        super().__init__(f"{told}\n  fix: {fix}" if fix else told)

    def __reduce__(self) -> tuple[type[TrainerError], tuple[str, str, str]]:
        return TrainerError, (self.place, self.message, self.fix)
