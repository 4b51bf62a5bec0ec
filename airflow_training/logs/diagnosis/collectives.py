"""Ranks that wait for each other in different collectives, told by the lines with which each times out. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.model import FileScan

__all__ = ["MISMATCH", "divided", "mismatches"]

MISMATCH = "collective-mismatch"
_CONFIDENCE = 0.7
_DIVIDED = 0.95
"""That ranks which wait for different tensors do not meet: the coordinator itself lists them."""
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<operation>\w+), NumelIn=(?P<size>\d+)"
)
_GROUP = re.compile(r"PG GUID (?P<group>\S+)")
_MISSING = re.compile(r"(?i)\bmissing ranks:")
_AWAITED = re.compile(r"^\s*(?P<rank>\d{1,6}): \[(?P<tensors>.+)\]\s*$")
_SAME_SIZE = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE"})
"""Of these every rank brings as many elements."""


def mismatches(events: Sequence[Incident], catalogue: Catalogue) -> Iterable[Incident]:
    """Yield the first rank whose collective of some number is not that of most others.

    Nothing where an exception ended a rank: then the others wait for it, wherever they are.
    """
    cause = catalogue.causes.get(MISMATCH)
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


def divided(
    scans: Sequence[FileScan], events: Sequence[Incident], catalogue: Catalogue
) -> Iterable[Incident]:
    """Yield the rank that Horovod misses other tensors of than of most ranks: each waits for what the others do not submit."""
    cause = catalogue.causes.get(MISMATCH)
    for event in events:
        if cause is None or event.log is None or event.survived:
            continue
        after = next((hit.after for hit in scans[event.log].hits if hit.line == event.line), ())
        if not any(map(_MISSING.search, (event.text, *after[:1]))):
            continue
        awaited = {
            int(line["rank"]): line["tensors"]
            for line in map(_AWAITED.match, after)
            if line is not None
        }
        (_, most), *others = Counter(awaited.values()).most_common() or [("", 0)]
        odd = [rank for rank, tensors in awaited.items() if (tensors, 1) in others]
        if most > 1 and len(odd) == 1:
            yield replace(
                event,
                cause=cause,
                signature="",
                kind="cause",
                confidence=_DIVIDED,
                rank=odd[0],
                named=True,
            )
            return
