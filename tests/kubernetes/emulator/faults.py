"""Faults that tests switch on: refused, hanging and cut requests, and what watches do to events."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["status", "hang", "hold", "reset-before", "reset-after"]


@dataclass(slots=True, kw_only=True)
class Rule:
    action: Action
    verb: str
    path: str
    times: int
    code: int = 500
    message: str = ""
    """What the server says instead of its usual words."""
    retry_after: int | None = None
    past_dry_runs: bool = False
    """Only of requests that are meant."""
    seconds: float = 0.0
    held: int = 0
    """How many requests wait before the door."""
    door: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Faults:
    """What goes wrong now. `verb` is one of the API (`create`, `watch`, ...) or empty for all."""

    rules: list[Rule] = field(default_factory=list)
    duplicated: bool = False
    """Every watch event is sent twice."""
    http_gone: bool = False
    """A watch from a forgotten version is refused, instead of beginning with an ERROR event."""
    delays: dict[str, float] = field(default_factory=dict)
    """Regex of `namespace/name` -> seconds that events of these objects come late."""

    def take(self, verb: str, path: str, *, dry_run: bool = False) -> Rule | None:
        """Return the first rule that fits this request, and use it up once."""
        for rule in self.rules:
            meant = not (dry_run and rule.past_dry_runs)
            if rule.times and meant and rule.verb in ("", verb) and re.search(rule.path, path):
                rule.times -= 1
                return rule
        return None

    def delay_of(self, key: str) -> float:
        return next((s for pattern, s in self.delays.items() if re.search(pattern, key)), 0.0)
