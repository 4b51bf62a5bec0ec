"""Watching a run: a snapshot, then changes within milliseconds. Sleeps until something happens.

Three sources, each enough by itself for a while: a datagram from an agent that changed its record,
the kernel's word that an agent died (pidfd), and a slow look at the folder, which also reads
progress and finds ports that have opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path

from airflow_training.agent.proc import open_pidfd
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.local.scan import AgentProcess, Scanner
from airflow_training.runtimes.port import InstanceRemoval, InstanceUpdate, Snapshot

__all__ = ["watch"]

_LOOK_SECONDS = 5.0
"""How often to look at everything: only a datagram that was lost needs it."""
_PROGRESS_SECONDS = 1.0
_PORT_SECONDS = (0.02, 1.0)
"""How long between two looks for ports that are to open: at first, and after a while."""


async def watch(
    run: RunFolder,
) -> AsyncGenerator[Snapshot | InstanceUpdate | InstanceRemoval, None]:
    """Yield a full snapshot, then every change, until the caller stops asking."""
    with _Doorbell(run.watchers) as doorbell:  # before the first look: nothing may slip through
        scanner = Scanner(run)
        with contextlib.closing(_PidfdWatcher(doorbell.ring)) as deaths:
            await asyncio.to_thread(scanner.poll, None)
            deaths.attend(scanner.agents)
            yield Snapshot(instances=tuple(scanner.seen.values()))
            rhythm = _PollSchedule(asyncio.get_running_loop().time)
            while True:
                rung = await doorbell.wait(rhythm.pause(ports=scanner.awaited_ports))
                look = partial(scanner.poll, rung) if rung else rhythm.due(scanner)
                changes = await asyncio.to_thread(look)
                deaths.attend(scanner.agents)
                for change in changes:
                    yield change


class _PollSchedule:
    """When to look without having been called, and at what."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._next_look = now() + _LOOK_SECONDS
        self._next_progress = now() + _PROGRESS_SECONDS
        self._port_pause = _PORT_SECONDS[0]

    def pause(self, *, ports: bool) -> float:
        """Return how long to sleep, looking often for ports that instances are about to open."""
        wait = min(self._next_look, self._next_progress) - self._now()
        if ports:
            wait = min(wait, self._port_pause)
            self._port_pause = min(self._port_pause * 1.2, _PORT_SECONDS[1])
        else:
            self._port_pause = _PORT_SECONDS[0]
        return max(0.0, wait)

    def due(self, scanner: Scanner) -> Callable[[], list[InstanceUpdate | InstanceRemoval]]:
        """Return the look whose time it is."""
        if self._now() >= self._next_look:
            self._next_look = self._now() + _LOOK_SECONDS
            return partial(scanner.poll, None)
        if self._now() >= self._next_progress:
            self._next_progress = self._now() + _PROGRESS_SECONDS
            return scanner.poll_progress
        return scanner.poll_ports


class _Doorbell:
    """A socket in the run's folder that agents ring with the name of their instance."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._event = asyncio.Event()
        self._rung: set[str] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def __enter__(self) -> _Doorbell:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # through the descriptor: socket paths have room for 107 bytes only
            self._socket.bind(f"/proc/self/fd/{folder}/{self._name}")
        finally:
            os.close(folder)
        asyncio.get_running_loop().add_reader(self._socket, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        with contextlib.suppress(OSError):
            (self._folder / self._name).unlink()

    def ring(self, name: str) -> None:
        """Note that something happened to an instance, and wake who waits."""
        self._rung.add(name)
        self._event.set()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.ring(self._socket.recv(4096).decode())

    async def wait(self, seconds: float) -> set[str]:
        """Return who rang; empty after `seconds` of silence."""
        # not `wait_for`: before Python 3.12 it may swallow a cancellation
        alarm = asyncio.get_running_loop().call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            alarm.cancel()
        self._event.clear()
        rung, self._rung = self._rung, set()
        return rung


class _PidfdWatcher:
    """Rings when an agent dies: the kernel makes its pidfd readable."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring = ring
        self._attended: dict[str, int] = {}

    def attend(self, agents: Mapping[str, AgentProcess]) -> None:
        """Watch over exactly these agents: uid of the object -> who it is."""
        for uid in set(self._attended) - set(agents):
            self._leave(uid)
        for uid in set(agents) - set(self._attended):
            agent = agents[uid]
            descriptor = open_pidfd(agent.pid, agent.start_time)
            if descriptor is None:
                self._ring(agent.instance)  # gone since we looked
                continue
            self._attended[uid] = descriptor
            asyncio.get_running_loop().add_reader(descriptor, self._died, uid, agent.instance)

    def close(self) -> None:
        for uid in list(self._attended):
            self._leave(uid)

    def _died(self, uid: str, instance: str) -> None:
        self._leave(uid)
        self._ring(instance)

    def _leave(self, uid: str) -> None:
        descriptor = self._attended.pop(uid)
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
