"""What has no effect on the local runtime is told: once a kind, where the user wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_file, check_text
from airflow_training.admission.run_accounts import reserve_run
from airflow_training.runtimes.registry import adapter_of
from airflow_training.state.account_records import Account
from airflow_training.state.store import open_store
from tests.frameworks.samples import a_document, a_job, a_resolved_job, resolve_job

MOUNTS = [{"name": "data", "mountPath": "/data"}]
VOLUMES = [{"name": "data", "emptyDir": {}}]
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
GPUS = {"limits": {"nvidia.com/gpu": 1}}
DEVICES = {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}
TRAINS = {"name": "main", "image": "repo/train:1"}


def template(**pod: Any) -> dict[str, Any]:
    return {"name": "b", "replicas": 1, "template": {"spec": pod}}


def in_container(**fields: Any) -> dict[str, Any]:
    return template(containers=[{**TRAINS, **fields}])


def warned(roles: dict[str, Any] | list[Any], runtime: str = "local", **spec: Any) -> list[Any]:
    document = a_document("custom", {"a": 1}, **spec)
    document["spec"]["roles"] += roles
    job = a_job("custom", {"a": 1})
    job = type(job).model_validate(document, by_alias=True)
    made, _ = resolve_job(job, runtime=runtime, document=document)
    return list(adapter_of(runtime).warnings(made))


@pytest.mark.parametrize(
    ("roles", "spec", "field", "value", "code"),
    [
        pytest.param(
            [], {"volumes": VOLUMES}, "spec.volumes", "data", "not_supported", id="volumes"
        ),
        pytest.param(
            [], {"volumeMounts": MOUNTS}, "spec.volumeMounts", "/data", "not_supported", id="mounts"
        ),
        pytest.param(
            [{"name": "b", "replicas": 1, "volumeMounts": MOUNTS}], {},
            "spec.roles[1].volumeMounts", "/data", "not_supported", id="mounts-of-a-role",
        ),
        pytest.param(
            [in_container(volumeMounts=MOUNTS)], {},
            "spec.roles[1].template.spec.containers[0].volumeMounts", "/data", "not_supported",
            id="mounts-in-a-template",
        ),
        pytest.param(
            [template(initContainers=[{"name": "fetch", "image": "i"}])], {},
            "spec.roles[1].template.spec.initContainers", "fetch", "not_supported", id="init",
        ),
        pytest.param(
            [template(containers=[TRAINS, {"name": "proxy", "image": "i"}])], {},
            "spec.roles[1].template.spec.containers[1]", "proxy", "not_supported", id="sidecar",
        ),
        pytest.param(
            [template(nodeSelector={"zone": "a"}, tolerations=[{"key": "gpu"}])], {},
            "spec.roles[1].template.spec.nodeSelector", None, "not_supported", id="pod-keys",
        ),
        pytest.param(
            [in_container(livenessProbe={"exec": {"command": ["true"]}})], {},
            "spec.roles[1].template.spec.containers[0].livenessProbe", None, "not_supported",
            id="container-keys",
        ),
        pytest.param(
            [], {"env": [{"name": "A", "value": "1"}, {"name": "KEY", "valueFrom": SECRET}]},
            "spec.env[1].valueFrom", "KEY", "not_supported", id="valueFrom",
        ),
        pytest.param(
            [], {"envFrom": [{"secretRef": {"name": "s"}}]},
            "spec.envFrom", None, "not_supported", id="envFrom",
        ),
        pytest.param(
            [], {"resources": GPUS, "env": [DEVICES]},
            "spec.env[0]", "0", "conflict", id="own-devices",
        ),
    ],
)  # fmt: skip
def test_it_is_told_where_it_was_written(roles, spec, field, value, code):
    (warning,) = warned(roles, **spec)
    assert (warning.code, warning.field, warning.value) == (code, field, value)
    assert warning.hint


@pytest.mark.parametrize(
    ("roles", "spec"),
    [
        pytest.param([], {"volumes": [], "volumeMounts": []}, id="empty-lists"),
        pytest.param(
            [{"name": "b", "replicas": 1, "volumes": None}], {"volumes": None}, id="taken-away"
        ),
        pytest.param(
            [
                in_container(
                    readinessProbe={"exec": {"command": ["true"]}}, workingDir="x", resources=GPUS
                ),
            ],
            {},
            id="what-has-an-effect",
        ),
        pytest.param([template(terminationGracePeriodSeconds=5)], {}, id="the-grace"),
        pytest.param([], {"env": [DEVICES]}, id="own-devices-without-a-request"),
    ],
)
def test_what_acts_or_is_not_there_is_not_told(roles, spec):
    assert warned(roles, **spec) == []


def test_each_kind_is_told_once():
    many = [
        {"name": name, "replicas": 1, "volumes": VOLUMES, "volumeMounts": MOUNTS} for name in "bcd"
    ]
    fields = [warning.field for warning in warned(many)]
    assert fields == ["spec.roles[1].volumeMounts", "spec.roles[1].volumes"]


def test_a_cluster_does_all_of_it():
    assert warned([], runtime="kubernetes", volumes=VOLUMES, volumeMounts=MOUNTS) == []


def test_what_only_the_framework_brings_is_not_told(tmp_path):
    pod = {"volumes": VOLUMES, "nodeSelector": {"x": "y"}, "initContainers": [{"name": "i"}]}
    framework = {
        "apiVersion": "airflow-training/v1",
        "kind": "Framework",
        "metadata": {"name": "mine"},
        "spec": {"container": "main", "roles": [{"name": "a", "template": {"spec": pod}}]},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(framework))
    (tmp_path / "train.py").touch()
    path = tmp_path / "job.yaml"
    uses = {"name": "mine", "ref": "./mine.yaml"}
    path.write_text(yaml.safe_dump(a_document(uses, {"a": 1}, volumeMounts=MOUNTS)))
    (checked,) = check_file(path, runtime="local")
    assert checked.resolved is not None
    assert checked.resolved.role("a").template["spec"]["volumes"] == VOLUMES
    assert [warning.field for warning in checked.warnings] == ["spec.volumeMounts"]


@pytest.mark.parametrize("broken", [5, "text", [5], {"a": 1}, [None], [["x"]]])
@pytest.mark.parametrize("key", ["volumes", "volumeMounts", "env", "template"])
def test_a_malformed_pod_is_an_error_and_no_traceback(key: str, broken: Any) -> None:
    document = a_document("custom", {"a": {"replicas": 1, key: broken}}, env=[DEVICES])
    (checked,) = check_text(yaml.safe_dump(document), runtime="local")
    assert checked.problems


@pytest.mark.parametrize(
    ("runtime", "fields"), [("local", {"spec.schedulingPolicy.gang"}), ("kubernetes", set())]
)
def test_a_gang_needs_a_scheduler(runtime, fields):
    found = warned([], runtime=runtime, schedulingPolicy={"gang": "volcano"})
    assert {(each.code, each.field) for each in found} == {("not_supported", f) for f in fields}


@pytest.mark.parametrize(
    ("runtime", "hint"),
    [("local", "a cluster holds places"), ("slurm", "spareNodes"), ("kubernetes", None)],
)
def test_spares_need_a_runtime_that_holds_places(runtime, hint):
    found = warned([{"name": "b", "replicas": 1, "warmSpares": 2}], runtime=runtime)
    about = [each for each in found if each.field == "spec.roles[1].warmSpares"]
    assert len(about) == (hint is not None)
    for each in about:
        assert (each.code, each.value) == ("not_supported", 2)
        assert hint in each.hint


@pytest.mark.parametrize(("runtime", "held"), [("local", 1), ("slurm", 1), ("kubernetes", 3)])
def test_an_account_pays_for_spares_that_are_held(runtime, held):
    role = {"replicas": 1, "warmSpares": 2}
    made = a_resolved_job("custom", {"b": role}, runtime=runtime)
    made = replace(made, runtime=runtime)
    store = open_store()
    store.accounts.save(Account(name="ann"))
    assert reserve_run(store, made, uid=runtime, account="ann")
    held_roles = store.reservations.of_run(runtime).roles
    assert [each.replicas for each in held_roles] == [held]


@pytest.mark.parametrize(
    ("spec", "runtime", "wrong"),
    [
        pytest.param({}, None, True, id="neither-command-nor-image"),
        pytest.param({"image": "repo/train:1"}, None, False, id="an-image-may-bring-its-command"),
        pytest.param({"image": "repo/train:1"}, "local", False, id="only-looked-at-here"),
        pytest.param(
            {"image": "repo/train:1", "runtime": {"name": "local"}},
            None,
            True,
            id="written-for-here",
        ),
        pytest.param({"command": ["true"]}, "local", False, id="a-command"),
        pytest.param(
            {"command": ["true"], "runtime": {"name": "kubernetes"}},
            None,
            True,
            id="no-image-for-a-pod",
        ),
        pytest.param({"command": ["true"]}, "kubernetes", False, id="only-looked-at-as-pods"),
    ],
)
def test_what_can_run_nowhere_is_a_mistake_before_anything_starts(spec, runtime, wrong):
    document = a_document("custom", {"a": 1}, **spec)
    for key in ("command", "image"):
        if key not in spec:
            document["spec"].pop(key, None)
    (checked,) = check_text(yaml.safe_dump(document), runtime=runtime)
    missing = [each.code for each in checked.problems if each.code == "missing"]
    assert (missing == ["missing"]) is wrong
