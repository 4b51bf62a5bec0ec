"""The summary that torch elastic prints when workers failed: who was the first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_training.logs.diagnosis.markers import ELASTIC
from airflow_training.logs.model import Hit

__all__ = ["FirstFailure", "first_failure"]

_FIELD = re.compile(r"^\s*(?P<key>rank|exitcode)\s*:\s*(?P<value>.*?)\s*$")
_RANK = re.compile(r"(\d+)")
_CODE = re.compile(r"(-?\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFailure:
    """What the launcher saw of the worker that failed first."""

    rank: int | None
    exit_code: int | None
    """Negative: the number of the signal."""
    line: int


def first_failure(hits: Iterable[Hit]) -> FirstFailure | None:
    """Return the last summary's first observed failure, if there is a summary."""
    summaries = [hit for hit in hits if hit.signature == ELASTIC]
    if not summaries:
        return None
    head = summaries[-1]
    fields: dict[str, str] = {}
    for line in head.after[:10]:
        match = _FIELD.match(line)
        if match is not None:
            fields.setdefault(match["key"], match["value"])
    rank, code = _RANK.match(fields.get("rank", "")), _CODE.match(fields.get("exitcode", ""))
    return FirstFailure(
        rank=int(rank[1]) if rank else None,
        exit_code=int(code[1]) if code else None,
        line=head.line,
    )
