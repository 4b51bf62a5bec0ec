"""Ranks meet again where they met before, and not the group that was there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.torch_rendezvous import RankPlace, Rendezvous
from tests.ports import free_port
from tests.waiting import PATIENCE

SECONDS = 20
"""How long ranks wait for each other: a group that breaks while it is formed costs as much."""
NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")


def meet(rank: int, port: int, *, dies: bool) -> None:
    """Sum ones over three ranks; who is left after one has died does so again with whoever comes."""
    torch.set_num_threads(1)
    os.environ |= dict(zip(NAMES, ("127.0.0.1", str(port), str(rank), "3"), strict=True))
    meeting = Rendezvous()
    while not together(meeting, dies=dies):
        meeting.leave()


def come(rank: int, port: int) -> None:
    """Sum ones over three ranks that meet at the first try."""
    os.environ |= dict(zip(NAMES, ("127.0.0.1", str(port), str(rank), "3"), strict=True))
    assert together(Rendezvous(), dies=False)


def together(meeting: Rendezvous, *, dies: bool) -> bool:
    """Return whether all ranks were there to the end."""
    try:
        meeting.form("gloo", seconds=SECONDS)
        dist.all_reduce(torch.ones(1))  # all of them are through
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        total = torch.ones(1)
        dist.all_reduce(total)
    except RuntimeError:
        return False
    assert total.item() == 3
    dist.destroy_process_group()
    return True


@pytest.mark.e2e
@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_a_group_forms_again_at_the_same_address(victim):
    context = multiprocessing.get_context("forkserver")
    port = free_port()

    def start(rank: int, *, dies: bool) -> Any:
        process = context.Process(target=meet, args=(rank, port), kwargs={"dies": dies})
        process.start()
        return process

    first = [start(rank, dies=rank == victim) for rank in range(3)]
    running = list(first)
    try:
        first[victim].join(PATIENCE)
        running.append(start(victim, dies=False))
        for process in running:
            process.join(PATIENCE)
        codes = [process.exitcode for process in first]
        assert codes == [-signal.SIGKILL if rank == victim else 0 for rank in range(3)]
        assert running[-1].exitcode == 0
    finally:
        for process in running:
            process.kill()
            process.join()


@pytest.mark.e2e
def test_a_rank_that_died_while_it_waited_is_not_counted_on():
    context = multiprocessing.get_context("forkserver")
    port = free_port()
    first, dead, last, again = (
        context.Process(target=come, args=(rank, port)) for rank in (0, 2, 1, 2)
    )
    try:
        first.start()
        dead.start()
        store = dist.TCPStore(  # type: ignore[attr-defined]  # documented, not in __all__
            "127.0.0.1", port, timeout=timedelta(seconds=PATIENCE)
        )
        store.wait(["group-0.0-here/2"])
        dead.kill()
        dead.join()
        last.start()  # it finds everybody there, as it seems
        store.wait(["group-0.0-here/1"])
        again.start()
        for process in (first, last, again):
            process.join(PATIENCE)
        assert [process.exitcode for process in (first, last, again)] == [0, 0, 0]
    finally:
        for process in (first, dead, last, again):
            if process.pid:
                process.kill()
                process.join()


def test_what_a_meeting_needs_is_named(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CheckpointError, match="MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE"):
        Rendezvous()


def test_a_port_that_another_program_has_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = RankPlace(host="127.0.0.1", port=taken.getsockname()[1], rank=0, world=2)
        with pytest.raises(RuntimeError, match="in use"):
            Rendezvous(place).meet(seconds=0.1)
