"""The walk over a block, compiled by numba: lines of known layouts become numbers, all others are put aside.

It does what `layouts.Layout.read` does, some hundreds of times faster. Everything it is not sure of (a long number
in groups of digits, a date that does not exist, an unknown layout) is put aside and read in Python, so that the values agree.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from airflow_training.logs.engine.numbers import RANK_DIGITS

LONGEST_PART = 65_536
LONGEST_METRIC_LINE = 8_192

TEXT, NUMBER, DIVIDED, INVERSE, CLOCK, RANK, TIME, BAR, SKIP, SHAPE, FREE, END = range(12)
"""Operations of a layout."""
PLAIN, PADDED = 1, 2
"""Of a number, added up: it has neither sign nor exponent; any number of spaces may stand before it."""

SPREAD = 1 << 14
"""Size of the table from the letters of a line to its layouts; a power of two."""


_find = types.ExternalFunction("memchr", types.int64(types.int64, types.int32, types.int64))
"""Return the address of the first byte of a value among so many at an address, 0 if there is none."""
_compare = types.ExternalFunction("memcmp", types.int32(types.int64, types.int64, types.int64))
"""Return 0 if so many bytes at two addresses are the same."""
_move = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
"""Copy bytes: to an address, from an address, so many."""
_as_python = types.ExternalFunction(
    "PyOS_string_to_double", types.float64(types.int64, types.int64, types.int64)
)
"""Return the number at an address as `float` does; where it ends is written to an address. Needs the interpreter's lock."""


def _reader(kind: Any, stored: Any) -> Any:
    """Return a function of an address and a place that reads one element; an array would be asked for its length."""

    @intrinsic
    def element_at(typingctx: Any, address: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], stored.as_pointer())
            return builder.load(builder.gep(pointer, [arguments[1]]))

        return kind(types.int64, types.int64), generate

    return element_at


def _writer(kind: Any, stored: Any) -> Any:
    """Return a function of an address, a place and a value that writes one element."""

    @intrinsic
    def put(typingctx: Any, address: Any, place: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], stored.as_pointer())
            builder.store(arguments[2], builder.gep(pointer, [arguments[1]]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), generate

    return put


byte_at = _reader(types.uint8, ir.IntType(8))
_integer_at = _reader(types.int64, ir.IntType(64))
_double_at = _reader(types.float64, ir.DoubleType())
_put_byte = _writer(types.uint8, ir.IntType(8))
_put_double = _writer(types.float64, ir.DoubleType())


_EXACT = np.array([10.0**power for power in range(23)])
"""Powers of ten that are doubles."""


@numba.njit(cache=True)
def _load_word(data: Any, start: Any, end: Any) -> Any:
    """Return nan or an infinity and where it ends; -1 if it is neither."""
    position = start
    sign = 1.0
    if position < end and (byte_at(data, position) == 45 or byte_at(data, position) == 43):
        sign = -1.0 if byte_at(data, position) == 45 else 1.0
        position += 1
    if position + 3 > end:
        return 0.0, -1
    a = byte_at(data, position) | 32
    b = byte_at(data, position + 1) | 32
    c = byte_at(data, position + 2) | 32
    if a == 110 and b == 97 and c == 110:
        return np.nan, position + 3
    if a != 105 or b != 110 or c != 102:
        return 0.0, -1
    long = position + 8 <= end
    for index, byte in enumerate((105, 110, 105, 116, 121)):
        long = long and (byte_at(data, position + 3 + index) | 32) == byte
    return sign * np.inf, position + (8 if long else 3)


@numba.njit(cache=True, error_model="numpy")
def number(data: Any, start: Any, end: Any) -> Any:
    """Return a number's value and where it ends; -1 if there is none that is read here."""
    position = start
    negative = False
    if position < end and (byte_at(data, position) == 45 or byte_at(data, position) == 43):
        negative = byte_at(data, position) == 45
        position += 1
    digits = np.uint64(0)
    first = position
    while position < end and 48 <= byte_at(data, position) <= 57:
        digits = digits * np.uint64(10) + np.uint64(byte_at(data, position) - 48)
        position += 1
    count = position - first
    if 0 < count <= 3:
        while position + 3 < end and byte_at(data, position) == 44:
            a = byte_at(data, position + 1)
            b = byte_at(data, position + 2)
            c = byte_at(data, position + 3)
            if a < 48 or a > 57 or b < 48 or b > 57 or c < 48 or c > 57:
                break
            digits = digits * np.uint64(1000) + np.uint64(
                (np.int64(a) - 48) * 100 + (np.int64(b) - 48) * 10 + np.int64(c) - 48
            )
            count += 3
            position += 4
    exponent = 0
    grouped = position > first + count
    if position < end and byte_at(data, position) == 46:
        position += 1
        first = position
        while position < end and 48 <= byte_at(data, position) <= 57:
            digits = digits * np.uint64(10) + np.uint64(byte_at(data, position) - 48)
            position += 1
        exponent = first - position
        count += position - first
    if count == 0:
        return _load_word(data, start, end)
    if position + 1 < end and (byte_at(data, position) | 32) == 101:
        place = position + 1
        less = False
        if byte_at(data, place) == 45 or byte_at(data, place) == 43:
            less = byte_at(data, place) == 45
            place += 1
        if place < end and 48 <= byte_at(data, place) <= 57:
            written: Any = 0
            while place < end and 48 <= byte_at(data, place) <= 57:
                written = min(written * 10 + np.int64(byte_at(data, place)) - 48, 100000)
                place += 1
            exponent += -written if less else written
            position = place
    if count <= 15 and -22 <= exponent <= 22:
        # both are doubles, so that the result is rounded once
        value = np.float64(digits)
        value = value / _EXACT[-exponent] if exponent < 0 else value * _EXACT[exponent]
        return -value if negative else value, position
    if grouped:
        return 0.0, -1
    # its last digits may stand behind `end`, where an older block left some
    ended = np.empty(1, np.int64)
    value = _as_python(data + start, ended.ctypes.data, 0)
    return value, position if ended[0] == data + position else -1


@numba.njit(cache=True)
def _two(data: Any, position: Any) -> Any:
    a = np.int64(byte_at(data, position)) - 48
    b = np.int64(byte_at(data, position + 1)) - 48
    if a < 0 or a > 9 or b < 0 or b > 9:
        return -1000000
    return a * 10 + b


@numba.njit(cache=True)
def _days(year: Any, month: Any) -> Any:
    """Return how many days a month has."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@numba.njit(cache=True, error_model="numpy")
def timestamp(data: Any, start: Any, end: Any) -> Any:
    """Return seconds since 1970 of a date with a time, and where it ends; -1 if it is not certain."""
    if start + 19 > end:
        return 0.0, -1
    year = _two(data, start) * 100 + _two(data, start + 2)
    month = _two(data, start + 5)
    day = _two(data, start + 8)
    gap = byte_at(data, start + 10)
    position = start + 11
    if gap == 44:
        position += 1
        if position + 8 > end or byte_at(data, start + 11) != 32:
            return 0.0, -1
    elif gap != 32 and gap != 84:
        return 0.0, -1
    hour = _two(data, position)
    minute = _two(data, position + 3)
    second = _two(data, position + 6)
    if (
        year < 1
        or month < 1
        or month > 12
        or day < 1
        or (day > 28 and day > _days(year, month))
        or hour < 0
        or hour > 23
        or minute < 0
        or minute > 59
        or second < 0
        or second > 99
        or (byte_at(data, start + 4) != 45 and byte_at(data, start + 4) != 47)
        or (byte_at(data, start + 7) != 45 and byte_at(data, start + 7) != 47)
        or byte_at(data, position + 2) != 58
        or byte_at(data, position + 5) != 58
    ):
        return 0.0, -1
    position += 8
    fraction = 0.0
    if position + 1 < end and (byte_at(data, position) == 46 or byte_at(data, position) == 44):
        place = position + 1
        digits: Any = 0
        unit = 1
        while place < end and place - position <= 9 and 48 <= byte_at(data, place) <= 57:
            digits = digits * 10 + np.int64(byte_at(data, place)) - 48
            unit *= 10
            place += 1
        if place > position + 1:
            fraction = digits / unit
            position = place
    shift = 0.0
    place = position + 1 if position < end and byte_at(data, position) == 32 else position
    if place < end and byte_at(data, place) == 90:
        position = place + 1
    elif (
        place + 2 < end
        and byte_at(data, place) == 85
        and byte_at(data, place + 1) == 84
        and byte_at(data, place + 2) == 67
    ):
        position = place + 3
    elif place + 4 < end and (byte_at(data, place) == 45 or byte_at(data, place) == 43):
        rest = place + 3
        hours = _two(data, place + 1)
        if byte_at(data, rest) == 58:
            rest += 1
        if hours >= 0 and rest + 1 < end and _two(data, rest) >= 0:
            shift = np.float64(hours * 3600 + _two(data, rest) * 60)
            if byte_at(data, place) == 43:
                shift = -shift
            position = rest + 2
    if position < end and (48 <= byte_at(data, position) <= 57 or byte_at(data, position) == 58):
        return 0.0, -1
    # days since 1970 of a date of the Gregorian calendar, as the year began in March
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    seconds = days * 86400 + hour * 3600 + minute * 60 + min(second, 59)
    return np.float64(seconds) + fraction + shift, position


@numba.njit(cache=True)
def clock(data: Any, start: Any, end: Any) -> Any:
    """Return seconds of `[H:]M:S` and where it ends; -1 if it is anything else, also a `?`."""
    position = start
    seconds = 0.0
    part = 0.0
    seen = False
    while position < end:
        byte = byte_at(data, position)
        if 48 <= byte <= 57:
            part = part * 10.0 + np.float64(byte - 48)
            seen = True
        elif byte == 58 and seen:
            seconds = (seconds + part) * 60.0
            part = 0.0
            seen = False
        else:
            break
        position += 1
    if not seen or (
        position < end and (byte_at(data, position) == 46 or byte_at(data, position) == 63)
    ):
        return 0.0, -1
    return seconds + part, position


@numba.njit(cache=True)
def letters(data: Any, start: Any, end: Any) -> Any:
    """Return a number that lines with the same letters (but `e`) share, in any order: a sum, and how many there are.

    Both are sums of 16 bits, without a table: so many letters are added at once as a register of the processor takes.
    """
    total = np.uint16(0)
    count = np.uint16(0)
    for position in range(start, end):
        letter = np.uint16(byte_at(data, position) | 32)
        counts = (letter >= 97) & (letter <= 122) & (letter != 101)
        square = np.uint16(np.uint16(letter * letter) * np.uint16(0x79B1))
        weight = np.uint16(square ^ np.uint16(letter * np.uint16(0xCA6B)))
        total = np.uint16(total + (weight if counts else np.uint16(0)))
        count = np.uint16(count + np.uint16(counts))
    return np.int64(total) | np.int64(count) << 16


@numba.njit(cache=True)
def _has_shape(data: Any, place: Any, texts: Any, text: Any, size: Any) -> Any:
    """Return whether what stands at a place is the text but for its digits."""
    for done in range(size):
        byte = byte_at(data, place + done)
        wanted = byte_at(texts, text + done)
        if byte != wanted and (wanted != 48 or byte < 48 or byte > 57):
            return False
    return True


@numba.njit(cache=True)
def _is_plain(data: Any, start: Any, end: Any) -> Any:
    """Return whether a number begins and ends with a digit and has no exponent."""
    first = byte_at(data, start)
    last = byte_at(data, end - 1)
    plain = 48 <= first <= 57 and 48 <= last <= 57
    for position in range(start, end):
        plain = plain and byte_at(data, position) | 32 != 101
    return plain


@numba.njit(cache=True, error_model="numpy")
def read(
    data: Any,
    start: Any,
    end: Any,
    first: Any,
    operations: Any,
    scales: Any,
    texts: Any,
    values: Any,
    row: Any,
) -> Any:
    """Read a line by the operations from `first` on: 0 if it is of another layout, 2 if a value is not finite.

    `values` gets the columns from `row + 2` on, the time at `row` and the rank at `row + 1`. Tables are given by their
    addresses: arrays would have their references counted at every call, which takes longer than the rest.
    """
    position = start
    row_address = values + 8 * row
    _put_double(row_address, 0, np.nan)
    _put_double(row_address, 1, -1.0)
    answer = 1
    current = first
    while True:
        kind = _integer_at(operations, 4 * current)
        text = _integer_at(operations, 4 * current + 1)
        size = _integer_at(operations, 4 * current + 2)
        column = _integer_at(operations, 4 * current + 3)
        if kind == TEXT:
            if position + size > end or _compare(data + position, texts + text, size):
                return 0
            position += size
        elif kind == END:
            return answer if position == end else 0
        elif kind == SHAPE:
            if position + size > end or not _has_shape(data, position, texts, text, size):
                return 0
            position += size
        elif kind == TIME:
            seconds, position = timestamp(data, position, end)
            if position < 0:
                return 0
            _put_double(row_address, 0, seconds)
        elif kind == BAR:
            stop: Any = np.int64(size)  # the byte that ends it, 0 for the end of the line
            if position < end and byte_at(data, position) == 124:
                position += 1
                stop = 124
            while position < end and byte_at(data, position) != stop:
                position += 1
            if stop == 124:
                position += 1
            if position > end:
                return 0
        else:
            while text & PADDED and position < end and byte_at(data, position) == 32:
                position += 1
            value = 0.0
            begin = position
            if kind == SKIP:
                _, position = number(data, position, end)
                if position < 0 or (text & PLAIN and not _is_plain(data, begin, position)):
                    return 0
            elif kind == FREE:
                while position < end and 48 <= byte_at(data, position) <= 57:
                    position += 1
                if position == begin:
                    return 0
            elif kind == CLOCK:
                value, position = clock(data, position, end)
                if position < 0:
                    return 0
                value *= _double_at(scales, current)
            elif kind == RANK:
                while position < end and 48 <= byte_at(data, position) <= 57:
                    value = value * 10.0 + np.float64(byte_at(data, position) - 48)
                    position += 1
                if position == begin or position - begin > RANK_DIGITS:
                    return 0
                _put_double(row_address, 1, value)
                value *= _double_at(scales, current)
            else:
                value, position = number(data, position, end)
                if position < 0 or (text & PLAIN and not _is_plain(data, begin, position)):
                    return 0
                if kind == NUMBER:
                    value *= _double_at(scales, current)
                elif kind == DIVIDED:
                    value /= _double_at(scales, current)
                else:
                    value = _double_at(scales, current) / value if value != 0.0 else np.inf
                if not np.isfinite(value):
                    answer = 2
            if column >= 0:
                _put_double(row_address, 2 + column, value)
        current += 1


@numba.njit(cache=True)
def _copy(data: Any, start: Any, end: Any, rest: Any, place: Any) -> Any:
    _move(rest + place, data + start, end - start)
    return place + end - start


@numba.njit(cache=True)
def _next(data: Any, position: Any, end: Any, byte: Any) -> Any:
    """Return where the next `byte` is; `end` if there is none."""
    found = _find(data + position, byte, end - position)
    return found - data if found else end


STATE = (
    CONSUMED,
    LINE,
    REST_SIZE,
    RUN_COUNT,
    ROW_COUNT,
    VALUE_COUNT,
    ASIDE_SIZE,
    ASIDE_COUNT,
    FULL,
) = range(9)


@numba.njit(cache=True)
def _clean(data: Any, start: Any, end: Any, rest: Any, place: Any) -> Any:
    """Copy a part without ANSI sequences, as `cleaning.clean` does, and return where the copy ends."""
    position = start
    while position < end:
        escape = _next(data, position, end, 27)
        place = _copy(data, position, escape, rest, place)
        position = escape + 1
        if position >= end:
            break
        byte = byte_at(data, position)
        if byte == 91:  # [, parameters, intermediate bytes, final byte
            after = position + 1
            while after < end and 48 <= byte_at(data, after) <= 63:
                after += 1
            while after < end and 32 <= byte_at(data, after) <= 47:
                after += 1
            if after < end and 64 <= byte_at(data, after) <= 126:
                position = after + 1
            else:
                position += 1  # an unfinished sequence is `ESC [`, as of two bytes
        elif byte == 93:  # ], text, BEL or ESC \\
            after = position + 1
            while after < end and after - position <= 4096 and byte_at(data, after) not in (7, 27):
                after += 1
            if after < end and byte_at(data, after) == 7:
                after += 1
            elif after + 1 < end and byte_at(data, after) == 27 and byte_at(data, after + 1) == 92:
                after += 2
            position = after
        else:
            after = position
            while after < end and 32 <= byte_at(data, after) <= 47:
                after += 1
            if after < end and 48 <= byte_at(data, after) <= 126:
                position = after + 1
    return place


@numba.njit(cache=True)
def _put_line(data: Any, start: Any, end: Any, dirty: Any, target: Any, place: Any) -> Any:
    """Copy a part as a line, without ANSI sequences if it is `dirty`, and return where the copy ends."""
    if dirty:
        place = _clean(data, start, end, target, place)
    else:
        place = _copy(data, start, end, target, place)
    _put_byte(target, place, np.uint8(10))
    return place + 1


@numba.njit(cache=True)
def _put_run(runs: Any, count: Any, place: Any, start: Any, line: Any, end: Any) -> Any:
    """Add where a stretch of a copy comes from, as `walk` says, and return how many there are now."""
    runs[count, 0] = place
    runs[count, 1] = start
    runs[count, 2] = line
    runs[count, 3] = end
    return count + 1


@numba.njit(cache=True, error_model="numpy")
def walk(
    data: Any,
    end: Any,
    complete: Any,
    rest: Any,
    runs: Any,
    aside: Any,
    aside_runs: Any,
    rows: Any,
    values: Any,
    room: Any,
    spread: Any,
    chains: Any,
    operations: Any,
    scales: Any,
    texts: Any,
    state: Any,
) -> None:
    """Walk over the parts of lines in `data[state[CONSUMED]:end]`, until one of the outputs is full.

    `complete` says that what comes last ends here even without a line end. A line of a known layout goes to `rows`
    (layout, where its values begin, place in `data`, line ends before it), and to `aside` too if signatures may match
    it; everything else goes to `rest`, one part a line. `runs` says where stretches of `rest` come from (place in `rest`, place in `data`, line ends before it, where a
    single part ends in `data` or -1 for lines that are copied as they are); `aside_runs` says it of `aside`.
    `chains` says of a layout: the next of its bucket, its first operation, its columns, whether signatures may match
    its lines, whether it holds no metric, its letters.
    """
    position = state[CONSUMED]
    line = state[LINE]
    size = 0
    count = 0
    aside_size = 0
    aside_count = 0
    found = 0
    used = 0
    opened = -1  # where a stretch that is copied as it is began
    opened_line = 0
    next_end = _next(data, position, end, 10)
    next_return = _next(data, position, end, 13)
    next_back = _next(data, position, end, 8)
    next_escape = _next(data, position, end, 27)
    learned = chains.shape[0] > 0
    state[FULL] = 0
    while position < end:
        if (
            count + 4 > runs.shape[0]
            or aside_count >= aside_runs.shape[0]
            or found >= rows.shape[0]
            or used + 512 > room
        ):
            state[FULL] = 1
            break
        if next_end < position:
            next_end = _next(data, position, end, 10)
        if next_return < position:
            next_return = _next(data, position, end, 13)
        if next_back < position:
            next_back = _next(data, position, end, 8)
        if next_escape < position:
            next_escape = _next(data, position, end, 27)
        stop = min(next_end, next_return, next_back)
        last = stop
        if stop - position > LONGEST_PART:
            last = position + LONGEST_PART
        elif stop == end and not complete:
            break
        taken = 0  # 1: nothing is left to do with the line; 2: it goes aside
        if last > position and last - position <= LONGEST_METRIC_LINE and learned:
            key = letters(data, position, last)
            layout = spread[key & (SPREAD - 1)]
            while layout >= 0:
                if chains[layout, 5] == key and chains[layout, 2] + 2 + used <= room:
                    answer = read(
                        data,
                        position,
                        last,
                        chains[layout, 1],
                        operations,
                        scales,
                        texts,
                        values,
                        used,
                    )
                    if answer:
                        taken = 1 if answer == 1 and not chains[layout, 3] else 2
                        if not chains[layout, 4]:
                            rows[found, 0] = layout
                            rows[found, 1] = used
                            rows[found, 2] = position
                            rows[found, 3] = line
                            found += 1
                            used += chains[layout, 2] + 2
                        break
                layout = chains[layout, 0]
        dirty = next_escape < last
        plain = taken == 0 and not dirty and last < end and byte_at(data, last) == 10
        if not plain and opened >= 0:
            count = _put_run(runs, count, size, opened, opened_line, -1)
            size = _copy(data, opened, position, rest, size)
            opened = -1
        if plain:
            if opened < 0:
                opened = position
                opened_line = line
        elif taken == 0 and last > position:
            count = _put_run(runs, count, size, position, line, last)
            size = _put_line(data, position, last, dirty, rest, size)
        elif taken == 2:
            aside_count = _put_run(aside_runs, aside_count, aside_size, position, line, last)
            aside_size = _put_line(data, position, last, dirty, aside, aside_size)
        if last == stop:
            if stop < end and byte_at(data, stop) == 10:
                line += 1
            position = min(stop + 1, end)
        else:
            position = last
    if opened >= 0:
        count = _put_run(runs, count, size, opened, opened_line, -1)
        size = _copy(data, opened, position, rest, size)
    state[CONSUMED] = position
    state[LINE] = line
    state[REST_SIZE] = size
    state[RUN_COUNT] = count
    state[ROW_COUNT] = found
    state[VALUE_COUNT] = used
    state[ASIDE_SIZE] = aside_size
    state[ASIDE_COUNT] = aside_count
