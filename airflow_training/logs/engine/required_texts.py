"""What signatures need in a line so that they can match at all: texts, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from functools import lru_cache

from airflow_training.logs.engine.cache import cached, code, keep
from airflow_training.logs.engine.layouts import letters
from airflow_training.logs.engine.patterns import Pattern

_Ways = Sequence[Sequence[Sequence[str]]]


class RequiredTexts:
    """The texts that some signatures need, in lower case."""

    def __init__(self, ways: _Ways) -> None:
        """`ways` are those in which one of the signatures matches: sets of texts, one of each is then in the line."""
        numbers: dict[str, int] = {}
        self.always = not all(ways)
        """Whether one of them needs nothing."""
        self.ways: dict[int, list[Sequence[frozenset[int]]]] = {}
        """By each text of their first set, all sets of a way, as numbers of texts."""
        for way in filter(None, ways):
            sets = [
                frozenset(numbers.setdefault(text, len(numbers)) for text in texts) for texts in way
            ]
            for number in sets[0]:
                self.ways.setdefault(number, []).append(sets)
        texts = [text.encode("latin-1") for text in numbers]
        self.texts = [(text, frozenset(letters(text))) for text in texts]
        """Each with its letters, which are in a line or not whatever its numbers are."""

    def met_by(self, there: Collection[int]) -> bool:
        """Return whether a signature may match a line that holds these texts, given by their numbers."""
        return self.always or any(
            not any(texts.isdisjoint(there) for texts in way)
            for number in there
            for way in self.ways.get(number, ())
        )


@lru_cache(maxsize=2)
def needs_of(signatures: tuple[Pattern, ...]) -> RequiredTexts:
    """Texts that signatures require; taking hundreds of patterns apart lasts a tenth of a second."""
    wanted = [(each.pattern, each.ignore_case) for each in signatures]
    digest = hashlib.sha256(repr((code(), wanted)).encode()).hexdigest()
    name = f"needs-{digest[:32]}"
    known = cached(name)
    if known is not None:
        return RequiredTexts(json.loads(known))
    ways = [
        [[text.lower().decode("latin-1") for text in texts] for texts in way]
        for each in signatures
        for way in each.required
    ]
    keep(name, json.dumps(ways).encode())
    return RequiredTexts(ways)
