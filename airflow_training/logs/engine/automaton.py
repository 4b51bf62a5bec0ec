"""Which signatures occur in a block and where metric lines may be, in one go over the bytes.

Hyperscan where its wheel is installed, RE2 otherwise, `re` last. All of them only narrow down: what they name is
looked for again with `re` in the single line, so that the answer does not depend on which one is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from airflow_training.logs.engine.cache import cached, keep
from airflow_training.logs.engine.patterns import Pattern, required_literals


class BlockMatches(NamedTuple):
    """What may be in a block."""

    signatures: Sequence[int]
    """Numbers of patterns that may match somewhere."""
    anchors: Sequence[int]
    """Positions inside or directly behind anchors, in order."""


class Automaton(Protocol):
    """Finds candidates in a block of lines, the last of which has an end too."""

    def candidates(self, block: bytearray | memoryview, *, anchors: bool) -> BlockMatches:
        """Candidates in `block`; no anchors unless asked for."""


COMPILED_FROM_BYTES = 1 << 20
"""Of less, each text is looked for by itself before Hyperscan would have compiled them."""
WORTH_COMPILING = 16
"""Blocks with texts of a signature: to look at their lines takes about as long as to compile it, some 30 ms."""


def automaton_for(
    signatures: Sequence[Pattern], anchors: Sequence[str], *, size: int | None
) -> Automaton:
    """Return the fastest automaton for `size` bytes (None: not known) whose library is installed.

    Hyperscan compiles for a second or two the first time that a user scans for these patterns, without the interpreter's
    lock, and is ready in milliseconds ever after; RE2 compiles while it matches. A small input is done before that.
    """
    small = size is not None and size < COMPILED_FROM_BYTES
    with contextlib.suppress(ImportError, _NotCompiledError):
        return Hyperscan(signatures, anchors, compiled_before=small)
    if not small:
        with contextlib.suppress(ImportError):
            return Re2(signatures, anchors)
    return LiteralAutomaton(signatures, anchors)


@lru_cache(maxsize=2)
def anchor_literals(anchors: tuple[str, ...]) -> list[bytes]:
    """Return texts one of which is in every line that an anchor matches; case may not count."""
    return sorted({text for anchor in anchors for text in required_literals(anchor)})


def _anchor_search(anchors: Sequence[str]) -> Callable[[Any], list[int]]:
    """Return a function that finds the ends of lines with an anchor in a block, with `re`."""
    if not anchors:
        return lambda _block: []
    pattern = re.compile(_line_with(anchors), re.IGNORECASE if _any_case(anchors) else 0)
    return lambda block: [found.end() for found in pattern.finditer(block)]


def _fast_anchor_search(re2: Any, anchors: Sequence[str]) -> Callable[[Any], list[int]]:
    """As `_anchor_search`, with RE2: some thirty times as fast."""
    if not anchors:
        return lambda _block: []
    options = _options(re2)
    options.case_sensitive = not _any_case(anchors)
    pattern = re2.compile(_line_with(anchors), options)
    return lambda block: [found.end() for found in pattern.finditer(block)]


def _any_case(anchors: Sequence[str]) -> bool:
    return any("(?i" in anchor for anchor in anchors)


def _line_with(anchors: Sequence[str]) -> bytes:
    """Return a pattern of an anchor and the rest of its line: a line is found once, however many it holds."""
    texts = (re.escape(text) for text in anchor_literals(tuple(anchors)))
    return b"(?:" + b"|".join(texts) + rb")[^\n]*"


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.one_line = False
    options.never_capture = True
    options.log_errors = False
    options.max_mem = 64 << 20
    return options


class LiteralAutomaton:
    """Each literal looked for by itself: needs nothing, is ready at once."""

    def __init__(self, signatures: Sequence[Pattern], anchors: Sequence[str]) -> None:
        self.signatures = signatures
        self.anchors = _anchor_search(anchors)

    def candidates(self, block: bytearray | memoryview, *, anchors: bool) -> BlockMatches:
        """Candidates in `block`."""
        data = bytes(block)
        lower = data.lower()
        found = [
            number
            for number, pattern in enumerate(self.signatures)
            if not pattern.literals
            or any(text in (lower if pattern.any_case else data) for text in pattern.literals)
        ]
        return BlockMatches(found, self.anchors(data) if anchors else ())


class Re2:
    """All signatures in one RE2 set, all anchors in one expression."""

    def __init__(self, signatures: Sequence[Pattern], anchors: Sequence[str]) -> None:
        import re2  # an extra; heavy

        self.set = re2.Set.SearchSet(_options(re2))
        self.always: list[int] = []
        self.numbers: list[int] = []
        for number, pattern in enumerate(signatures):
            case = "(?im)" if pattern.ignore_case else "(?m)"
            try:
                self.set.Add((case + pattern.pattern).encode())
            except re2.error:
                self.always.append(number)
            else:
                self.numbers.append(number)
        self.set.Compile()
        self.anchors = _fast_anchor_search(re2, anchors)

    def candidates(self, block: bytearray | memoryview, *, anchors: bool) -> BlockMatches:
        """Candidates in `block`."""
        data = bytes(block)
        found = [self.numbers[index] for index in self.set.Match(data) or ()]
        return BlockMatches(sorted(found + self.always), self.anchors(data) if anchors else ())


class _NotCompiledError(Exception):
    """This user has no compiled database of these expressions."""


class Hyperscan:
    """Texts that matches hold, and anchors, in one Hyperscan database; each signature that is often near in one of its own.

    Most blocks hold few of the texts, and these are found in half the time that all signatures take.
    """

    def __init__(
        self,
        signatures: Sequence[Pattern],
        anchors: Sequence[str],
        *,
        compiled_before: bool = False,
    ) -> None:
        """`compiled_before`: only databases that were compiled before are used, else _NotCompiledError is raised."""
        import hyperscan  # an extra; heavy

        any_case = any("(?i" in anchor for anchor in anchors)
        places = [
            (len(signatures), re.escape(text), hyperscan.HS_FLAG_CASELESS * any_case)
            for text in anchor_literals(tuple(anchors))
        ]
        texts = [
            (number, re.escape(text), _flags(hyperscan, any_case=pattern.any_case))
            for number, pattern in enumerate(signatures)
            for text in pattern.literals
        ]
        self.hyperscan = hyperscan
        self.patterns = signatures
        self.without_texts = [
            number for number, pattern in enumerate(signatures) if not pattern.literals
        ]
        self.texts = _database(hyperscan, texts, compiled_before=compiled_before)
        self.all = (
            _database(hyperscan, texts + places, compiled_before=compiled_before)
            if places
            else self.texts
        )
        self._found: Counter[int] = Counter()
        """In how many blocks texts of a signature were found."""
        self._exact: dict[int, Any] = {}
        """Databases of single signatures; None of one that Hyperscan does not take."""

    def candidates(self, block: bytearray | memoryview, *, anchors: bool) -> BlockMatches:
        """Candidates in `block`."""
        if not len(block):
            return BlockMatches((), ())
        numbers: set[int] = set(self.without_texts)
        positions: list[int] = []
        count = len(self.patterns)

        def found(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            if number < count:
                numbers.add(number)
            else:
                positions.append(end)

        database = self.all if anchors else self.texts
        if database is not None:
            database.scan(block, match_event_handler=found)
        return BlockMatches(
            [number for number in sorted(numbers) if self._may_match(number, block)], positions
        )

    def _may_match(self, number: int, block: bytearray | memoryview) -> bool:
        pattern = self.patterns[number]
        if pattern.literals:
            self._found[number] += 1
            if pattern.ends_only or self._found[number] <= WORTH_COMPILING:
                return True  # healthy logs are full of what is told at the end only: its texts are enough
        if number not in self._exact:
            flags = _flags(self.hyperscan, any_case=pattern.ignore_case)
            expression = (number, pattern.pattern.encode(), flags)
            self._exact[number] = None
            with contextlib.suppress(self.hyperscan.error):
                self._exact[number] = _compiled(self.hyperscan, [expression])
        database = self._exact[number]
        if database is None:
            return True
        hits: list[int] = []
        database.scan(block, match_event_handler=lambda *hit: hits.append(hit[0]))
        return bool(hits)


def _flags(hyperscan: Any, *, any_case: bool) -> int:
    once = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_MULTILINE
    return int(once | hyperscan.HS_FLAG_CASELESS * any_case)


def _database(
    hyperscan: Any, texts: Sequence[tuple[int, bytes, int]], *, compiled_before: bool
) -> Any:
    """Return the compiled database of (number, text, flags), from the user's cache folder if it is there; None of none.

    Compiling thousands of texts takes a second or two.
    """
    if not texts:
        return None
    digest = hashlib.sha256(repr((hyperscan.__version__, texts)).encode()).hexdigest()
    name = f"hyperscan-{digest[:32]}"
    kept = cached(name)
    if kept is not None:
        try:
            database = hyperscan.loadb(kept, hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
        except hyperscan.error:
            pass  # of another version or processor, or damaged
        else:
            return database
    if compiled_before:
        raise _NotCompiledError
    database = _compiled(hyperscan, texts)
    keep(name, hyperscan.dumpb(database))
    return database


def _compiled(hyperscan: Any, expressions: Sequence[tuple[int, bytes, int]]) -> Any:
    database = hyperscan.Database()
    database.compile(
        expressions=[text for _, text, _ in expressions],
        ids=[number for number, _, _ in expressions],
        flags=[flags for _, _, flags in expressions],
    )
    return database
