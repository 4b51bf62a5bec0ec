"""CSV and LIBSVM: lines of text become rows of numbers, and a mistake has its row and column."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

import numpy

from airflow_training.networks.trainer.addresses import SampleFile, open_file
from airflow_training.networks.trainer.lines import (
    TextLine,
    header_of,
    lines_in,
    refuse_binary,
    row_at,
)
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.samples import Samples, lists_of, shaped
from airflow_training.networks.trainer.settings import NetworkInput, TrainerSettings
from airflow_training.networks.trainer.shares import FilePart

__all__ = [
    "columns_of",
    "csv_columns",
    "misfit_of",
    "read_csv",
    "read_libsvm",
    "rows_to_samples",
    "to_fractions",
    "to_numbers",
]

Array = numpy.ndarray[Any, Any]
_ROWS_AT_ONCE = 10_000
"""Of a table: their cells as text take ten times the memory of their numbers."""


def columns_of(
    names: Sequence[str], settings: TrainerSettings, *, place: str
) -> dict[str, list[int]]:
    """Return for each input the numbers of its columns; raises TrainerError for one that is not there."""
    data = settings.data
    at = {name: number for number, name in enumerate(names)}
    if len(at) < len(names):
        twice = next(name for number, name in enumerate(names) if at[name] != number)
        raise TrainerError(
            place, f"has the column '{twice}' more than once", "give each column a name of its own"
        )

    def number(name: str, role: str) -> int:
        if name not in at:
            shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise TrainerError(
                place,
                f"has no column '{name}', {role}",
                f"its columns are {shown}: change the name in trainer.data, or in the file",
            )
        return at[name]

    found: dict[str, list[int]] = {}
    for each in settings.inputs:
        if each.columns:
            role = f"which the input '{each.name}' takes"
            found[each.name] = [number(name, role) for name in each.columns]
        elif each.is_label:
            found[each.name] = [number(data.label, "the label")]
    used = {place for places in found.values() for place in places}
    used |= {number(data.query, "the query")} if data.query else set()
    used |= {at[data.label]} if data.label in at else set()
    left = [each for each in range(len(names)) if each not in used]
    if left and any(each.takes_rest for each in settings.features):
        raise TrainerError(
            place,
            f"has the column '{names[left[0]]}', which the first file has not",
            "give all files the same columns, or name those to take in trainer.data.inputs",
        )
    for each in settings.features:
        found.setdefault(each.name, left)
    for each in settings.inputs:
        size = int(numpy.prod(_row_shape(each, settings), dtype=numpy.int64))
        if len(found[each.name]) != size:
            raise TrainerError(
                place,
                f"gives {len(found[each.name])} columns to the input '{each.name}', which takes {size}"
                f" (shape {list(each.shape)})",
                f"change its shape to [{len(found[each.name])}], or name its columns in trainer.data.inputs",
            )
    return found


def read_csv(file: SampleFile, part: FilePart, settings: TrainerSettings) -> Samples:
    """Return the rows of a CSV file with a header that begin in a part of it; raises TrainerError, OSError."""
    data = settings.data

    with open_file(file.address) as opened:
        names, head = _header(opened, file, settings)
        columns = columns_of(names, settings, place=file.name)
        query = _column_reader(names, settings) if data.query else None
        lines = lines_in(opened, part.start, part.stop, head=head, query=query)
        found: dict[str, list[Array]] = {each.name: [] for each in settings.inputs}
        queries: list[str] = []
        for begin in range(0, max(len(lines), 1), _ROWS_AT_ONCE):
            some = lines[begin : begin + _ROWS_AT_ONCE]
            rows = _rows(some, file=file, opened=opened, delimiter=data.delimiter)
            _same_width(rows, some, names, file=file, opened=opened)

            def refuse(
                index: int,
                column: int,
                text: str,
                message: str,
                fix: str,
                some: Sequence[TextLine] = some,
            ) -> NoReturn:
                row = row_at(opened, some[index].start)
                place = f"{file.name}, row {row}, column '{names[column]}'"
                raise TrainerError(place, f"'{text[:40]}' {message}", fix)

            for each in settings.inputs:
                numbers = _numbers(rows, columns[each.name], each, settings, refuse=refuse)
                found[each.name].append(numbers)
            if data.query:
                place = names.index(data.query)
                queries += [row[place].strip() for row in rows]
    arrays = {name: numpy.concatenate(each) for name, each in found.items()}
    return rows_to_samples(arrays, queries, settings=settings, file=file, number=part.file)


def csv_columns(file: SampleFile, settings: TrainerSettings) -> list[str]:
    """Return the names of a CSV file's columns; raises TrainerError, OSError."""
    with open_file(file.address) as opened:
        return _header(opened, file, settings)[0]


def _header(opened: BinaryIO, file: SampleFile, settings: TrainerSettings) -> tuple[list[str], int]:
    refuse_binary(opened, file.name)
    header, head = header_of(opened)
    return [each.strip() for each in _cells(header, file, settings)], head


def _cells(text: str, file: SampleFile, settings: TrainerSettings) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=settings.data.delimiter), [])
    except csv.Error as error:
        raise TrainerError(file.name, f"is no CSV: {error}", _ONE_LINE) from None


_ONE_LINE = "a row is one line, which ends with a line feed; quotes around a cell are closed in it"


def _rows(
    lines: Sequence[TextLine], *, file: SampleFile, opened: BinaryIO, delimiter: str
) -> list[list[str]]:
    """Return the cells of lines: one row each, so that no open quote swallows those below it."""
    reader = csv.reader((each.text for each in lines), delimiter=delimiter)
    rows: list[list[str]] = []

    def refuse(line: TextLine, message: str) -> NoReturn:
        place = f"{file.name}, row {row_at(opened, line.start)}"
        raise TrainerError(place, message, _ONE_LINE) from None

    try:
        for row in reader:
            rows.append(row)
            if reader.line_num != len(rows):
                refuse(lines[len(rows) - 1], "has a quote that is not closed on its line")
    except csv.Error as error:
        refuse(lines[reader.line_num - 1], f"is no row of CSV: {error}")
    if lines:
        try:
            next(csv.reader([lines[-1].text], delimiter=delimiter, strict=True))
        except csv.Error as error:
            if "unexpected end" in str(error):
                refuse(lines[-1], "has a quote that is not closed on its line")
    return rows


def read_libsvm(file: SampleFile, part: FilePart, settings: TrainerSettings) -> Samples:
    """Return the rows of a LIBSVM file (`label qid:1 1:0.5 7:2`) that begin in a part of it."""
    feature, label = settings.features[0], settings.labels[0]
    size = int(numpy.prod(_row_shape(feature, settings), dtype=numpy.int64))
    ranked = bool(settings.data.query)
    with open_file(file.address) as opened:
        refuse_binary(opened, file.name)
        lines = lines_in(opened, part.start, part.stop, query=_qid if ranked else None)
        lines = [each for each in lines if not each.text.lstrip().startswith("#")]
        values = numpy.zeros((len(lines), size), numpy.float32)
        labels = numpy.zeros(len(lines), numpy.float64)
        for index, line in enumerate(lines):
            word = ""
            try:
                words = line.text.partition("#")[0].split()
                word = words[0]
                labels[index] = float(word)
                for word in words[1:]:
                    if not word.startswith("qid:"):
                        at, value = _pair(word, size)
                        values[index, at - 1] = value
            except _OutOfRange as error:
                place = f"{file.name}, row {row_at(opened, line.start)}, column {error.number}"
                fix = f"columns of LIBSVM count from 1: give '{feature.name}' the shape of the widest row"
                raise TrainerError(
                    place, f"the input '{feature.name}' has columns 1 to {size}", fix
                ) from None
            except (ValueError, IndexError):
                place = f"{file.name}, row {row_at(opened, line.start)}"
                fix = "a row is a number and pairs of column and number: 1 qid:3 1:0.5 4:2"
                raise TrainerError(place, f"'{word[:40]}' is no number or pair", fix) from None
            if ranked and not _qid(line.text):
                place = f"{file.name}, row {row_at(opened, line.start)}"
                fix = "write qid:1 after the label, or take query out of trainer.data"
                raise TrainerError(place, "has no qid, and trainer.data.query asks for it", fix)
        for wanted, rows in ((label, labels[:, None]), (feature, values)):
            wrong = wanted.misfit(rows)
            if wrong >= 0:
                index, column = divmod(wrong, rows.shape[1])
                place = f"{file.name}, row {row_at(opened, lines[index].start)}"
                where = "the label" if wanted is label else f"column {column + 1}"
                message, fix = wanted.misfit_reason(rows[index, column])
                raise TrainerError(f"{place}, {where}", f"'{rows[index, column]:g}' {message}", fix)
    arrays = {feature.name: values, label.name: labels.astype(label.dtype)}
    queries = [_qid(each.text) for each in lines] if ranked else []
    return rows_to_samples(arrays, queries, settings=settings, file=file, number=part.file)


def rows_to_samples(
    arrays: Mapping[str, Array],
    queries: Sequence[str],
    *,
    settings: TrainerSettings,
    file: SampleFile,
    number: int,
) -> Samples:
    """Return rows as samples: each by itself, or as lists of documents where the data has queries."""
    if settings.data.query:
        if (twice := _first_apart(queries)) is not None:
            raise TrainerError(
                file.name,
                f"has rows of the query '{twice}' in two places, with other queries between them",
                "sort the file by query, so that rows of equal query stand together",
            )
        inputs = {each.name: each for each in settings.inputs}
        rows = {
            name: each.reshape(len(each), *inputs[name].shape[1:]).astype(inputs[name].dtype)
            for name, each in arrays.items()
        }
        return lists_of(rows, queries, settings=settings, file=number)
    found = {
        each.name: shaped(arrays[each.name], each, place=file.name) for each in settings.inputs
    }
    count = len(next(iter(found.values())))
    return Samples(found, numpy.full(count, number))


def _first_apart(queries: Sequence[str]) -> str | None:
    """Return the first query that comes again after another one; None: equal ones stand together."""
    seen: set[str] = set()
    for place, query in enumerate(queries):
        if place and query == queries[place - 1]:
            continue
        if query in seen:
            return query
        seen.add(query)
    return None


def to_numbers(
    texts: Sequence[str], wanted: NetworkInput, classes: Sequence[str]
) -> tuple[Array | None, int]:
    """Return a column of text as numbers; or None, and the place of the first that is none."""
    try:
        values = numpy.array(texts, numpy.float64)
    except ValueError:
        values = numpy.zeros(0)
    known = {name: number for number, name in enumerate(classes)}
    if wanted.is_label and known:
        for place, text in enumerate(texts):
            if text not in known:
                return None, place
        return numpy.array([known[text] for text in texts], wanted.dtype), -1
    if len(values) != len(texts):
        return None, next(place for place, text in enumerate(texts) if not _is_number(text))
    wrong = wanted.misfit(values if wanted.dtype == "int64" else to_fractions(values))
    return (None, wrong) if wrong >= 0 else (values.astype(wanted.dtype), -1)


def to_fractions(values: Array) -> Array:
    """Return numbers as float32; what is too large for it becomes infinite."""
    with numpy.errstate(over="ignore"):
        return values.astype(numpy.float32)


def _row_shape(wanted: NetworkInput, settings: TrainerSettings) -> tuple[int, ...]:
    """Return the shape of what one row brings: of lists, without the documents."""
    return wanted.shape[1:] if settings.data.query else wanted.shape


def _numbers(
    rows: Sequence[Sequence[str]],
    columns: Sequence[int],
    wanted: NetworkInput,
    settings: TrainerSettings,
    *,
    refuse: Callable[[int, int, str, str, str], NoReturn],
) -> Array:
    dtype = numpy.dtype(wanted.dtype)
    found = numpy.zeros((len(rows), len(columns)), dtype)
    classes = settings.data.classes
    for place, column in enumerate(columns):
        texts = [row[column].strip() for row in rows]
        values, wrong = to_numbers(texts, wanted, classes)
        if values is None:
            message, fix = misfit_of(texts[wrong], wanted, classes)
            refuse(wrong, column, texts[wrong], message, fix)
        found[:, place] = values
    return found


def misfit_of(text: str, wanted: NetworkInput, classes: Sequence[str]) -> tuple[str, str]:
    """Return why a cell is no number that the network can take, and what can be done."""
    if wanted.is_label and classes:
        return (
            "is no class",
            f"trainer.data.classes has {', '.join(classes[:20])}: add it, or mend the row",
        )
    if not text:
        return "is empty, where a number is needed", "fill the cell, or take out the row"
    if not _is_number(text):
        fix = (
            "write numbers, or name the classes in trainer.data.classes"
            if wanted.is_label
            else "write a number, or name only columns of numbers in trainer.data.inputs"
        )
        return "is no number", fix
    number = float(text)
    return wanted.misfit_reason(
        number if wanted.dtype == "int64" else float(to_fractions(numpy.array(number)))
    )


def _same_width(
    rows: Sequence[Sequence[str]],
    lines: Sequence[TextLine],
    names: Sequence[str],
    *,
    file: SampleFile,
    opened: BinaryIO,
) -> None:
    for index, row in enumerate(rows):
        if len(row) != len(names):
            at = row_at(opened, lines[min(index, len(lines) - 1)].start)
            fix = f"a row is one line, with '{names[0]}' to '{names[-1]}'; text with commas stands in quotes"
            raise TrainerError(
                f"{file.name}, row {at}",
                f"has {len(row)} columns, and the header {len(names)}",
                fix,
            )


def _column_reader(names: Sequence[str], settings: TrainerSettings) -> Callable[[str], str]:
    place, delimiter = names.index(settings.data.query), settings.data.delimiter

    def value(text: str) -> str:
        try:
            cells = next(csv.reader([text], delimiter=delimiter), [])
        except csv.Error:  # told once the line is read as a row
            return ""
        return cells[place].strip() if place < len(cells) else ""

    return value


def _qid(text: str) -> str:
    for word in text.partition("#")[0].split()[1:3]:
        if word.startswith("qid:"):
            return word[4:]
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _pair(word: str, size: int) -> tuple[int, float]:
    """Return column and value of a pair; raises ValueError."""
    key, _, value = word.partition(":")
    at = int(key)
    if not 1 <= at <= size:
        raise _OutOfRange(at)
    return at, float(value)


class _OutOfRange(ValueError):
    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)
