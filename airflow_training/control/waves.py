"""In which order roles can start: levels of the dependency graph. Knows nothing of gangs."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_training.documents.resolved import ResolvedJob

__all__ = ["cycle", "levels", "waves"]


def waves(job: ResolvedJob) -> list[list[str]]:
    """Return role names by wave, in document order within a wave.

    A role is in the first wave where all roles it depends on are in earlier ones. Raises
    ValueError for a cycle; names that no role has are ignored (both are refused before).
    """
    level = levels({role.name: [d.role for d in role.depends_on] for role in job.roles})
    found: list[list[str]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for name, number in level.items():
        found[number].append(name)
    return found


def levels(graph: Mapping[str, list[str]]) -> dict[str, int]:
    """Return the length of the longest way from each node to one without dependencies."""
    known: dict[str, int] = {}
    waiting = {name: [d for d in needs if d in graph] for name, needs in graph.items()}
    while waiting:
        ready = [name for name, needs in waiting.items() if all(d in known for d in needs)]
        if not ready:
            raise ValueError("cycle: " + " -> ".join(cycle(waiting)))
        for name in ready:
            known[name] = 1 + max((known[d] for d in waiting.pop(name)), default=-1)
    return {name: known[name] for name in graph}


def cycle(graph: Mapping[str, list[str]]) -> list[str]:
    """Return one cycle as a closed walk (`a, b, a`), empty when there is none."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for needed in graph.get(node, []):
            if found := walk(needed, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for start in graph if (found := walk(start, []))), [])
