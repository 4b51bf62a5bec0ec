"""How the processes of a group tell each other what they know, without a network between them.

`SingleProcessAgreement` is for one process, `StoreAgreement` for several that share nothing but the store. With torch, its own
process group does the same faster.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from airflow_training.checkpoints.documents import canonical
from airflow_training.checkpoints.errors import CheckpointError, StaleGeneration
from airflow_training.checkpoints.store import ObjectStore, open_store

__all__ = ["Agreement", "SingleProcessAgreement", "StoreAgreement", "on_coordinator", "wait_until"]

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 1.0


class Agreement(Protocol):
    """Calls that all ranks make in the same order. Values are JSON."""

    def broadcast(self, value: Any) -> Any:
        """Return the value that rank 0 gave, on every rank."""

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks by rank, on every rank."""


class SingleProcessAgreement:
    """The agreement of a single process with itself."""

    def broadcast(self, value: Any) -> Any:
        return value

    def gather(self, value: Any) -> list[Any]:
        return [value]


def on_coordinator(agreement: Agreement, work: Callable[[], Any], *, rank: int) -> Any:
    """Let rank 0 do `work`, and give every rank its result, which is JSON; what fails there fails everywhere.

    Raises:
        StaleGeneration: where rank 0 raised it.
        CheckpointError: where anything else of checkpoints or their store failed on rank 0.
    """
    outcome: dict[str, Any] = {}
    failure: Exception | None = None
    if rank == 0:
        try:
            outcome = {"value": work()}
        except (CheckpointError, OSError) as error:
            failure = error
            outcome = {"error": str(error), "stale": isinstance(error, StaleGeneration)}
    outcome = agreement.broadcast(outcome)
    if "error" not in outcome:
        return outcome["value"]
    if isinstance(failure, CheckpointError):
        raise failure
    kind = StaleGeneration if outcome["stale"] else CheckpointError
    raise kind(outcome["error"]) from failure


def wait_until(look: Callable[[], T | None], *, seconds: float) -> T | None:
    """Call `look` until it finds something, at most for `seconds` (then None); looks less often the longer it takes."""
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while (found := look()) is None:
        left = end - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
    return found


class StoreAgreement:
    """Small objects under the root of the group; every rank polls for those of the others.

    Processes that were started again under the same incarnation must not read what their predecessors left. So they
    meet first: every rank says hello under a name of its own, rank 0 offers a session to those names, and each
    acknowledges the session that knows its name.
    """

    def __init__(
        self,
        root: str | ObjectStore,
        *,
        rank: int,
        world: int,
        incarnation: str = "",
        seconds: float = 300,
    ) -> None:
        """Take part as `rank` of `world`; every wait for the others ends after `seconds`."""
        self._store = open_store(root)
        self._rank = rank
        self._world = world
        self._folder = f"agreements/{incarnation or 'any'}/"
        self._seconds = seconds
        self._session = ""
        self._round = 0
        self._mine: list[str] = []

    def broadcast(self, value: Any) -> Any:
        return self.gather(value if self._rank == 0 else None)[0]

    def gather(self, value: Any) -> list[Any]:
        if not self._session:
            self._session = self._offer() if self._rank == 0 else self._accept()
        before, self._mine = self._mine, []
        folder = f"{self._folder}{self._session}/{self._round:08d}/"
        self._put(f"{folder}{self._rank:05d}", value)
        self._wait(lambda: len(self._store.list(folder)) == self._world or None, "all ranks")
        values = [self._get(f"{folder}{rank:05d}") for rank in range(self._world)]
        self._round += 1
        for key in before:  # all have come to this round: nobody reads the one before any more
            self._store.delete(key)
        return values

    def _offer(self) -> str:
        """As rank 0: return the session that all other ranks have acknowledged."""
        session = secrets.token_hex(8)
        acknowledged = f"{self._folder}{session}/accepted/"
        offered: set[str] = set()

        def look() -> bool | None:
            hellos = {
                key.rpartition("/")[2] for key, _ in self._store.list(f"{self._folder}hello/")
            }
            ranks = {int(name.partition("-")[0]) for name in hellos}
            if hellos - offered and len(ranks) == self._world - 1:
                offered.update(hellos)
                self._put(f"{self._folder}offers/{session}-{len(offered):08d}", sorted(offered))
            return len(self._store.list(acknowledged)) == self._world - 1 or None

        self._wait(look, "the other ranks to start")
        return session

    def _accept(self) -> str:
        """As any other rank: return the session that knows this process."""
        name = f"{self._rank:05d}-{secrets.token_hex(8)}"
        self._put(f"{self._folder}hello/{name}", None)
        refused: set[str] = set()

        def look() -> str | None:
            for key, _ in self._store.list(f"{self._folder}offers/"):
                if key in refused:
                    continue
                if name in self._get(key):
                    return key.rpartition("/")[2].partition("-")[0]
                refused.add(key)
            return None

        session = self._wait(look, "rank 0 to start")
        self._put(f"{self._folder}{session}/accepted/{self._rank:05d}", None)
        return session

    def _wait(self, look: Callable[[], T | None], what: str) -> T:
        found = wait_until(look, seconds=self._seconds)
        if found is None:
            raise CheckpointError(
                f"rank {self._rank} waited {self._seconds:g} s for {what} of {self._world} ranks"
                f" at {self._store.uri}"
            )
        return found

    def _put(self, key: str, value: Any) -> None:
        self._store.create(key, canonical(value))
        self._mine.append(key)

    def _get(self, key: str) -> Any:
        return json.loads(self._store.read(key))
