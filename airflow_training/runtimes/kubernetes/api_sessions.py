"""Connections to one API server: one for each event loop, closed with it, renewed when its credentials run out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.connection import Connect

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

__all__ = ["ApiSession", "ApiSessions"]

_WRITES_IN_FLIGHT = 50


@dataclass(eq=False)
class ApiSession:
    """What belongs to one event loop."""

    clients: list[ApiClient]
    """The newest one is used; the one before it, whose credentials ran out, may still end a call."""
    writes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WRITES_IN_FLIGHT))
    renewal: asyncio.Lock = field(default_factory=asyncio.Lock)
    gave_up_at: float = 0.0
    """When a write found that the server does not answer (monotonic)."""

    @property
    def client(self) -> ApiClient:
        return self.clients[-1]


class ApiSessions:
    """One cluster under one connection; may be used from several event loops, one after another."""

    def __init__(self, connect: Connect, connection: str) -> None:
        self._connect = connect
        self._connection = connection
        self._open: dict[asyncio.AbstractEventLoop, asyncio.Task[ApiSession]] = {}
        self._holders: dict[asyncio.AbstractEventLoop, AsyncIterator[ApiSession]] = {}

    async def current(self) -> ApiSession:
        """Return the session of this event loop; raises RuntimeUnavailable."""
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            # `asyncio.run` finishes the loop's generators: so the connection is closed in time
            self._holders[loop] = self._hold(loop)
            self._open[loop] = loop.create_task(anext(self._holders[loop]))  # type: ignore[arg-type]  # an awaitable of a generator is a coroutine
        opening = self._open[loop]
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and self._open.get(loop) is opening:
                del self._open[loop]  # the next call tries again
            raise

    async def _hold(self, loop: asyncio.AbstractEventLoop) -> AsyncIterator[ApiSession]:
        session = ApiSession(clients=[await self._client()])
        try:
            yield session
        finally:
            self._open.pop(loop, None)
            self._holders.pop(loop, None)
            for client in session.clients:
                await client.close()

    async def _client(self) -> ApiClient:
        try:
            client = await self._connect(self._connection)
        except (OSError, asyncio.TimeoutError) as error:
            raise RuntimeUnavailable(f"cannot connect to the cluster: {error}") from error
        client.user_agent = f"airflow-training/{version('airflow-training')}"
        return client

    async def renew(self, session: ApiSession, refused: ApiClient) -> None:
        """Connect anew: the credentials of a client were refused."""
        async with session.renewal:
            if session.client is not refused:
                return
            session.clients.append(await self._client())
            while len(session.clients) > 2:
                await session.clients.pop(0).close()
