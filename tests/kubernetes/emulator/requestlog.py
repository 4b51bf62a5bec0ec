"""Every request the server saw, for tests and benchmarks that count them."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    at: float
    """`time.monotonic()` of the server's process at arrival."""
    verb: str
    resource: str
    """With the subresource: `pods/log`; empty for discovery."""
    namespace: str
    name: str
    user: str
    agent: str
    code: int
    path: str
    """With the query."""


@dataclass(slots=True)
class RequestLog:
    requests: list[Request] = field(default_factory=list)

    def add(self, **values: object) -> None:
        self.requests.append(Request(**values))  # type: ignore[arg-type]  # the caller names them

    def counts(self, *, agent: str = "", since: float = 0.0) -> Counter[tuple[str, str]]:
        """Return how often each (verb, resource) was asked for, by agents that contain `agent`."""
        return Counter(
            (one.verb, one.resource)
            for one in self.requests
            if agent in one.agent and one.at >= since
        )

    def clear(self) -> None:
        self.requests.clear()


def arrival() -> float:
    return time.monotonic()
