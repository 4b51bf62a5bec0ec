"""Thousands of files that stay, told as the few folders that hold them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from airflow_training.capture.model import Omission, OmissionKind

__all__ = ["summarized"]

_MOST_OF_A_FOLDER = 20


def summarized(omissions: Sequence[Omission], travelling: Iterable[str]) -> list[Omission]:
    """One omission for each folder of which no file travels, and for many files of a kind in one folder."""
    mixed = {""}
    for path in travelling:
        while "/" in path and path.rpartition("/")[0] not in mixed:
            path = path.rpartition("/")[0]
            mixed.add(path)
    groups: dict[tuple[str, OmissionKind, str], list[Omission]] = defaultdict(list)
    for each in omissions:
        groups[_highest(each.path, mixed), each.kind, each.reason].append(each)
    told: list[Omission] = []
    for (folder, kind, reason), members in groups.items():
        if len(members) == 1 or (folder in mixed and len(members) <= _MOST_OF_A_FOLDER):
            told += members
            continue
        told.append(
            Omission(
                path=f"{folder}/" if folder else "./",
                reason=reason,
                kind=kind,
                size=sum(each.size for each in members),
                count=sum(each.count for each in members),
            )
        )
    return sorted(told, key=lambda each: each.path)


def _highest(path: str, mixed: set[str]) -> str:
    """The highest folder above a path of which nothing travels, else its own folder."""
    parts = path.rstrip("/").split("/")[:-1]
    for count in range(1, len(parts) + 1):
        folder = "/".join(parts[:count])
        if folder not in mixed:
            return folder
    return "/".join(parts)
