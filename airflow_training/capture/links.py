"""Where links of a tree lead, before anything is laid out. Pure."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["destination"]

_MOST_LINKS = 40
"""As Linux: a longer way is a circle."""


def destination(path: str, links: Mapping[str, str]) -> str | None:
    """The path in the tree that a path means once links are followed; None if it leaves the tree or runs in a circle.

    `links` are the tree's links by path, as written.
    """
    open_parts = path.split("/")[::-1]
    reached: list[str] = []
    followed = 0
    while open_parts:
        part = open_parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not reached:
                return None
            reached.pop()
            continue
        reached.append(part)
        target = links.get("/".join(reached))
        if target is None:
            continue
        followed += 1
        if target.startswith("/") or followed > _MOST_LINKS:
            return None
        reached.pop()
        open_parts += target.split("/")[::-1]
    return "/".join(reached)
