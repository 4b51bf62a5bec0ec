"""A scan over `re`, line by line: small enough to be right, for logs of tests."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.diagnosis.markers import MARKERS
from airflow_training.logs.model import FileScan, Hit, Origin

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIX = re.compile(
    r"\[(?:rank|default|worker-|trainer|Rank )(\d{1,6})\]:?[ \t]?|\[\d+,(\d{1,6})\]<std\w+>:[ \t]?|(\d{1,4}): "
)
_FILE_RANK = re.compile(r"(?:rank|worker|[_.-])[_-]?(\d{1,6})\.log$")


def scan(path: Path, catalogue: Catalogue) -> FileScan:
    """Return what one log holds of the catalogue's signatures and of the markers."""
    named = _FILE_RANK.search(path.name)
    origin = Origin(file=str(path), rank=int(named[1]) if named else None)
    patterns = {name: re.compile(pattern) for name, pattern in MARKERS.items()}
    patterns |= {name: each.expression for name, each in catalogue.signatures.items()}
    return scan_text(path.read_bytes(), origin, patterns)


def scan_text(data: bytes, origin: Origin, patterns: Mapping[str, re.Pattern[str]]) -> FileScan:
    lines = []
    offset = 0
    for raw in data.split(b"\n"):
        text = _ANSI.sub("", raw.decode("utf-8", "replace")).split("\r")[-1]
        match = _PREFIX.match(text)
        rank = origin.rank
        if match is not None:
            rank = int(next(group for group in match.groups() if group))
            text = text[match.end() :]
        lines.append((offset, rank, text))
        offset += len(raw) + 1
    of_rank: dict[int | None, list[int]] = defaultdict(list)
    for number, (_, rank, _text) in enumerate(lines):
        of_rank[rank].append(number)
    hits = []
    for numbers in of_rank.values():
        texts = [lines[number][2][:500] for number in numbers]
        for place, number in enumerate(numbers):
            offset, rank, text = lines[number]
            for name, pattern in patterns.items():
                if pattern.search(text):
                    hits.append(
                        Hit(
                            signature=name,
                            line=number + 1,
                            offset=offset,
                            rank=rank,
                            time=None,
                            text=text[:2000],
                            before=tuple(texts[max(0, place - 40) : place]),
                            after=tuple(texts[place + 1 : place + 41]),
                        )
                    )
    hits.sort(key=lambda hit: hit.line)
    tail: Sequence[str] = [text for _, _, text in lines[-200:]]
    return FileScan(
        origin=origin,
        hits=tuple(hits),
        bytes=len(data),
        lines=len(lines),
        tail=tuple(tail),
        tail_line=max(1, len(lines) - 199),
    )
