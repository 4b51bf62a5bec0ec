"""The client of the API against a server, a proxy or credentials that are not well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import Forbidden, ResourceVersionExpired
from airflow_training.runtimes.kubernetes.kinds import PODS
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk
from airflow_training.supervise.instance_logs import RunLogs
from tests.kubernetes import samples


class Response:
    def __init__(self, status: int, content: bytes) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self.content = self
        self._content = content

    async def read(self) -> bytes:
        return self._content

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._content

    async def __aenter__(self) -> Response:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class Client:
    """Answers every request in the same way."""

    user_agent = ""

    def __init__(self, answer: Callable[[], Response]) -> None:
        self.answer = answer
        self.closed = False
        self.asked = 0

    async def call_api(self, *_: Any, **__: Any) -> Response:
        self.asked += 1
        await asyncio.sleep(0)
        return self.answer()

    async def close(self) -> None:
        self.closed = True


class Cluster:
    def __init__(self, status: int = 200, answer: Any = b"") -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.response = lambda: Response(status, content)
        self.clients: list[Client] = []

    async def connect(self, connection: str) -> Any:
        await asyncio.sleep(0)
        self.clients.append(Client(self.response))
        return self.clients[-1]

    def api(self, budget_seconds: float = 0.3) -> Api:
        return Api(self.connect, budget_seconds=budget_seconds)


async def watched(api: Api) -> list[Any]:
    events = api.watch(PODS, "team", selector="", resource_version="1", timeout_seconds=300)
    return [event async for event in events]


@pytest.mark.e2e
async def test_the_page_of_a_proxy_is_no_answer():
    api = Cluster(200, b"<html>please log in</html>").api()
    with pytest.raises(RuntimeUnavailable, match="no answer of a cluster"):
        await api.get(PODS, "team", "a")
    with pytest.raises(RuntimeUnavailable, match="no answer of a cluster"):
        await watched(Cluster(200, b"<html>please log in</html>\n").api())


@pytest.mark.parametrize(
    ("code", "error"), [(410, ResourceVersionExpired), (500, RuntimeUnavailable)]
)
async def test_only_an_old_version_makes_a_watch_list_again(code, error):
    event = {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "odd"}}
    with pytest.raises(error, match="odd"):
        await watched(Cluster(200, json.dumps(event).encode() + b"\n").api())


async def test_refused_credentials_are_renewed_once_a_call_and_leave_no_clients_open():
    cluster = Cluster(401, {"message": "Unauthorized"})
    api = cluster.api()
    for _ in range(10):
        refused = await asyncio.gather(
            *(api.get(PODS, "team", "a") for _ in range(3)), return_exceptions=True
        )
        assert [str(each) for each in refused] == ["Unauthorized"] * 3
    assert len(cluster.clients) <= 11
    assert sum(not each.closed for each in cluster.clients) == 2


@pytest.mark.e2e
async def test_a_thousand_writes_give_up_together():
    cluster = Cluster(503, {"message": "away"})
    api = cluster.api(budget_seconds=0.3)
    answers = await asyncio.gather(
        *(api.create(PODS, "team", {}) for _ in range(1000)), return_exceptions=True
    )
    assert {type(each) for each in answers} == {RuntimeUnavailable}
    # only the fifty under way asked: three times each, as pauses that double fill 0.3 s
    assert cluster.clients[0].asked <= 50 * 3
    with pytest.raises(RuntimeUnavailable, match="away"):  # asked anew: the server is, too
        await api.create(PODS, "team", {})


def test_a_log_that_was_read_leaves_no_connection_open():
    cluster = Cluster(200, b"words\n")
    api = cluster.api()

    class Logs:
        async def read_log(self, instance: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk:
            data = await api.log("team", "a", container="main")
            return LogChunk(data=data, next=Cursor(offset=len(data)), end=True)

    anything: Any = None
    logs = RunLogs(store=anything, record=anything, runtime=cast("Any", Logs()))
    log = logs.open_ref("worker-0", samples.an_instance(samples.a_job()).ref)
    assert log.read(0, 100).data == b"words\n"
    log.close()
    assert [each.closed for each in cluster.clients] == [True]


async def test_what_is_not_allowed_is_said_at_once():
    cluster = Cluster(403, {"reason": "Forbidden", "message": "no rights"})
    with pytest.raises(Forbidden, match="no rights"):
        await cluster.api().create(PODS, "team", {})
    assert cluster.clients[0].asked == 1


class Quiet(Response):
    """A stream that says one thing, and nothing more until it is told to."""

    def __init__(self) -> None:
        super().__init__(200, json.dumps({"type": "BOOKMARK", "object": {}}).encode() + b"\n")
        self.more = asyncio.Event()

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._content
        await self.more.wait()
        yield self._content


class Silent(Cluster):
    """Watches are quiet; what else is asked is answered by `answers`."""

    def __init__(self, answers: Callable[[int], Awaitable[Response]]) -> None:
        super().__init__()
        self.stream, self.asked, self.answers = Quiet(), 0, answers

    async def connect(self, connection: str) -> Any:
        client = await super().connect(connection)

        async def call_api(*_: Any, query_params: Sequence[tuple[str, str]], **__: Any) -> Response:
            if ("watch", "true") in query_params:
                return self.stream
            self.asked += 1
            return await self.answers(self.asked)

        client.call_api = call_api
        return client


async def _never(_: int) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.e2e
async def test_a_server_that_hangs_with_its_connections_open_is_noticed():
    cluster = Silent(_never)
    seen: list[str] = []
    with pytest.raises(RuntimeUnavailable, match=r"does not answer: nothing for 0\.4 s"):
        await _watch_into(seen, cluster.api(), silent_seconds=0.4)
    assert (seen, cluster.asked) == (["BOOKMARK"], 1)


@pytest.mark.e2e
@pytest.mark.parametrize("retry_after", [60, 0.02], ids=["later", "soon"])
@pytest.mark.parametrize("status", [200, 403, 429, 503])
async def test_a_server_that_answers_at_all_may_be_silent_for_long(status, retry_after):
    cluster: Silent

    async def answers(number: int) -> Response:
        if number == (3 if retry_after > 1 else 12):
            cluster.stream.more.set()
        await asyncio.sleep(0)
        response = Response(status, json.dumps({"kind": "Status"}).encode())
        response.headers["Retry-After"] = str(retry_after)
        return response

    cluster = Silent(answers)
    seen: list[str] = []
    await _watch_into(seen, cluster.api(), silent_seconds=0.2)
    assert seen == ["BOOKMARK", "BOOKMARK"]


@pytest.mark.e2e
async def test_a_load_balancer_before_a_server_that_hangs_is_no_answer():
    async def unavailable(_: int) -> Response:
        await asyncio.sleep(0)
        response = Response(503, b"<html>no upstream</html>")
        response.headers["Retry-After"] = "60"
        return response

    with pytest.raises(RuntimeUnavailable, match="does not answer"):
        await _watch_into([], Silent(unavailable).api(), silent_seconds=0.4)


async def _watch_into(seen: list[str], api: Api, *, silent_seconds: float) -> None:
    events = api.watch(
        PODS,
        "team",
        selector="",
        resource_version="1",
        timeout_seconds=300,
        silent_seconds=silent_seconds,
    )
    async for kind, _ in events:
        seen.append(kind)
