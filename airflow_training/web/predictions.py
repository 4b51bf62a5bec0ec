"""What predictions say: tables, confusion matrices and histograms. Models of the answers, and pure functions.

Everything is made in one pass over the beginning of a file; of its rows only those of a page are kept.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from airflow_training.control.rollup import timestamp
from airflow_training.web.prediction_files import StoredFile, step_of

__all__ = [
    "MOST_COLUMNS",
    "PredictionFile",
    "PredictionPage",
    "PredictionTable",
    "csv_rows",
    "json_rows",
    "prediction_file",
    "table_of",
]

MOST_COLUMNS = 50
_MOST_CHARACTERS = 200
"""Of a cell."""
_MOST_CLASSES = 30
_MOST_PAIRS = 10_000
_BINS = 30

Row = Mapping[str, Any]


class PredictionFile(BaseModel):
    role: str
    index: int
    name: str
    kind: Literal["table", "picture"]
    step: int | None
    """As the name tells it."""
    at: str | None
    bytes: int


class PredictionPage(BaseModel):
    files: list[PredictionFile]
    """The newest first: by step, those without one after them by time."""
    more: bool


class Confusion(BaseModel):
    """How often each label got each prediction."""

    classes: list[str]
    """The last one stands for all others where `others` is true."""
    counts: list[list[int]]
    """By label, then by prediction."""
    others: bool
    accuracy: float


class Histogram(BaseModel):
    edges: list[float]
    """One more than there are bins."""
    predictions: list[int]
    labels: list[int] | None
    mean_absolute_error: float | None
    """Of the rows that have both; None too where the column `query` says that rows are put in order."""
    not_finite: int
    """Predictions that are NaN or infinite, and in no bin."""


class PredictionTable(BaseModel):
    columns: list[str]
    rows: list[list[str | None]]
    """Those of this page, as text."""
    offset: int
    rows_read: int
    """How many rows there are in what was read, of which the confusion matrix or the histogram tells."""
    cut: bool
    """The file goes on after what was read."""
    problem: str
    """Why reading ended before that; empty: it did not."""
    confusion: Confusion | None
    histogram: Histogram | None


def prediction_file(stored: StoredFile) -> PredictionFile:
    """Return a file as lists tell it."""
    role, index = stored.key
    return PredictionFile(
        role=role,
        index=index,
        name=stored.name,
        kind="picture" if stored.name.endswith(".png") else "table",
        step=step_of(stored.name),
        at=timestamp(stored.at) if stored.at else None,
        bytes=stored.bytes,
    )


def csv_rows(content: bytes, *, cut: bool) -> Iterator[Row]:
    """Yield the rows of a CSV file with a header; raises ValueError for what is none."""
    text = io.StringIO(_text(content, cut=cut), newline="")
    reader = csv.reader(text, strict=True)
    try:
        header = next(reader, [])
        names = [name or f"column {number}" for number, name in enumerate(header[:MOST_COLUMNS], 1)]
        for row in reader:
            if row:
                yield dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from error


def json_rows(content: bytes, *, cut: bool) -> Iterator[Row]:
    """Yield the objects of JSON lines; raises ValueError for what is none."""
    for number, line in enumerate(io.StringIO(_text(content, cut=cut)), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"line {number} is no JSON") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is no JSON object")  # noqa: TRY004 - of the file, not of the call
        yield row


def _text(content: bytes, *, cut: bool) -> str:
    if cut:  # what follows the last newline is half a row
        content = content[: content.rfind(b"\n") + 1]
    return content.decode("utf-8-sig", "replace")


def table_of(rows: Iterator[Row], *, offset: int, limit: int, cut: bool) -> PredictionTable:
    """Return a page of rows, and what all rows say together of labels and predictions."""
    columns: list[str] = []
    page: list[Row] = []
    pairs = _Pairs()
    problem, count = "", 0
    try:
        for row in rows:
            if count < offset + limit:
                columns += [name for name in row if name not in columns][
                    : MOST_COLUMNS - len(columns)
                ]
                if count >= offset:
                    page.append({name: row[name] for name in columns if name in row})
            pairs.add(row)
            count += 1
    except ValueError as error:
        problem = str(error)[:_MOST_CHARACTERS]
    return PredictionTable(
        columns=[_shown(name) or "" for name in columns],
        rows=[[_shown(row.get(name)) for name in columns] for row in page],
        offset=offset,
        rows_read=count,
        cut=cut,
        problem=problem,
        confusion=pairs.confusion(),
        histogram=pairs.histogram(),
    )


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    # a lone surrogate is no text that a page can be sent
    return None if text is None else text[:_MOST_CHARACTERS].encode("utf-8", "replace").decode()


class _Pairs:
    """Labels and predictions of all rows, as far as they can be counted or measured."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._whole = True
        """Every number is a whole one, so that it can be the name of a class."""
        self._labels, self._predictions = array("d"), array("d")
        self._error = 0.0
        self._both = self._not_finite = 0
        self._unlabelled = self._words = False
        self._ranked = False
        """Predictions put the rows of a query in order: what they are apart from the labels says nothing."""

    def add(self, row: Row) -> None:
        label, prediction = row.get("label"), row.get("prediction")
        if prediction is None:
            return
        known, said = _number(label), _number(prediction)
        self._ranked |= "query" in row
        if label is None:
            self._unlabelled = True
        elif len(self._counts) < _MOST_PAIRS:
            self._counts[_class(label, known), _class(prediction, said)] += 1
        if _is_not_finite(prediction):
            self._not_finite += 1
        else:
            self._words |= said is None
        self._whole &= all(each is None or each.is_integer() for each in (known, said))
        if said is not None:
            self._predictions.append(said)
        if known is not None:
            self._labels.append(known)
        if known is not None and said is not None:
            self._error += abs(known - said)
            self._both += 1

    def confusion(self) -> Confusion | None:
        """Return the matrix where labels and predictions are classes."""
        if not self._counts or not self._whole or len(self._counts) >= _MOST_PAIRS:
            return None
        often: Counter[str] = Counter()
        for pair, count in self._counts.items():
            for name in {*pair}:
                often[name] += count
        numeric = not self._words and len(self._labels) == sum(self._counts.values())
        if numeric and len(often) > _MOST_CLASSES:
            return None  # they are amounts
        others = len(often) > _MOST_CLASSES
        kept = [name for name, _ in often.most_common(_MOST_CLASSES - others)]
        kept.sort(key=lambda name: (_order(name), name) if numeric else (0.0, name))
        place = {name: number for number, name in enumerate(kept)}
        size = len(kept) + others
        counts = [[0] * size for _ in range(size)]
        for (label, prediction), count in self._counts.items():
            counts[place.get(label, size - 1)][place.get(prediction, size - 1)] += count
        right = sum(count for (label, said), count in self._counts.items() if label == said)
        return Confusion(
            classes=[*kept, *(["others"] if others else [])],
            counts=counts,
            others=others,
            accuracy=right / sum(self._counts.values()),
        )

    def histogram(self) -> Histogram | None:
        """Return how numbers are spread, where no matrix says it better."""
        if not self._predictions or self._words or self.confusion() is not None:
            return None
        values = [*self._predictions, *self._labels]
        low, high = min(values), max(values)
        if not math.isfinite(high - low):
            return None
        width = (high - low) / _BINS or 1.0
        return Histogram(
            edges=[low + number * width for number in range(_BINS + 1)],
            predictions=_binned(self._predictions, low, width),
            labels=_binned(self._labels, low, width) if self._labels else None,
            mean_absolute_error=(
                self._error / self._both if self._both and not self._ranked else None
            ),
            not_finite=self._not_finite,
        )


def _order(name: str) -> float:
    number = float(name)
    return math.inf if math.isnan(number) else number  # of which none comes after another


def _binned(values: Sequence[float], low: float, width: float) -> list[int]:
    counts = [0] * _BINS
    for each in values:
        counts[min(_BINS - 1, int((each - low) / width))] += 1
    return counts


_NUMBER = re.compile(r"\s*[+-]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*")
"""Text that is written as a number is: what begins with zeros is a name, as `1_000` and `infinity` are."""
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)(\.0*)?")
_NOT_FINITE = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)


def _number(value: Any) -> float | None:
    """Return a finite number; None for anything else, which is a word or nothing."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_not_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and _NOT_FINITE.fullmatch(value) is not None


def _class(value: Any, number: float | None) -> str:
    """Return the name of a class: `3`, `3.0` and `"3"` are one, `007` and `1e5` are others."""
    as_number = not isinstance(value, str) or _WHOLE.fullmatch(value)
    if as_number and number is not None and number.is_integer() and abs(number) < 1 << 53:
        return str(int(number))
    return _shown(value) or ""
