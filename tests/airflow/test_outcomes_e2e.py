"""The outcome table: what a user does to a run or a task, and what becomes of the training.

Every row is a job of its own. All of them run at once: first they are started, then the users act,
then each test looks at what became of one of them. `docs/outcomes.md` is the same table in words.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_training.runtimes.local.node import this_node
from tests.airflow.stack import Airflow
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

DOCS = Path(__file__).parents[2] / "docs" / "outcomes.md"
WAITS = (
    {"name": "worker"},
    {"name": "late", "dependsOn": [{"role": "worker", "status": "Complete"}]},
)

Act = Callable[[Airflow, str, str], object]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One user action and its effect."""

    name: str
    title: str
    """As the docs write it."""
    act: Act
    goes_on: bool = False
    """The training is not stopped: the test lets it end."""
    run: str = "failed"
    """Final state of the DAG run."""
    job: str = "Stopped"
    tasks: Mapping[str, str] = field(default_factory=dict)
    starts: int = 1
    """How often the first worker was started."""
    roles: tuple[Mapping[str, Any], ...] = ()
    then: Act | None = None
    """What the user does once the job has ended."""
    sample: bool = False
    """`make e2e` has it too, not only `make soak`."""


def mark(task_id: str, state: str) -> Act:
    return lambda airflow, dag, run: airflow.mark_task(dag, run, task_id, state)


def clear(task_id: str) -> Act:
    return lambda airflow, dag, run: airflow.clear(dag, run, task_id)


def delete_run_and_be_refused(airflow: Airflow, dag: str, run: str) -> None:
    answer = airflow.ask("DELETE", f"/dags/{dag}/dagRuns/{run}")
    assert answer.status_code == 409, answer.text


ROWS = [
    Row(
        name="run-failed",
        sample=True,
        title="DAG run marked failed",
        act=lambda airflow, dag, run: airflow.mark_run(dag, run, "failed"),
        tasks={"reconcile": "failed", "worker.run": "failed", "cleanup": "success"},
    ),
    Row(
        name="run-success",
        title="DAG run marked successful",
        act=lambda airflow, dag, run: airflow.mark_run(dag, run, "success"),
        tasks={"reconcile": "success", "rollup": "failed", "cleanup": "success"},
    ),
    Row(
        name="reconcile-failed",
        title="`reconcile` marked failed",
        act=mark("reconcile", "failed"),
        tasks={"reconcile": "failed", "worker.run": "skipped", "cleanup": "success"},
    ),
    Row(
        name="reconcile-success",
        sample=True,
        title="`reconcile` marked successful",
        act=mark("reconcile", "success"),
        tasks={"reconcile": "success", "rollup": "failed", "cleanup": "success"},
    ),
    Row(
        name="role-failed",
        sample=True,
        title="`<role>.run` marked failed",
        act=mark("worker.run", "failed"),
        tasks={"worker.run": "failed", "reconcile": "failed", "cleanup": "success"},
    ),
    Row(
        name="role-success",
        title="`<role>.run` marked successful",
        act=mark("worker.run", "success"),
        goes_on=True,
        run="success",
        job="Succeeded",
        tasks={"worker.run": "success", "reconcile": "success"},
    ),
    Row(
        name="sensor-failed",
        sample=True,
        title="`<role>.await_<dependency>` marked failed",
        act=mark("late.await_worker", "failed"),
        roles=WAITS,
        tasks={"late.run": "upstream_failed", "reconcile": "failed", "cleanup": "success"},
    ),
    Row(
        name="sensor-success",
        title="`<role>.await_<dependency>` marked successful",
        act=mark("late.await_worker", "success"),
        roles=WAITS,
        goes_on=True,
        run="success",
        job="Succeeded",
        tasks={"late.run": "success"},
    ),
    Row(
        name="plan-failed",
        title="`plan` marked failed, after it has run",
        act=mark("plan", "failed"),
        goes_on=True,
        run="success",
        job="Succeeded",
        tasks={"plan": "failed", "reconcile": "success"},
    ),
    Row(
        name="reconcile-cleared",
        sample=True,
        title="`reconcile` cleared while it runs",
        act=clear("reconcile"),
        goes_on=True,
        run="success",
        job="Succeeded",
        tasks={"reconcile": "success"},
    ),
    Row(
        name="role-cleared",
        title="`<role>.run` cleared while it runs",
        act=clear("worker.run"),
        goes_on=True,
        run="success",
        job="Succeeded",
        tasks={"worker.run": "success"},
    ),
    Row(
        name="plan-cleared",
        sample=True,
        title="`plan` cleared while the job runs",
        act=clear("plan"),
        goes_on=True,
        run="success",
        job="Succeeded",
        starts=2,
        tasks={"plan": "success", "reconcile": "success"},
    ),
    Row(
        name="dag-paused",
        title="DAG paused",
        act=lambda airflow, dag, run: airflow.pause_dag(dag),
        then=lambda airflow, dag, run: airflow.pause_dag(dag, paused=False),
        goes_on=True,
        run="success",
        job="Succeeded",
    ),
    Row(
        name="run-deleted",
        sample=True,
        title="DAG run deleted while it runs",
        act=delete_run_and_be_refused,
        goes_on=True,
        run="success",
        job="Succeeded",
    ),
]

TIMED = '''
"""A DAG with limits of its own around a job (airflow dag)."""
from datetime import timedelta
from airflow.sdk import DAG
from airflow_training import training

with DAG("run-timeout", schedule=None, dagrun_timeout=timedelta(hours=1)):
    training("../jobs-of-python/run-timeout.yaml", group_id="g")
with DAG("task-timeout", schedule=None):
    group = training("../jobs-of-python/task-timeout.yaml", group_id="g")
    group.children["g.reconcile"].execution_timeout = timedelta(seconds=30)
'''


@pytest.fixture(scope="module")
def runs(airflow: Airflow, request: pytest.FixtureRequest) -> dict[str, str]:
    """Start every row that has a test in this session, let the users act; return DAG id -> run id."""
    name = test_what_becomes_of_the_training.__name__
    tests = [each for each in request.session.items if isinstance(each, pytest.Function)]
    given = [each.callspec.params["row"] for each in tests if each.originalname == name]
    rows = [row for row in given if isinstance(row, Row)]
    for row in rows:
        airflow.write(airflow.document(row.name, *row.roles))
    runs = {row.name: airflow.trigger(row.name) for row in rows}
    for row in rows:
        airflow.wait_started(row.name)
        airflow.wait_begun(row.name, runs[row.name], "reconcile", "worker.run")
    for row in rows:
        row.act(airflow, row.name, runs[row.name])
    return runs


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=() if row.sample else pytest.mark.soak) for row in ROWS],
)
def test_what_becomes_of_the_training(airflow: Airflow, runs: dict[str, str], row: Row):
    run_id = runs[row.name]
    if row.goes_on:
        wait_until(lambda: _settled(airflow, row, run_id), f"{row.name} has a new task")
        airflow.end(row.name)
    if row.then is not None:
        wait_until(lambda: airflow.ledger(row.name, run_id).job.drained, "the job ended")
        row.then(airflow, row.name, run_id)
    assert airflow.wait_run(row.name, run_id) == row.run
    states = airflow.states(row.name, run_id)
    assert {name: states[name] for name in row.tasks} == dict(row.tasks)
    assert airflow.alive(row.name) == []
    assert airflow.ledger(row.name, run_id).job.state == row.job
    assert len(airflow.pids(row.name)["worker-0"]) == row.starts


def _settled(airflow: Airflow, row: Row, run_id: str) -> bool:
    """Return whether what the user did has had its effect: the new try or new process is there."""
    if "cleared" not in row.name:
        return True
    tries = airflow.tries(row.name, run_id)
    states = airflow.states(row.name, run_id)
    task = {"reconcile": "reconcile", "role": "worker.run", "plan": "reconcile"}[
        row.name.partition("-")[0]
    ]
    started = len(airflow.pids(row.name).get("worker-0", []))
    return tries[task] > 1 and states[task] == "deferred" and started >= row.starts


@pytest.fixture(scope="module")
def timed(airflow: Airflow) -> Airflow:
    """Add the DAGs that have limits of their own."""
    for name in ("run-timeout", "task-timeout"):
        airflow.write(airflow.document(name), folder="jobs-of-python")
    (airflow.stack.home / "dags" / "timed.py").write_text(TIMED)
    return airflow


def test_a_dag_run_timeout_leaves_nothing_alive(timed: Airflow):
    """The teardowns are skipped too, so the loop itself must bring the run to zero."""
    run_id = timed.trigger("run-timeout")
    timed.wait_started("run-timeout")
    timed.wait_begun("run-timeout", run_id, "g.reconcile", group_id="g")
    timed.age("run-timeout", run_id, hours=2)
    assert timed.wait_run("run-timeout", run_id) == "failed"
    assert timed.states("run-timeout", run_id)["g.cleanup"] == "skipped"
    timed.wait_nothing_alive("run-timeout")
    wait_until(
        lambda: timed.ledger("run-timeout", run_id, group_id="g").job.state == "Stopped",
        "the job stopped",
    )


@pytest.mark.soak
def test_a_task_timeout_of_reconcile_fails_the_run_and_leaves_nothing_alive(timed: Airflow):
    run_id = timed.trigger("task-timeout")
    timed.wait_started("task-timeout")
    assert timed.wait_run("task-timeout", run_id) == "failed"
    assert timed.states("task-timeout", run_id)["g.reconcile"] == "failed"
    assert timed.alive("task-timeout") == []


AGAIN = """\
echo $$$$ >> {room}/{job}.$TRAINING_ROLE-$TRAINING_INDEX
[ $TRAINING_ROLE = good ] && exit 0
[ -e {room}/{job}.repaired ] || exit 3
"""


@pytest.mark.parametrize("task_id", ["reconcile", pytest.param("bad.run", marks=pytest.mark.soak)])
def test_clearing_after_the_end_goes_on_with_what_has_not_finished(airflow: Airflow, task_id: str):
    """A new epoch: the finished role does not run again. `rollup` and `cleanup` follow it."""
    job = f"again-{task_id.partition('.')[0]}"
    document = airflow.document(
        job,
        {"name": "good"},
        {
            "name": "bad",
            "restartPolicy": "Never",
            "dependsOn": [{"role": "good", "status": "Complete"}],
        },
        command=["sh", "-c", AGAIN.format(room=airflow.room, job=job)],
    )
    airflow.write(document)
    run_id = airflow.trigger(job)
    assert airflow.wait_run(job, run_id) == "failed"
    assert airflow.states(job, run_id)["bad.run"] == "failed"
    (airflow.room / f"{job}.repaired").touch()
    airflow.clear(job, run_id, task_id)
    airflow.wait_run(job, run_id)
    states = airflow.states(job, run_id)
    assert states[task_id] == "success"
    assert states["rollup"] == "success"
    pids = airflow.pids(job)
    assert (len(pids["good-0"]), len(pids["bad-0"])) == (1, 2)
    ledger = airflow.ledger(job, run_id)
    assert (ledger.job.state, ledger.job.epoch) == ("Succeeded", 1)
    # what is over stays over: telling the end once more starts nothing
    airflow.clear(job, run_id, "rollup")
    airflow.wait_run(job, run_id)
    assert airflow.states(job, run_id)["rollup"] == "success"
    assert airflow.pids(job) == pids


@pytest.mark.parametrize(
    ("code", "state"), [pytest.param(0, "success", marks=pytest.mark.soak), (3, "failed")]
)
def test_clearing_cleanup_alone_changes_nothing(airflow: Airflow, code: int, state: str):
    job = f"cleaned-{state}"
    script = f"echo $$$$ >> {airflow.room}/{job}.worker-0; exit {code}"
    role = {"name": "worker", "restartPolicy": "Never"}
    airflow.write(airflow.document(job, role, command=["sh", "-c", script]))
    run_id = airflow.trigger(job)
    assert airflow.wait_run(job, run_id) == state
    before, pids = airflow.ledger(job, run_id), airflow.pids(job)
    assert airflow.clear(job, run_id, "cleanup", downstream=False) == ["cleanup"]
    assert airflow.wait_run(job, run_id) == state
    assert airflow.states(job, run_id)["cleanup"] == "success"
    tries = airflow.tries(job, run_id)
    assert {name for name, number in tries.items() if number > 1} == {"cleanup"}
    assert airflow.pids(job) == pids
    assert airflow.ledger(job, run_id) == before


UNPLANNED = '''
"""Groups whose plan waits for a slot that never comes (airflow dag)."""
from airflow.sdk import DAG
from airflow_training import training

for name in ("unplanned-success", "unplanned-failed"):
    with DAG(name, schedule=None) as dag:
        group = training(f"../jobs-of-python/{name}.yaml", group_id="g")
        group.children["g.plan"].pool = "closed"
    globals()[name] = dag
'''


@pytest.mark.parametrize(
    ("state", "reconcile", "role"),
    [
        pytest.param("success", "failed", "failed", id="successful"),
        pytest.param(
            "failed", "upstream_failed", "upstream_failed", id="failed", marks=pytest.mark.soak
        ),
    ],
)
def test_marking_plan_before_it_has_run_fails_the_run_and_starts_nothing(
    airflow: Airflow, state: str, reconcile: str, role: str
):
    airflow.pool("closed", slots=0, include_deferred=False)
    for name in ("unplanned-success", "unplanned-failed"):
        airflow.write(airflow.document(name), folder="jobs-of-python")
    (airflow.stack.home / "dags" / "unplanned.py").write_text(UNPLANNED)
    job = f"unplanned-{state}"
    run_id = airflow.trigger(job)
    airflow.wait_task(job, run_id, "g.plan", "scheduled")
    airflow.mark_task(job, run_id, "g.plan", state)
    assert airflow.wait_run(job, run_id) == "failed"
    assert airflow.states(job, run_id) == {
        "g.plan": state,
        "g.reconcile": reconcile,
        "g.worker.run": role,
        "g.rollup": "failed",
        "g.cleanup": "success",
    }
    assert "`plan` did not create it" in airflow.log(job, run_id, "g.rollup")
    assert airflow.store.run(airflow.uid(job, run_id, group_id="g")) is None
    assert airflow.pids(job) == {}


def test_deleting_a_dag_leaves_nothing_alive(airflow: Airflow):
    """Airflow's scheduler may end over a run that is deleted under it; then it is started again."""
    airflow.write(airflow.document("dag-deleted"))
    run_id = airflow.trigger("dag-deleted")
    airflow.wait_started("dag-deleted")
    airflow.wait_task("dag-deleted", run_id, "reconcile", "deferred")
    uid = airflow.uid("dag-deleted", run_id)
    wait_until(lambda: airflow.store.lease(uid), "reconcile drives the run")
    (airflow.stack.home / "jobs" / "dag-deleted.yaml").unlink()
    airflow.delete_dag("dag-deleted")
    airflow.wait_nothing_alive("dag-deleted")
    wait_until(lambda: airflow.ledger("dag-deleted", run_id).job.drained, "the job ended")
    assert airflow.ledger("dag-deleted", run_id).job.state == "Stopped"


# runs that wait in the queue -----------------------------------------------------------------------
def everything() -> dict[str, Any]:
    """Return the resources of a job beside which no other one fits."""
    return {"limits": {"cpu": str(this_node().cpus)}}


@pytest.mark.soak
def test_a_dag_that_is_deleted_while_its_job_is_queued_frees_the_place(airflow: Airflow):
    names = ("queue-holds", "queue-deleted", "queue-behind")
    runs = {}
    for name in names:
        airflow.write(airflow.document(name, resources=everything()))
        runs[name] = airflow.trigger(name)
        if name == "queue-holds":
            airflow.wait_started(name)
        else:
            wait_until(lambda: _queued(airflow, name, runs[name]), f"{name} is queued")  # noqa: B023 - called here
    (airflow.stack.home / "jobs" / "queue-deleted.yaml").unlink()
    airflow.delete_dag("queue-deleted")
    wait_until(
        lambda: airflow.ledger("queue-deleted", runs["queue-deleted"]).job.drained,
        "the queued job was stopped",
    )
    airflow.end("queue-holds")
    airflow.wait_started("queue-behind")
    airflow.end("queue-behind")
    for name in ("queue-holds", "queue-behind"):
        assert airflow.wait_run(name, runs[name]) == "success"
    assert airflow.ledger("queue-deleted", runs["queue-deleted"]).job.state == "Stopped"
    assert airflow.pids("queue-deleted") == {}


def _queued(airflow: Airflow, dag_id: str, run_id: str) -> bool:
    record = airflow.store.run(airflow.uid(dag_id, run_id))
    return record is not None and record.state == "Queued"


EARLY = '''
"""A DAG that runs out of time before its job is taken up (airflow dag)."""
from datetime import timedelta
from airflow.sdk import DAG
from airflow_training import training

with DAG("early-timeout", schedule=None, dagrun_timeout=timedelta(hours=1)):
    training("../jobs-of-python/early-timeout.yaml", group_id="g")
'''


@pytest.mark.soak
def test_a_dag_run_that_times_out_before_reconcile_leaves_nothing_behind(airflow: Airflow):
    """It holds nobody back, and gets its end from `sweep`, or from a triggerer that comes late.

    Whether `plan` began it depends on how long Airflow takes the killed triggerer for alive.
    """
    airflow.write(
        airflow.document("early-timeout", resources=everything()), folder="jobs-of-python"
    )
    (airflow.stack.home / "dags" / "early.py").write_text(EARLY)
    airflow.write(
        airflow.document("after-timeout", command=["sh", "-c", "true"], resources=everything())
    )
    airflow.stack.wait_dag(airflow.client, "early-timeout")
    airflow.crash("triggerer", restart=False)
    try:
        started = [airflow.trigger("early-timeout") for _ in range(2)]
        swept, late = (_times_out(airflow, "early-timeout", run_id) for run_id in started)
        lease = airflow.store.acquire(late, owner="somebody", seconds=90)  # sweep leaves it alone
        assert lease is not None
        ended: list[str] = []

        def first_is_swept() -> bool:
            ended.extend(_sweep(airflow))  # it must have been idle for some seconds
            return started[0] in ended

        wait_until(first_is_swept, "the forgotten run is swept")
        assert started[1] not in ended
        airflow.store.release(lease)
    finally:
        airflow.stack.start("triggerer")
    assert airflow.wait_run("after-timeout", airflow.trigger("after-timeout")) == "success"
    _sweep(airflow)  # where the triggerer threw the forgotten trigger away
    for uid in (swept, late):
        record = airflow.store.run(uid)
        assert record is not None
        assert (record.state, record.queued) == ("Stopped", False)
        assert airflow.store.ledger(uid).job.drained
    assert airflow.alive("early-timeout") == []


def _times_out(airflow: Airflow, dag_id: str, run_id: str) -> str:
    """Wait for the end of a DAG run whose job is planned and never taken up; return the job's run."""
    airflow.wait_task(dag_id, run_id, "g.plan", "success")
    airflow.age(dag_id, run_id, hours=2)
    assert airflow.wait_run(dag_id, run_id) == "failed"
    assert airflow.states(dag_id, run_id)["g.reconcile"] == "skipped"
    return airflow.uid(dag_id, run_id, group_id="g")


def _sweep(airflow: Airflow) -> list[str]:
    """Sweep what nobody has driven for some seconds; return the run ids that were ended."""
    swept = subprocess.run(
        [sys.executable, "-m", "airflow_training.cli", "sweep", "--idle", "5", "-o", "json"],
        env=airflow.stack.env,
        capture_output=True,
        check=False,  # 1 where other tests left runs on clusters that only Airflow can reach
        text=True,
    )
    return [each["run_id"] for each in json.loads(swept.stdout)["swept"] if each["done"]]


def test_the_docs_have_a_row_for_each_test():
    text = DOCS.read_text()
    missing = [row.title for row in ROWS if row.title not in text]
    assert missing == []
