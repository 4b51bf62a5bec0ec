"""Every route, and who may ask it: with Airflow's own dependency and its simple auth manager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request

from airflow_training.airflow_compat import AIRFLOW
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunKey
from airflow_training.state.records import RunRecord
from airflow_training.state.store import deployment_id, open_store
from tests.web.conftest import a_run
from tests.web.test_rerun_api import JOB

TUNED = f"{JOB}  dag: {{params: {{lr: {{type: number, default: 1.0}}}}}}\n"
USERS = ("", "viewer", "user", "op", "admin", "stranger")
"""`stranger` is an Op of another team than the DAG's."""

READ = {"": 401, "viewer": 200, "user": 200, "op": 200, "admin": 200, "stranger": 403}
ACT = {**READ, "viewer": 403, "user": 202, "op": 202, "admin": 202}
ANYBODY = dict.fromkeys(USERS, 404)
OWN_LIST = {**READ, "stranger": 200}
"""Of what each may read: see below."""
TOKEN_OF_RUN = dict.fromkeys(USERS, 401)
NEW = {**OWN_LIST, "viewer": 403}
"""Of whoever may start runs of the DAG `training_job`, which no team has here."""
BEGUN = {**NEW, "user": 403, "op": 202, "admin": 202, "stranger": 202}
"""Past our own right: Airflow itself refuses the test's `user`."""
NO_PRESET = {**dict.fromkeys(USERS, 404), "": 401}
LOG = {name: 409 if code == 200 else code for name, code in READ.items()}
"""Past the right: Airflow may not open the runtime of the test's run."""
PACKAGE = {name: 422 if code == 200 else code for name, code in READ.items()}
"""Past the right: the test's run trains no network."""
SAVED = {**dict.fromkeys(USERS, 404), "": 401}
"""Past the right: none of this name is saved."""
CHECKED_NETWORK = {**OWN_LIST, "viewer": 403}
BROKEN_NETWORK = {name: 422 if code == 200 else code for name, code in CHECKED_NETWORK.items()}

TABLE: dict[tuple[str, str], dict[str, int]] = {
    ("GET", "/api/me"): OWN_LIST,
    ("GET", "/api/trainings"): OWN_LIST,
    ("GET", "/api/trainings/counts"): OWN_LIST,
    ("GET", "/api/trainings/losses"): OWN_LIST,
    ("GET", "/api/environments"): OWN_LIST,
    ("GET", "/api/usage"): OWN_LIST,
    ("GET", "/api/usage.csv"): OWN_LIST,
    ("GET", "/api/networks"): OWN_LIST,
    ("GET", "/api/networks/{name}"): SAVED,
    ("GET", "/api/networks/{name}/{version}"): SAVED,
    ("PUT", "/api/networks/{name}"): BROKEN_NETWORK,
    ("POST", "/api/networks/check"): CHECKED_NETWORK,
    ("GET", "/api/new"): OWN_LIST,
    ("GET", "/api/schema"): OWN_LIST,
    ("GET", "/api/presets"): OWN_LIST,
    ("GET", "/api/presets/saved"): NO_PRESET,
    ("POST", "/api/presets"): {**NEW, "user": 201, "op": 201, "admin": 201, "stranger": 201},
    ("POST", "/api/check"): NEW,
    ("POST", "/api/plan"): NEW,
    ("POST", "/api/data-files"): {**NO_PRESET, "viewer": 403},
    ("POST", "/api/runs"): BEGUN,
    ("POST", "/api/tunings/check"): NEW,
    ("POST", "/api/tunings"): BEGUN,
    ("GET", "/api/tunings/{tuning}"): SAVED,
    ("GET", "/api/dags/{dag}/dagRuns/{run_id}/trainings"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/events"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/series"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/heat"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/document"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/configuration"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/package"): PACKAGE,
    ("GET", "/api/dags/{dag}/trainings/{uid}/data"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/data/files"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/checkpoints"): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/environment"): READ,
    (
        "GET",
        "/api/dags/{dag}/trainings/{uid}/environment/difference/{other_dag}/{other}",
    ): READ,
    ("GET", "/api/dags/{dag}/trainings/{uid}/predictions"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/predictions/table"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/predictions/picture"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/log"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/log/download"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/log/search"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/log/lines"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/log/next-error"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/log/line"): LOG,
    ("GET", "/api/dags/{dag}/trainings/{uid}/live"): READ,
    ("POST", "/api/dags/{dag}/trainings/{uid}/actions"): ACT,
    ("GET", "/api/dags/{dag}/trainings/{uid}/again"): READ,
    ("POST", "/api/dags/{dag}/trainings/{uid}/again"): ACT,
    ("POST", "/api/dags/{dag}/trainings/{uid}/check"): {**READ, "viewer": 403},
    ("GET", "/static/{name}"): ANYBODY,
    ("GET", "/status"): READ,
    ("GET", "/logs"): READ,
    ("GET", "/log"): LOG,
    ("POST", "/runs/{uid}/progress"): TOKEN_OF_RUN,
}


@pytest.fixture
def served(airflow_home: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a client of the app that Airflow mounts. The token of a user is their name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that Airflow imports
        from airflow.api_fastapi import app as airflow_app
        from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from airflow.models.dag import DagModel
        from fastapi.testclient import TestClient
        from jwt import InvalidTokenError

        from airflow_training.web.logs import app

    class Manager(SimpleAuthManager):
        async def get_user_from_token(self, token: str) -> Any:
            if token not in USERS:
                raise InvalidTokenError(token)
            role, team = ("op", "blue") if token == "stranger" else (token, "red")
            return SimpleAuthManagerUser(username=token, role=role, teams=[team])

        def get_authorized_dag_ids(self, *, user: Any, **_: Any) -> set[str]:
            return set() if user.username == "stranger" else {"digits"}

    teams = {"digits": "red", "secret": "green"}
    monkeypatch.setattr(airflow_app._AuthManagerState, "instance", Manager())
    monkeypatch.setattr(DagModel, "get_team_name", staticmethod(lambda dag, **_: teams.get(dag)))
    monkeypatch.setattr(
        DagModel,
        "get_dag_id_to_team_name_mapping",
        staticmethod(lambda dags, **_: {dag: teams[dag] for dag in dags if dag in teams}),
    )
    monkeypatch.setattr("airflow_training.web.api.live._SECONDS", 0.0)
    airflow = FakeAirflow()

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, AIRFLOW: airflow.app}, receive, send)

    with TestClient(mounted) as client:  # one event loop for all that a test asks
        client.routes, client.airflow = app.routes, airflow  # type: ignore[attr-defined]  # for the tests
        yield client


class FakeAirflow:
    """Airflow's REST API, as far as a run is started again by it."""

    def __init__(self) -> None:
        self.triggered: dict[str, tuple[str, Any]] = {}
        self.app = FastAPI()
        self.app.get("/api/v2/dags/digits/dagRuns/{run_id}")(self.find)
        self.app.post("/api/v2/dags/{dag}/dagRuns")(self.trigger)

    async def find(self, run_id: str) -> Any:
        if run_id != "r":
            raise HTTPException(404, "no such DAG run")
        return {"conf": {"lr": 0.1}}

    async def trigger(self, dag: str, request: Request) -> Any:
        if request.headers["authorization"] == "Bearer user" and dag != "digits":
            raise HTTPException(403, "Forbidden")
        body = {"dag": dag, **await request.json()}
        if body["dag_run_id"] in self.triggered:
            raise HTTPException(409, "it exists")
        self.triggered[body["dag_run_id"]] = (request.headers["authorization"], body)
        return {}


def ask(client: Any, user: str, method: str, path: str, **more: Any) -> Any:
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    if method == "POST" and path.endswith("/again"):
        headers["Idempotency-Key"] = user or "nobody"
        more["json"] = more.get("json", {})
    if path.endswith("/check") or method == "PUT":
        more["json"] = {"document": ""}
    if path in ("/api/runs", "/api/plan", "/api/presets", "/api/data-files"):
        headers["Idempotency-Key"] = user or "nobody"
        more["json"] = {"document": JOB, "name": "mine", "uri": "."}
    if method == "POST" and path.startswith("/api/tunings"):
        headers["Idempotency-Key"] = user or "nobody"
        tried = {"parameters": [{"name": "lr", "values": "0.1"}]}
        more["json"] = {"document": TUNED, "tuning": tried}
    if method == "POST" and path.endswith("/actions"):
        headers["Idempotency-Key"] = user or "nobody"
        seen = "0." + path.rpartition("#")[2] if "#" in path else "0.0"
        more["json"] = {"action": "pause", "seen": seen}
    return client.request(method, path, headers=headers, **more)


def test_every_route_has_a_row(served):
    routes = {(next(iter(route.methods)), route.path) for route in served.routes}
    assert routes == set(TABLE)


@pytest.mark.parametrize(("method", "path"), TABLE)
def test_a_route_answers_who_may_ask(served, method: str, path: str):
    asked = {user: _ask_for_own_run(served, user, method, path) for user in USERS}
    codes = {user: answer.status_code for user, (_, answer) in asked.items()}
    assert codes == TABLE[method, path], {user: answer.text for user, (_, answer) in asked.items()}
    for user, (run, _) in asked.items():
        acted = user in ("user", "op", "admin") and path.endswith("/actions")
        assert len(open_store().requests(run.uid)) == acted, user


def _ask_for_own_run(served: Any, user: str, method: str, path: str) -> tuple[RunRecord, Any]:
    """Ask a route for a run of this user; hold that Airflow was asked in their name, if at all."""
    run = a_run("r", source=deployment_id(), group_id=f"g{user}")
    query = {"role": "worker", "index": 0, "dag_id": "digits", "run_id": "r"}
    query |= {"task_id": f"g{user}.plan", "pattern": "x", "number": 1, "name": "loss", "version": 1}
    query["by"] = user if "presets" in path else "job"
    query = {**query, "run": run.uid} if path == "/status" else query
    same = {"other_dag": "digits", "other": run.uid}
    there = path.format(
        dag="digits", uid=run.uid, run_id="r", name="x.js", version=1, tuning="0" * 12, **same
    )
    served.airflow.triggered.clear()
    answer = ask(served, user, method, there, params=query)
    again = user in ("user", "op", "admin") and method == "POST" and path.endswith("/again")
    new = path in ("/api/runs", "/api/tunings") and TABLE[method, path][user] == 202
    assert len(served.airflow.triggered) == (again or new), answer.text
    if new:
        [(asked_as, body)] = served.airflow.triggered.values()
        assert (asked_as, body["dag"]) == (f"Bearer {user}", "training_job")
        tuned = {"job": TUNED, "parameters": {"lr": 0.1}}
        assert body["conf"] == (tuned if path == "/api/tunings" else {"job": JOB})
    return run, answer


def test_a_run_is_compared_only_with_what_one_may_read(served):
    mine = a_run("r", source=deployment_id())
    for dag, source in (("secret", deployment_id()), ("digits", "elsewhere")):
        other = a_run("r", dag=dag, source=source)
        path = f"/api/dags/digits/trainings/{mine.uid}/environment/difference"
        for name in ("digits", "secret", "~", "%64igits", "%2e%2e", "."):
            answer = ask(
                served, "op", "GET", f"{path}/{name}/{other.uid}", params={"dag": "digits"}
            )
            assert answer.status_code in (403, 404), (name, dag, answer.text)


OTHER_NAMES = (
    ("digits", "secret"),
    ("digits", ""),
    ("~", "secret"),
    ("~", "digits"),
    ("%7e", "secret"),
    ("digits%2f..%2fsecret", "secret"),
    (".", "secret"),
    ("%2e%2e", "secret"),
    ("%73ecret", "secret"),
    ("secret", "secret"),
)
"""Names by which a route is asked for a run, and the DAG that the run is of."""


@pytest.mark.parametrize(("method", "path"), [each for each in TABLE if "{dag}" in each[1]])
def test_no_other_name_of_a_dag_leads_to_its_runs(served, method: str, path: str):
    nothing = {"trainings": [], "more": False, "next": None}
    where = {"role": "worker", "index": 0, "pattern": "x", "number": 1, "name": "loss"}
    queries: tuple[dict[str, str], ...]
    queries = ({}, {"dag_id": "digits"}, {"dag": "digits"}, {"dag_id": "~"})
    for number, (dag, run_dag) in enumerate(OTHER_NAMES):
        run_id, source = f"r{number}", deployment_id() if run_dag else "cli"
        run = a_run(run_id, dag=run_dag, source=source)
        there = path.format(dag=dag, uid=run.uid, run_id=run_id, other_dag=dag, other=run.uid)
        for query in queries:
            answer = ask(served, "op", method, there, params={**where, **query})
            refused = answer.status_code in (403, 404)
            found_none = answer.status_code == 200 and answer.json() == nothing
            assert refused or found_none, (dag, run_dag, query, answer.text)
        assert open_store().requests(run.uid) == []
    assert served.airflow.triggered == {}


def test_airflow_starts_a_run_again_as_the_user_who_asks(served):
    run = a_run("r", source=deployment_id(), group_id="g")
    path = f"/api/dags/digits/trainings/{run.uid}/again"
    first = ask(served, "op", "POST", path)
    assert ask(served, "op", "POST", path).json() == first.json()
    [(name, (by, body))] = served.airflow.triggered.items()
    assert name == first.json()["run_id"]
    assert (by, body["conf"]) == ("Bearer op", {"lr": 0.1})
    assert ask(served, "viewer", "GET", path).json()["possible"] is False
    assert ask(served, "op", "GET", path).json()["possible"] is True


EDITED = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: custom
  image: digits:1
  command: [python, train.py]
  runtime: {name: kubernetes}
  roles: [{name: worker}]
"""


def test_an_edited_document_runs_by_the_generic_dag_as_the_user_who_asks(served):
    run = a_run("r", source=deployment_id(), group_id="g")
    path = f"/api/dags/digits/trainings/{run.uid}/again"
    refused = ask(served, "user", "POST", path, json={"document": EDITED})
    assert (refused.status_code, refused.json()["detail"]) == (403, "Airflow: Forbidden")
    assert open_store().events(run.uid) == []
    first = ask(served, "op", "POST", path, json={"document": EDITED})
    assert ask(served, "op", "POST", path, json={"document": EDITED}).json() == first.json()
    [(name, (by, body))] = served.airflow.triggered.items()
    assert (by, body["dag"], body["conf"]) == ("Bearer op", "training_job", {"job": EDITED})
    key = RunKey(source=deployment_id(), dag_id="training_job", run_id=name)
    assert first.json() == {"dag": "training_job", "run_id": name, "uid": key.uid}


def test_what_airflow_refuses_is_refused_in_its_words(served):
    run = a_run("forgotten", source=deployment_id(), group_id="g")
    answer = ask(served, "op", "POST", f"/api/dags/digits/trainings/{run.uid}/again")
    assert (answer.status_code, answer.json()["detail"]) == (404, "Airflow: no such DAG run")
    assert open_store().events(run.uid) == []
    typed = a_run("typed", dag="", source="cli")
    answer = ask(served, "admin", "POST", f"/api/dags/~/trainings/{typed.uid}/again")
    assert answer.status_code == 409
    assert "airflow-training run --from-run typed" in answer.json()["detail"]


def test_lists_hold_what_each_may_read(served):
    here = deployment_id()
    runs = [
        a_run("mine", source=here),
        a_run("theirs", dag="secret", source=here),
        a_run("typed", dag="", source="cli"),
    ]
    uids = [each.uid for each in runs]
    for uid in uids:
        open_store().progress.save(
            uid, {InstanceKey("worker", 0): ProgressReport(step=1, metrics={"loss": 0.5})}
        )
    seen = {
        user: {
            each["run_id"]
            for each in ask(served, user, "GET", "/api/trainings").json()["trainings"]
        }
        for user in USERS
        if user
    }
    for user in seen:
        losses = ask(served, user, "GET", "/api/trainings/losses", params={"uid": uids})
        assert len(losses.json()["losses"]) == len(seen[user])
    assert seen["viewer"] == {"mine", "typed"}
    assert seen["stranger"] == {"typed"}
    assert ask(served, "forged", "GET", "/api/trainings").status_code == 403


def test_counts_of_many_dags_take_one_look_for_their_teams_and_one_question(served, monkeypatch):
    from airflow.api_fastapi import app as airflow_app
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.models.dag import DagModel

    dags = {f"dag-{number}" for number in range(20)}
    for dag in dags:
        a_run("r", dag=dag, source=deployment_id())
    looks: list[set[str]] = []
    questions: list[int] = []

    def teams_of(dag_ids: list[str], **_: Any) -> dict[str, str | None]:
        looks.append({*dag_ids})
        return dict.fromkeys(dag_ids, "red")

    def one_question(self: Any, requests: Any, *, user: Any) -> bool:
        questions.append(len(requests))
        return all(self.is_authorized_dag(user=user, **each) for each in requests)

    manager = airflow_app._AuthManagerState.instance
    monkeypatch.setattr(type(manager), "get_authorized_dag_ids", lambda self, **_: {*dags})
    monkeypatch.setattr(DagModel, "get_dag_id_to_team_name_mapping", staticmethod(teams_of))
    monkeypatch.setattr(SimpleAuthManager, "batch_is_authorized_dag", one_question)
    counts = ask(served, "viewer", "GET", "/api/trainings/counts").json()
    assert counts["running"] == 20
    assert looks == [dags]
    assert questions == [20]


def test_runs_of_the_command_line_are_for_who_may_read_all_dags(served, monkeypatch):
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    run = a_run("typed", dag="", source="cli")
    path = f"/api/dags/~/trainings/{run.uid}"
    assert ask(served, "viewer", "GET", path).status_code == 200
    assert ask(served, "viewer", "POST", f"{path}/actions").status_code == 403

    def only_named(self: Any, *, details: Any = None, **_: Any) -> bool:
        return details is not None and details.id is not None

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", only_named)
    assert ask(served, "admin", "GET", path).status_code == 403
    assert ask(served, "admin", "GET", "/api/trainings").json()["trainings"] == []
