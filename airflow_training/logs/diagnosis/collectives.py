"""Ranks that wait for each other in different collectives, told by the lines with which each times out. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.evidence import Incident

__all__ = ["mismatches"]

_MISMATCH = "collective-mismatch"
_CONFIDENCE = 0.7
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<operation>\w+), NumelIn=(?P<size>\d+)"
)
_GROUP = re.compile(r"PG GUID (?P<group>\S+)")
_SAME_SIZE = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE"})
"""Of these every rank brings as many elements."""


def mismatches(events: Sequence[Incident], catalogue: Catalogue) -> Iterable[Incident]:
    """Yield the first rank whose collective of some number is not that of most others.

    Nothing where an exception ended a rank: then the others wait for it, wherever they are.
    """
    cause = catalogue.causes.get(_MISMATCH)
    if cause is None or any(each.raised and each.kind == "cause" for each in events):
        return
    works: dict[tuple[str, str], dict[int, tuple[str, Incident]]] = defaultdict(dict)
    for event in events:
        work = _WORK.search(event.text)
        if work is None or event.rank is None:
            continue
        group = _GROUP.search(event.text)
        size = work["size"] if work["operation"] in _SAME_SIZE else ""
        key = (group["group"] if group else "", work["number"])
        works[key].setdefault(event.rank, (work["operation"] + size, event))
    for by_rank in works.values():
        usual = Counter(work for work, _ in by_rank.values()).most_common(1)[0][0]
        other = next((event for work, event in by_rank.values() if work != usual), None)
        if other is not None:
            yield replace(
                other, cause=cause, signature="", kind="cause", confidence=_CONFIDENCE, raised=False
            )
            return
