"""Where a run ran and with what: together where instances do not differ, and against another run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import open_store
from airflow_training.web.environment import (
    ChosenEnvironment,
    EnvironmentAnswer,
    EnvironmentChange,
    EnvironmentGroup,
    NodeAnswer,
    environment_difference,
)
from tests.state.samples import a_ledger, worker
from tests.web.conftest import a_run

PACKAGES = {"torch": "2.4.0+cu121", "numpy": "2.1.0", "pip": "24.0"}


def software(packages: dict[str, Any] = PACKAGES, **more: Any) -> str:
    said = {"implementation": "cpython", "python": "3.11.2", "packages": packages, **more}
    return json.dumps({"on": "software", **said})


def get(client: Any, run: Any, more: str = "", user: str = "op") -> Any:
    path = f"/api/dags/{run.key.dag_id}/trainings/{run.uid}/environment{more}"
    answer = client.get(path, headers={"user": user})
    assert answer.status_code == 200, answer.text
    return answer.json()


def against(other: Any) -> str:
    return f"/difference/{other.key.dag_id}/{other.uid}"


def test_instances_that_do_not_differ_are_told_together(client):
    run = a_run(ledger=a_ledger(*(worker(each, node=f"node-{each // 2}") for each in range(3))))
    devices = [{"id": str(n), "name": "H100", "bytes": 80} for n in range(2)]
    look = json.dumps({"at": 1, "devices": devices})
    open_store().environments.save(
        run.uid,
        {
            InstanceKey("worker", 0): [software(), look],
            InstanceKey("worker", 1): [software(), look],
            InstanceKey("worker", 2): [software({**PACKAGES, "torch": "2.5"}), look],
        },
    )
    found = get(client, run)
    assert found["nodes"] == [
        {"node": "node-0", "instances": ["worker-0", "worker-1"]},
        {"node": "node-1", "instances": ["worker-2"]},
    ]
    same, other = found["groups"]
    assert (same["instances"], other["instances"]) == (["worker-0", "worker-1"], ["worker-2"])
    assert same["python"] == "cpython 3.11.2"
    assert same["packages"] == dict(sorted(PACKAGES.items()))
    assert list(same["frameworks"].items()) == [("torch", "2.4.0+cu121"), ("numpy", "2.1.0")]
    assert same["devices"] == [{"name": "H100", "count": 2, "bytes": 80}]
    assert other["frameworks"]["torch"] == "2.5"


GPU = {"CUDA": "12.6 (torch)", "cuDNN": "9.1.0.70 (package)", "driver": "535.104.05"}


def test_what_gpus_are_used_through_is_told_and_compared(client):
    entries = a_ledger(worker(0), worker(1))
    before, after = (a_run(each, ledger=entries) for each in ("before", "after"))
    newer = {**GPU, "driver": "560.35.03", "other": "x", "ROCm": 3}
    for run, gpus in ((before, [GPU, GPU]), (after, [GPU, newer])):
        records = {InstanceKey("worker", i): [software(gpu=gpu)] for i, gpu in enumerate(gpus)}
        open_store().environments.save(run.uid, records)
    (group,) = get(client, before)["groups"]
    told = [("Driver", "535.104.05"), ("CUDA", "12.6 (torch)"), ("cuDNN", "9.1.0.70 (package)")]
    assert list(group["gpu"].items()) == told
    assert [each["gpu"]["Driver"] for each in get(client, after)["groups"]] == [
        "535.104.05",
        "560.35.03",
    ]
    changes = get(client, after, against(before))["surroundings"]
    change = {"name": "Driver", "before": "535.104.05", "after": "535.104.05, 560.35.03"}
    assert change in changes
    assert not [each for each in changes if each["name"] in ("CUDA", "cuDNN", "ROCm")]


def test_what_no_agent_has_told_is_left_open(client):
    (group,) = get(client, a_run())["groups"]
    assert group["instances"] == ["worker-0", "worker-1"]
    assert (group["python"], group["packages"], group["devices"]) == (None, {}, [])


def test_nonsense_of_an_instance_says_nothing(client):
    run = a_run(ledger=a_ledger(worker(0)))
    odd: dict[str, Any] = {
        "python": ["3"],
        "packages": {"a": 1, "": "2", "b": "3" * 9000},
        "left_out": "many",
    }
    look = json.dumps({"devices": [3, {"id": "all", "error": "no driver"}, {"name": 5}], "node": 3})
    open_store().environments.save(run.uid, {InstanceKey("worker", 0): [software(**odd), look]})
    (group,) = get(client, run)["groups"]
    assert group["packages"] == {"b": "3" * 500}
    assert group["packages_left_out"] == 0
    assert group["devices"] == [{"name": "device", "count": 1, "bytes": None}]


def test_a_run_is_compared_with_another(client):
    old, new = a_run("old", ledger=a_ledger(worker(0))), a_run("new", ledger=a_ledger(worker(0)))
    store = open_store()
    store.environments.save(
        old.uid, {InstanceKey("worker", 0): [software({"a": "1", "b": "1", "c": "1"})]}
    )
    newer = software({"b": "2", "c": "1", "d": "1"}, python="3.12.0")
    store.environments.save(new.uid, {InstanceKey("worker", 0): [newer]})
    found = get(client, new, against(old))
    assert found["packages"] == [
        {"name": "a", "before": "1", "after": None},
        {"name": "b", "before": "1", "after": "2"},
        {"name": "d", "before": None, "after": "1"},
    ]
    assert found["packages_equal"] == 1
    assert found["surroundings"] == [
        {"name": "Python", "before": "cpython 3.11.2", "after": "cpython 3.12.0"}
    ]
    assert get(client, new, against(new)) == {
        "surroundings": [],
        "packages_told": True,
        "packages": [],
        "packages_equal": 3,
    }


def test_of_the_other_run_one_has_to_have_the_right_too(client):
    mine, secret = a_run("mine"), a_run("other", dag="secret")
    path = f"/api/dags/digits/trainings/{mine.uid}/environment"
    assert client.get(path + against(secret)).status_code == 403
    assert client.get(path + f"/difference/digits/{secret.uid}").status_code == 404
    assert client.get(path + f"/difference/~/{secret.uid}").status_code == 403
    assert get(client, mine, against(secret), "admin")["packages"] == []


def a_group(*instances: str, image: str | None = None, **packages: str) -> EnvironmentGroup:
    return EnvironmentGroup(
        instances=[*instances], image=image, system=None, machine=None, python="cpython 3.11.2",
        executable=None, devices=[], gpu={}, frameworks={}, packages=packages, packages_left_out=0,
    )  # fmt: skip


TINY = ChosenEnvironment(name="tiny", version="1", digest="1" * 64, image=None)


def an_environment(
    *groups: EnvironmentGroup, nodes: str = "", chosen: ChosenEnvironment | None = None
) -> EnvironmentAnswer:
    return EnvironmentAnswer(
        framework="pytorch",
        runtime="kubernetes",
        environment=chosen,
        nodes=[NodeAnswer(node=each, instances=["worker-0"]) for each in nodes],
        groups=[*groups],
    )


@pytest.mark.parametrize(
    ("before", "after", "surroundings", "packages"),
    [
        pytest.param(
            an_environment(a_group("worker-0", image="a"), nodes="xy"),
            an_environment(a_group("worker-0", image="b"), nodes="yx"),
            [("Image", "a", "b")],
            [],
            id="order-of-nodes-is-no-change",
        ),
        pytest.param(
            an_environment(a_group("worker-0")),
            an_environment(a_group("worker-0"), chosen=TINY),
            [("Environment", "none", f"tiny@1 {'1' * 12}")],
            [],
            id="an-environment-was-named",
        ),
        pytest.param(
            an_environment(a_group("worker-0", torch="1"), a_group("worker-1", torch="2")),
            an_environment(a_group("worker-0", torch="2")),
            [],
            [("torch", "1, 2", "2")],
            id="all-versions-of-a-mixed-run",
        ),
        pytest.param(
            an_environment(),
            an_environment(a_group("worker-0", image="a", torch="1"), nodes="x"),
            [
                ("Nodes", None, "x"),
                ("Image", None, "a"),
                ("Python", None, "cpython 3.11.2"),
                ("Devices", None, "none"),
            ],
            [],
            id="what-was-not-known-before",
        ),
    ],
)
def test_differences_are_told_value_by_value(before, after, surroundings, packages):
    found = environment_difference(before, after)

    def rows(changes: list[EnvironmentChange]) -> list[tuple[str, str | None, str | None]]:
        return [(each.name, each.before, each.after) for each in changes]

    assert rows(found.surroundings) == surroundings
    assert rows(found.packages) == packages
    assert found.packages_told is bool(before.groups)
