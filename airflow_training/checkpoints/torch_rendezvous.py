"""Where ranks that outlive each other form their process group again, at the address they had before.

`init_process_group` by itself meets the group before there: its addresses are in the store of torch for as long as rank
0 lives. So each group has a prefix of its own, a number in that store, which whoever leaves a group moves on.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from airflow_training.checkpoints.errors import CheckpointError

__all__ = ["Rendezvous"]

_NUMBER = "group"
_LOOK_SECONDS = 0.02


class Rendezvous:
    """The address of a job with static ranks: `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`."""

    def __init__(self) -> None:
        """Read the environment; raises CheckpointError where the four are not there."""
        try:
            self._host = os.environ["MASTER_ADDR"]
            self._port, self._rank, self._world = (
                int(os.environ[name]) for name in ("MASTER_PORT", "RANK", "WORLD_SIZE")
            )
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"a meeting needs MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE: {error}"
            ) from None
        self._store: Any = None
        self._number = b""

    def form(self, backend: str | None = None, *, seconds: float = 600, **options: Any) -> None:
        """Set up `torch.distributed` with all other ranks, of which some may be new.

        Args:
            backend: as `init_process_group` takes it.
            seconds: how long to wait for the others, and the timeout of collectives.
            **options: more that it takes.

        Raises:
            RuntimeError: a rank has gone meanwhile, or did not come: `leave`, and form the group again.
        """
        wait = timedelta(seconds=seconds)
        if self._store is None:
            self._store = dist.TCPStore(  # type: ignore[attr-defined]  # documented, not in __all__
                self._host,
                self._port,
                is_master=self._rank == 0,
                timeout=wait,
                wait_for_workers=False,
            )
        self._number = self._arrived(time.monotonic() + seconds)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(  # type: ignore[attr-defined]  # documented, not in __all__
                f"{_NUMBER}-{self._number.decode()}", self._store
            ),
            rank=self._rank,
            world_size=self._world,
            timeout=wait,
            **options,
        )

    def _arrived(self, until: float) -> bytes:
        """Return the number of the group that all ranks have come to; raises RuntimeError.

        Whoever waits inside `init_process_group` cannot see that its group is of the past, so ranks wait here, and
        each says twice that it is there: it may have gone while the others were on their way.
        """
        me = uuid.uuid4().hex
        number = b""
        here: list[str] = []
        ready: list[str] = []
        while time.monotonic() < until:
            newest = self._store.compare_set(_NUMBER, "", "0")
            if newest != number:
                number = newest
                here, ready = (
                    [f"{_NUMBER}-{number.decode()}-{said}/{rank}" for rank in range(self._world)]
                    for said in ("here", "ready")
                )
                if self._store.compare_set(here[self._rank], "", me).decode() != me:
                    self._move_on(number)  # this rank has been here before, in another life
                    continue
            if self._store.check(here):
                self._store.set(ready[self._rank], me)
                if self._store.check(ready):
                    return number
            time.sleep(_LOOK_SECONDS)
        missing = [rank for rank, place in enumerate(here) if not self._store.check([place])]
        raise RuntimeError(f"ranks {missing} did not come to {self._host}:{self._port} in time")

    def _move_on(self, number: bytes) -> None:
        """Let the next group be another than this one."""
        self._store.compare_set(_NUMBER, number.decode(), str(int(number) + 1))

    def leave(self) -> None:
        """Tear the group down, as far as it was set up, and let the next one be another."""
        if dist.is_initialized():
            dist.destroy_process_group()
        if self._number:
            with contextlib.suppress(RuntimeError):  # rank 0 is gone: the next one counts anew
                self._move_on(self._number)
            self._number = b""
        if self._rank != 0:
            self._store = None
