"""A server of the API with users of its own, over a store of its own."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Header, HTTPException, Request

from airflow_training.admission.request import Source
from airflow_training.documents.resolved import RunKey
from airflow_training.runtimes.port import Cursor, LogChunk
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.app import add_routes
from airflow_training.web.new_runs import trial_name
from airflow_training.web.rights import User, Verb, keep_user
from tests.state.samples import a_job, a_ledger, worker
from tests.web.site import Site, serve

SOURCE = "here"


async def _authenticate(request: Request, user: Annotated[str, Header()] = "") -> None:
    if not user:
        raise HTTPException(401, "Not authenticated")
    keep_user(request, User(name=user))


class FakeRights:
    """Users are named in a header: `viewer` reads DAG `digits`, `op` acts on it, `admin` on all."""

    standalone = False
    authenticate = staticmethod(_authenticate)

    def may(self, user: User, verb: Verb, dag_id: str | None) -> bool:
        if user.name == "admin":
            return True
        return dag_id == "digits" and (user.name == "op" or verb not in ("act", "submit"))

    def may_read_of(self, user: User, dag_ids: Collection[str]) -> Collection[str]:
        return {each for each in dag_ids if self.may(user, "read", each or None)}

    def readable(self, user: User) -> Collection[str] | None:
        return None if user.name == "admin" else ["digits"]

    def team_of(self, dag_id: str) -> str | None:
        return {"digits": "red", "secret": "green"}.get(dag_id)

    def sources(self) -> Collection[str] | None:
        return ("cli", SOURCE)


class FakeLogs:
    """A runtime that knows the log of every instance."""

    def __init__(self) -> None:
        self.text = b""
        self.texts: dict[str, bytes] = {}
        """Of single instances, by name."""
        self.over = True

    async def read_log(self, instance: Any, cursor: Cursor, *, limit: int) -> LogChunk:
        text = self.texts.get(f"{instance.role}-{instance.index}", self.text)
        data = text[cursor.offset : cursor.offset + limit]
        end = cursor.offset + len(data)
        over = self.over and end >= len(text)
        return LogChunk(data=data, next=Cursor(offset=end), end=over)


@pytest.fixture
def logs() -> FakeLogs:
    return FakeLogs()


class FakeNewRuns:
    """Keeps what was begun."""

    def __init__(self) -> None:
        self.begun: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
        """Of those that were begun by a document of their own."""
        self.most = 1000
        self.held: threading.Event | None = None
        """All but the first wait until it is set."""
        self.broken: Exception | None = None
        """What beginning the third fails with."""
        self.why = ""

    def refusal(self, run: RunRecord) -> str:
        return self.why

    def key(self, run: RunRecord, digest: str) -> RunKey:
        return RunKey(source=run.key.source, dag_id=run.key.dag_id, run_id=digest)

    async def begin(self, request: Any, run: RunRecord, run_id: str, *, resume: Any) -> None:
        self.begun[run_id] = resume

    document_source: Source = "form"

    def document_key(self, run: RunRecord, digest: str) -> RunKey:
        return RunKey(source=run.key.source, dag_id="training_job", run_id=digest)

    async def begin_document(
        self, request: Any, run: RunRecord, run_id: str, *, document: str
    ) -> None:
        self.begun[run_id] = document

    def new_key(self, job: str, digest: str) -> RunKey:
        return RunKey(source=SOURCE, dag_id="training_job", run_id=f"{job}-{digest}")

    def trial_key(self, job: str, tuning: str, number: int, trials: int) -> RunKey:
        run_id = f"{job}-{trial_name(tuning, number, trials)}"
        return RunKey(source=SOURCE, dag_id="training_job", run_id=run_id)

    async def begin_new(
        self, request: Any, run_id: str, *, document: str, base_dir: str, params: Any = None
    ) -> None:
        if len(self.params) >= self.most:
            raise HTTPException(503, "the server is full")
        if self.params and self.held is not None:
            await asyncio.to_thread(self.held.wait)
        if self.broken is not None and len(self.params) == 2:
            error, self.broken = self.broken, None
            raise error
        self.begun[run_id] = document
        self.params[run_id] = params

    async def connections(self, request: Any) -> Any:
        return ()


@pytest.fixture
def new_runs() -> FakeNewRuns:
    return FakeNewRuns()


@pytest.fixture(scope="session")
def routes() -> FastAPI:
    """Return the app of all tests: to make one takes longer than most of them."""
    served = FastAPI()
    add_routes(served, FakeRights(), runtime_of=FakeLogs, new_runs=FakeNewRuns())  # type: ignore[arg-type]  # what they use of it
    return served


@pytest.fixture
def app(airflow_home: Path, routes: FastAPI, logs: FakeLogs, new_runs: FakeNewRuns) -> FastAPI:
    routes.state.runtime_of = lambda _: logs
    routes.state.new_runs = new_runs
    return routes


@pytest.fixture
def client(app: FastAPI) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that the client imports
        from fastapi.testclient import TestClient
    return TestClient(app, headers={"user": "op"})


def a_run(
    run_id: str = "first", *, dag: str = "digits", source: str = SOURCE, **more: Any
) -> RunRecord:
    """Add a run of a DAG with two workers to the store."""
    by = more.pop("submitted_by", "")
    ledger, job = more.pop("ledger", None), more.pop("job", None)
    return open_store().create_run(
        RunKey(source=source, dag_id=dag, run_id=run_id, **more),
        job or a_job(),
        ledger or a_ledger(worker(0), worker(1), state="Running", started_at=1.0),
        controller="here",
        queue=False,
        submitted_by=by,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The pages of `airflow-training ui` over the store of real runs."""
    with serve(tmp_path_factory.mktemp("site")) as served:
        yield served
