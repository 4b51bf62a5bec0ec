"""A rank's place among ranks that come and go while its process lives, and the plan they carry out.

The environment says it at the start. Later the file of the plan may be replaced by one whose `revision` has a greater number: that
one says which rank this process is from then on, among how many, and where they meet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.errors import InputError
from airflow_training.execution.connections import GroupConnections

__all__ = ["ElasticGroup", "GroupChanged", "PlanRevision", "lost_peers", "revision_of"]

_MEET_SECONDS = 86400.0
"""How long survivors wait for who is to take a lost rank's place, or for a plan without it: that may have to find a machine.
Whoever drives the job ends it earlier where nobody comes."""


class GroupChanged(Exception):
    """The plan has a newer revision: this group ends at a step boundary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRevision:
    """Who this process is under a plan that was changed while it trains."""

    number: int
    """Each is greater than the one before."""
    rank: int
    world: int
    host: str
    """Where rank 0 is."""
    port: int


def revision_of(document: Any, *, path: str = "") -> PlanRevision | None:
    """Return the revision of a plan's document; None: it is the plan of the start.

    Raises:
        InputError: a key is missing, or is no such number.

    """
    given = document.get("revision") if isinstance(document, Mapping) else None
    if given is None:
        return None
    found = given if isinstance(given, Mapping) else {}
    least = {"number": 1, "rank": 0, "world": 1, "port": 1}
    wrong = [key for key, low in least.items() if not _is_from(found.get(key), low)]
    if not isinstance(found.get("host"), str):
        wrong.append("host")
    if not wrong and found["rank"] >= found["world"]:
        wrong.append("rank")
    if wrong:
        raise InputError.of(
            code="BadPlan",
            field=f"revision.{wrong[0]}",
            message="a revision says number, rank (below world), world, host and port",
            value=found.get(wrong[0]),
            path=path,
        )
    return PlanRevision(**{key: found[key] for key in (*least, "host")})


def _is_from(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def lost_peers(error: BaseException | None) -> bool:
    """Whether an error is of the group, and not of what is trained: a rank is gone, or has left.

    torch has classes of errors for NCCL and its store; gloo's are known by the files they name.
    """
    import torch.distributed as dist

    while error is not None:
        if isinstance(error, GroupChanged | dist.DistError):
            return True
        if isinstance(error, RuntimeError) and "gloo" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


class ElasticGroup:
    """The group of this process's ranks, formed again as often as they change."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take part in the group of the environment, or that of the revision in a plan's file.

        Raises:
            CheckpointError: the environment lacks `MASTER_ADDR`, `MASTER_PORT`, `RANK` or `WORLD_SIZE`.
            InputError: a revision that cannot be read.

        """
        from airflow_training.checkpoints.torch_rendezvous import RankPlace, Rendezvous

        self._path = Path(path)
        self._mark: Any = None
        self._revision = 0
        self._connections: GroupConnections | None = None
        self._rendezvous = Rendezvous(RankPlace.of_environment())
        self.follow()

    @staticmethod
    def of_environment(path: str | os.PathLike[str]) -> ElasticGroup | None:
        """Return the group of ranks that have an address each; None where torchrun, or nobody, brings them together."""
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        if "LOCAL_RANK" in os.environ or any(name not in os.environ for name in names):
            return None
        return ElasticGroup(path)

    @property
    def revision(self) -> int:
        """That of the plan that is carried out."""
        return self._revision

    def is_revised(self) -> bool:
        """Whether the plan has a revision that is not followed yet: one look at its file."""
        mark = self._seen()
        if mark == self._mark:
            return False
        self._mark = mark
        return (self._read() or _START).number > self._revision

    def follow(self) -> None:
        """Be who the plan's newest revision says, once the group before was left."""
        from airflow_training.checkpoints.torch_rendezvous import RankPlace

        self._mark = self._seen()
        newest = self._read()
        if newest is None or newest.number <= self._revision:
            return
        self._revision = newest.number
        os.environ |= {
            "RANK": str(newest.rank),
            "WORLD_SIZE": str(newest.world),
            "MASTER_ADDR": newest.host,
            "MASTER_PORT": str(newest.port),
        }
        place = RankPlace.of_environment()
        self._rendezvous.move(
            RankPlace(
                host=place.host,
                port=place.port,
                rank=place.rank,
                world=place.world,
                revision=newest.number,
            )
        )

    def form(self, *, given_up: Callable[[], bool]) -> None:
        """Form the process group with all other ranks; a single one needs none.

        Args:
            given_up: asked while others are waited for; a newer revision ends the waiting by itself.

        Raises:
            GroupChanged: there is one.
            RuntimeError: a rank has gone or did not come.
            InputError: ranks would have to share a GPU.

        """
        import torch

        from airflow_training.execution.mesh import form_group

        if self._rendezvous.place.world == 1:
            return
        revised = False

        def stop() -> bool:
            nonlocal revised
            revised = revised or self.is_revised()
            return revised or given_up()

        def meet() -> Any:
            store = self._rendezvous.meet(seconds=_MEET_SECONDS, given_up=stop)
            # not before: a save that is on its way may open connections while others are waited for
            self._connections = GroupConnections(store_port=self._rendezvous.place.port)
            return store

        try:
            form_group("cuda" if torch.cuda.is_available() else "cpu", meet=meet)
        except RuntimeError as error:
            if revised:
                raise GroupChanged("the plan was revised while ranks were waited for") from error
            raise

    def formed(self) -> None:
        """Say that all groups of the training are made: from here on connections are of something else."""
        if self._connections is not None:
            self._connections.note()

    def leave(self) -> None:
        """Tear the group down, so that all who are still in it see that."""
        self._rendezvous.leave()
        if self._connections is not None:
            self._connections.shut()
            self._connections = None

    def _seen(self) -> Any:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> PlanRevision | None:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # it is being replaced: the next look finds it
            self._mark = None
            return None
        return revision_of(document, path=str(self._path))


_START = PlanRevision(number=0, rank=0, world=1, host="", port=1)
