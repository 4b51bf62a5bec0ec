"""Roles that depend on themselves, directly or around corners. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["find_cycles"]


def find_cycles(edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return a cycle as `[a, b, a]` for every edge that closes one, seen depth first.

    `edges`: role -> the roles it waits for. Names that are no key are ignored.
    """
    cycles: list[list[str]] = []
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        path = [start]
        remaining = [iter(edges[start])]
        while path:
            following = next(remaining[-1], None)
            if following is None:
                done.add(path.pop())
                remaining.pop()
            elif following in path:
                cycles.append([*path[path.index(following) :], following])
            elif following in edges and following not in done:
                path.append(following)
                remaining.append(iter(edges[following]))
    return cycles
