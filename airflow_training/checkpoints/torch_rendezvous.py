"""Where ranks that outlive each other form their process group again, at the address they had before.

`init_process_group` by itself meets the group before there: its addresses are in the store of torch for as long as rank
0 lives. So each group has a prefix of its own, a number in that store, which whoever leaves a group moves on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from airflow_training.checkpoints.errors import CheckpointError

__all__ = ["RankPlace", "Rendezvous"]

log = logging.getLogger("airflow_training.checkpoints")

_NUMBER = "group"
_LOOK_SECONDS = 0.02
_ANSWER_SECONDS = 600.0
"""How long the store may take to answer."""
_CONNECT_SECONDS = 2.0
"""How long one try to reach rank 0 takes: between two of them it is looked whether somebody wants to give up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where ranks meet, and which of them this one is."""

    host: str
    port: int
    rank: int
    world: int
    revision: int = 0
    """Those of another number meet apart from each other, also at the same address."""

    @staticmethod
    def of_environment() -> RankPlace:
        """Read `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`; raises CheckpointError where they are not there."""
        try:
            port, rank, world = (
                int(os.environ[name]) for name in ("MASTER_PORT", "RANK", "WORLD_SIZE")
            )
            return RankPlace(host=os.environ["MASTER_ADDR"], port=port, rank=rank, world=world)
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"a meeting needs MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE: {error}"
            ) from None


class Rendezvous:
    """The address of a job with static ranks: `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`."""

    def __init__(self, place: RankPlace | None = None) -> None:
        """Meet at a place; None: that of the environment, and CheckpointError where it has none."""
        self._place = RankPlace.of_environment() if place is None else place
        self._store: Any = None
        self._number = b""

    @property
    def place(self) -> RankPlace:
        """Where this rank meets the others."""
        return self._place

    def move(self, place: RankPlace) -> None:
        """Meet at another place from now on, once the group was left."""
        old = self._place
        serves = old.rank == place.rank == 0 and old.port == place.port
        if not serves:
            self._store = None
        self._place = place

    def form(self, backend: str | None = None, *, seconds: float = 600, **options: Any) -> None:
        """Set up `torch.distributed` with all other ranks, of which some may be new.

        Args:
            backend: as `init_process_group` takes it.
            seconds: how long to wait for the others, and the timeout of collectives.
            **options: more that it takes.

        Raises:
            RuntimeError: a rank has gone meanwhile, or did not come: `leave`, and form the group again.
        """
        store = self.meet(seconds=seconds)
        dist.init_process_group(
            backend,
            store=store,
            rank=self._place.rank,
            world_size=self._place.world,
            timeout=timedelta(seconds=seconds),
            **options,
        )

    def meet(self, *, seconds: float, given_up: Callable[[], bool] = lambda: False) -> Any:
        """Return the store of a group that all ranks have come to, for `init_process_group`.

        Args:
            seconds: how long to wait for the others.
            given_up: asked now and again; where it says so nobody is waited for any more.

        Raises:
            RuntimeError: a rank did not come, or nobody is waited for any more.
        """
        until = time.monotonic() + seconds
        if self._store is None:
            self._store = self._connected(until, given_up)
            self._store.set_timeout(timedelta(seconds=min(seconds, _ANSWER_SECONDS)))
        self._number = self._arrived(until, given_up)
        return dist.PrefixStore(  # type: ignore[attr-defined]  # documented, not in __all__
            f"{_NUMBER}-{self._number.decode()}", self._store
        )

    def _connected(self, until: float, given_up: Callable[[], bool]) -> Any:
        """Return the store that rank 0 serves, which may have to come yet; raises RuntimeError."""
        place, why = self._place, ""
        while not given_up() and time.monotonic() < until:
            try:
                return dist.TCPStore(  # type: ignore[attr-defined]  # documented, not in __all__
                    place.host,
                    place.port,
                    is_master=place.rank == 0,
                    timeout=timedelta(seconds=_CONNECT_SECONDS),
                    wait_for_workers=False,
                )
            except RuntimeError as error:  # nobody serves it yet, or somebody still does
                if not why:
                    log.info(
                        "rank %d is not at %s:%d yet: %s", place.rank, place.host, place.port, error
                    )
                why = str(error).partition("\n")[0]
            time.sleep(_LOOK_SECONDS)
        raise RuntimeError(f"rank 0 did not come to {place.host}:{place.port} in time: {why}")

    def _arrived(self, until: float, given_up: Callable[[], bool]) -> bytes:
        """Return the number of the group that all ranks have come to; raises RuntimeError.

        Whoever waits inside `init_process_group` cannot see that its group is of the past, so ranks wait here, and
        each says twice that it is there: it may have gone while the others were on their way.
        """
        me = uuid.uuid4().hex
        place = self._place
        number = b""
        here: list[str] = []
        ready: list[str] = []
        while time.monotonic() < until and not given_up():
            newest = self._store.compare_set(self._key, "", f"{place.revision}.0")
            if newest != number:
                number = newest
                here, ready = (
                    [f"{_NUMBER}-{number.decode()}-{said}/{rank}" for rank in range(place.world)]
                    for said in ("here", "ready")
                )
                if self._store.compare_set(here[place.rank], "", me).decode() != me:
                    self._move_on(number)  # this rank has been here before, in another life
                    continue
            if self._store.check(here):
                self._store.set(ready[place.rank], me)
                if self._store.check(ready):
                    return number
            time.sleep(_LOOK_SECONDS)
        missing = [rank for rank, said in enumerate(here) if not self._store.check([said])]
        raise RuntimeError(f"ranks {missing} did not come to {place.host}:{place.port} in time")

    @property
    def _key(self) -> str:
        """Where the number of the newest group of this revision is."""
        return f"{_NUMBER}/{self._place.revision}"

    def _move_on(self, number: bytes) -> None:
        """Let the next group be another than this one."""
        revision, _, count = number.decode().partition(".")
        self._store.compare_set(self._key, number.decode(), f"{revision}.{int(count) + 1}")

    def leave(self) -> None:
        """Tear the group down, as far as it was set up, and let the next one be another."""
        if dist.is_initialized():
            dist.destroy_process_group()
        if self._number:
            with contextlib.suppress(RuntimeError):  # rank 0 is gone: the next one counts anew
                self._move_on(self._number)
            self._number = b""
        if self._place.rank != 0:
            self._store = None
