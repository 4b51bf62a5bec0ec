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
_LOCAL = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
_CODE = re.compile(r"(-?\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFailure:
    """What the launcher saw of the worker that failed first."""

    rank: int | None
    exit_code: int | None
    """Negative: the number of the signal."""


def first_failure(hits: Iterable[Hit]) -> FirstFailure | None:
    """Return the last summary's first observed failure, without a summary that of the first report.

    A report names the rank in its node only.
    """
    told = [hit for hit in hits if hit.signature == ELASTIC]
    summaries = [hit for hit in told if not _LOCAL.search(hit.text)]
    if not summaries:
        reports = [match for hit in told if (match := _LOCAL.search(hit.text))]
        if not reports:
            return None
        return FirstFailure(rank=int(reports[0][2]), exit_code=int(reports[0][1]))
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
    )
