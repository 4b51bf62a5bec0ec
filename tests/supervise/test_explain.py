"""The answer of `explain`: what a job would create, on both runtimes."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.admission.explain import explain
from airflow_training.documents.resolved import RunKey
from airflow_training.errors import InputError
from tests.frameworks.samples import a_document

NOW = datetime(2026, 3, 6, 12, tzinfo=timezone.utc)
DIGITS = a_document(
    "pytorch",
    {"master": 1, "worker": {"replicas": 3, "minSucceeded": "50%"}},
    image="ghcr.io/acme/digits:1.4",
    args=["--lr", "{{ params.lr }}", "{{ address('master', 0) }}"],
    schedulingPolicy={"gang": "volcano", "minAvailable": 4},
    successPolicy={"operator": "All", "targetRoles": ["master"]},
    dag={"params": {"lr": {"type": "number", "default": 0.1}}},
)


@pytest.fixture(autouse=True)
def _home(airflow_home):
    """Settings come from an empty Airflow home."""


def answer(document=DIGITS, *, runtime="kubernetes", **more):
    (checked,) = check_text(yaml.safe_dump(document), runtime=runtime)
    made = explain(checked, now=NOW, **more)
    assert json.loads(json.dumps(made)) == made
    return made


def test_the_whole_answer_has_the_keys_that_tools_rely_on():
    made = answer()
    assert list(made) == [
        "job",
        "framework",
        "environment",
        "schedule",
        "expectedStart",
        "waves",
        "gang",
        "roles",
        "successPolicy",
        "trainer",
        "instances",
        "services",
        "defaults",
        "warnings",
    ]
    assert (made["job"], made["framework"]) == ("digits", "pytorch")
    assert made["waves"] == [["master"], ["worker"]]
    assert made["successPolicy"] == {"operator": "All", "targetRoles": ["master"]}
    assert made["roles"][1] == {
        "name": "worker",
        "replicas": 3,
        "dependsOn": ["master"],
        "restartPolicy": "OnFailure",
        "minSucceeded": 2,
        "minFailed": 1,
        "tracked": True,
    }
    assert {warning["code"] for warning in made["warnings"]} <= {"not_available"}
    backoff = next(d for d in made["defaults"] if d["field"] == "spec.roles[1].backoffLimit")
    assert backoff == {
        "field": "spec.roles[1].backoffLimit",
        "value": 6,
        "from": "airflow-training",
    }


@pytest.mark.parametrize(
    ("dag", "zone", "local", "utc"),
    [
        pytest.param(
            {"schedule": "0 3 * * *", "timezone": "America/Chicago"},
            "America/Chicago",
            ["2026-03-07T03:00:00-06:00", "2026-03-08T03:00:00-05:00", "2026-03-09T03:00:00-05:00"],
            ["2026-03-07T09:00:00+00:00", "2026-03-08T08:00:00+00:00", "2026-03-09T08:00:00+00:00"],
            id="over-a-change-of-the-clocks",
        ),
        pytest.param(
            {"schedule": "@daily", "startDate": "2026-04-01", "timezone": "Asia/Tokyo"},
            "Asia/Tokyo",
            ["2026-04-01T00:00:00+09:00", "2026-04-02T00:00:00+09:00", "2026-04-03T00:00:00+09:00"],
            ["2026-03-31T15:00:00+00:00", "2026-04-01T15:00:00+00:00", "2026-04-02T15:00:00+00:00"],
            id="from-a-start-in-the-future",
        ),
        pytest.param(
            {"schedule": "@monthly", "startDate": "2026-01-01T00:00:00-06:00"},
            "UTC-06:00",
            ["2026-04-01T00:00:00-06:00", "2026-05-01T00:00:00-06:00", "2026-06-01T00:00:00-06:00"],
            ["2026-04-01T06:00:00+00:00", "2026-05-01T06:00:00+00:00", "2026-06-01T06:00:00+00:00"],
            id="an-offset-all-year",
        ),
        pytest.param(
            {"schedule": "0 13 * * *"},
            "UTC",
            ["2026-03-06T13:00:00+00:00", "2026-03-07T13:00:00+00:00", "2026-03-08T13:00:00+00:00"],
            ["2026-03-06T13:00:00+00:00", "2026-03-07T13:00:00+00:00", "2026-03-08T13:00:00+00:00"],
            id="no-zone-at-all",
        ),
    ],
)
def test_the_next_starts_in_the_zone_and_in_utc(dag, zone, local, utc):
    document = a_document("custom", {"worker": 1}, command=["true"], dag=dag)
    schedule = answer(document)["schedule"]
    assert schedule["timezone"] == zone
    assert [each["inZone"] for each in schedule["next"]] == local
    assert [each["utc"] for each in schedule["next"]] == utc


@pytest.mark.parametrize("schedule", [None, "@once", "@continuous", {"assets": ["s3://a"]}])
def test_what_no_clock_starts_has_no_next_start(schedule):
    dag = {"schedule": schedule, "timezone": "America/Chicago"}
    document = a_document("custom", {"worker": 1}, command=["true"], dag=dag)
    assert answer(document)["schedule"] is None


def test_gang_and_what_its_start_costs():
    gang = answer()["gang"]
    assert (gang["kind"], gang["minAvailable"]) == ("volcano", 4)
    assert gang["startup"] == "createAllHold"
    # three workers may hold their places for as long as they may wait
    assert gang["idleInstanceSecondsBound"] == 3 * 600
    assert gang["reason"]


def test_a_job_that_needs_all_of_its_instances_is_advised_to_use_a_queue():
    alone = {**DIGITS, "spec": {**DIGITS["spec"], "schedulingPolicy": {}}}
    assert "gang: kueue" in answer(alone)["gang"]["advice"]
    assert answer(alone, runtime="local")["gang"]["advice"] == ""
    assert answer()["gang"]["advice"] == "", "it has a gang"
    single = a_document("custom", {"worker": 4}, command=["true"])
    assert answer(single)["gang"]["advice"] == ""


def test_an_expected_start_is_told_from_earlier_runs():
    assert answer()["expectedStart"] is None
    expected = answer(waits=[60.0, 120.0, 3600.0])["expectedStart"]
    assert (expected["medianSeconds"], expected["runs"]) == (120, 3)
    assert "no promise" in expected["message"]


def test_an_instance_in_a_cluster():
    instance = answer()["instances"][1]
    env = instance.pop("env")
    assert instance == {
        "role": "worker",
        "index": 0,
        "rank": 1,
        "name": "digits-worker-0",
        "hostname": "digits-worker-0.digits-worker.default.svc",
        "container": "pytorch",
        "image": "ghcr.io/acme/digits:1.4",
        "command": ["python", "train.py"],
        "args": ["--lr", "0.1", "digits-master-0.digits-master.default.svc:23456"],
        "ports": {"pytorchjob-port": 23456},
        "files": {},
    }
    assert (env["RANK"], env["WORLD_SIZE"]) == ("1", "4")
    assert env["MASTER_ADDR"] == "digits-master-0.digits-master.default.svc"


def test_services_stand_for_roles_in_a_cluster_only():
    assert answer()["services"] == [
        {"name": "digits-master", "headless": True},
        {"name": "digits-worker", "headless": True},
    ]
    assert answer(runtime="local")["services"] == []


def test_on_this_machine_every_instance_has_a_port_of_its_own():
    instances = answer(runtime="local")["instances"]
    assert {instance["hostname"] for instance in instances} == {"127.0.0.1"}
    ports = [instance["ports"]["pytorchjob-port"] for instance in instances]
    assert len(set(ports)) == 4
    assert {instance["env"]["MASTER_PORT"] for instance in instances} == {str(ports[0])}


def test_names_carry_the_hash_of_a_run_that_is_given():
    uid = RunKey(source="cli", run_id="first").uid
    made = answer(run_uid=uid, run_id="first")
    assert made["instances"][0]["name"] == f"digits-{uid[:5]}-master-0"
    assert made["services"][0]["name"] == f"digits-{uid[:5]}-master"
    assert made["instances"][0]["env"]["TRAINING_RUN_ID"] == "first"


def test_files_are_shown_with_their_content():
    launcher = answer(a_document("mpi", {"launcher": 1, "worker": 2}))["instances"][0]
    assert launcher["rank"] is None
    assert launcher["files"]["/etc/mpi/hostfile"].splitlines() == [
        "digits-worker-0.digits-worker.default.svc slots=1",
        "digits-worker-1.digits-worker.default.svc slots=1",
    ]


def test_a_role_without_instances_is_shown_without_any():
    made = answer(a_document("pytorch", {"master": 1, "worker": 0}))
    assert [instance["role"] for instance in made["instances"]] == ["master"]
    assert [service["name"] for service in made["services"]] == ["digits-master"]


def test_a_job_with_mistakes_cannot_be_explained():
    with pytest.raises(InputError, match="no framework is called"):
        answer(a_document("nope", {"a": 1}))
