"""Layers of a pod template lie over each other as a strategic merge patch would."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from airflow_training.documents.merge import MERGE_KEYS, merge_templates, shorthand_template


def pod(**spec: object) -> dict[str, Any]:
    return {"spec": spec}


def container(**keys: object) -> dict[str, Any]:
    return pod(containers=[{"name": "main", **keys}])


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param([None, {}, {"spec": {"a": 1}}], {"spec": {"a": 1}}, id="one"),
        pytest.param(
            [pod(a=1, b={"c": 1, "d": 2}), pod(b={"c": 3})],
            pod(a=1, b={"c": 3, "d": 2}),
            id="maps-merge-deeply",
        ),
        pytest.param(
            [container(image="a", command=["x", "y"]), container(command=["z"])],
            container(image="a", command=["z"]),
            id="containers-by-name-and-lists-of-text-replaced",
        ),
        pytest.param(
            [container(image="a"), pod(containers=[{"name": "sidecar", "image": "b"}])],
            pod(containers=[{"name": "main", "image": "a"}, {"name": "sidecar", "image": "b"}]),
            id="another-container-is-added",
        ),
        pytest.param(
            [
                container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
                container(env=[{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]),
            ],
            container(
                env=[
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "3"},
                    {"name": "C", "value": "4"},
                ]
            ),
            id="env-by-name",
        ),
        pytest.param(
            [
                container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
                container(env=[{"name": "A", "value": "1"}]),
            ],
            container(env=[{"name": "A", "value": "1"}]),
            id="a-value-replaces-a-reference",
        ),
        pytest.param(
            [
                pod(volumes=[{"name": "v", "configMap": {"name": "c"}}]),
                pod(volumes=[{"name": "v", "emptyDir": {}}]),
            ],
            pod(volumes=[{"name": "v", "emptyDir": {}}]),
            id="a-volume-has-one-source",
        ),
        pytest.param(
            [
                pod(volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}]),
                pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]),
            ],
            pod(volumes=[{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]),
            id="the-same-source-merges",
        ),
        pytest.param(
            [
                container(volumeMounts=[{"name": "a", "mountPath": "/x"}]),
                container(volumeMounts=[{"name": "b", "mountPath": "/x"}]),
            ],
            container(volumeMounts=[{"name": "b", "mountPath": "/x"}]),
            id="mounts-by-path",
        ),
        pytest.param(
            [
                container(ports=[{"containerPort": 80, "name": "a"}]),
                container(ports=[{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 81}]),
            ],
            container(
                ports=[{"containerPort": 80, "name": "a", "protocol": "UDP"}, {"containerPort": 81}]
            ),
            id="ports-by-number",
        ),
        pytest.param(
            [pod(tolerations=[{"key": "a"}]), pod(tolerations=[{"key": "b"}])],
            pod(tolerations=[{"key": "b"}]),
            id="other-lists-are-replaced",
        ),
        pytest.param(
            [pod(a=1, nodeSelector={"x": "1", "y": "2"}), pod(a=None, nodeSelector={"x": None})],
            pod(nodeSelector={"y": "2"}),
            id="null-deletes",
        ),
        pytest.param(
            [container(env=[{"name": "A", "value": "1"}]), container(env=None)],
            container(),
            id="null-deletes-a-list",
        ),
        pytest.param(
            [
                container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
                container(env=[{"name": "A", "$patch": "delete"}]),
            ],
            container(env=[{"name": "B", "value": "2"}]),
            id="patch-delete-an-item",
        ),
        pytest.param(
            [
                container(env=[{"name": "A", "value": "1"}]),
                container(env=[{"$patch": "replace"}, {"name": "B", "value": "2"}]),
            ],
            container(env=[{"name": "B", "value": "2"}]),
            id="patch-replace-a-list",
        ),
        pytest.param(
            [
                container(resources={"limits": {"cpu": "1"}}),
                container(resources={"$patch": "replace", "requests": {"cpu": "2"}}),
            ],
            container(resources={"requests": {"cpu": "2"}}),
            id="patch-replace-a-map",
        ),
        pytest.param(
            [
                container(image="a", tty=True),
                pod(containers=[{"name": "main", "$patch": "replace", "image": "b"}]),
            ],
            container(image="b"),
            id="patch-replace-an-item",
        ),
        pytest.param(
            [pod(securityContext={"runAsUser": 1}), pod(securityContext={"$patch": "delete"})],
            pod(securityContext={}),
            id="patch-delete-a-map",
        ),
        pytest.param(
            [container(env=[{"name": "A", "value": None, "$patch": "replace"}])],
            container(env=[{"name": "A"}]),
            id="no-directive-stays",
        ),
        pytest.param(
            [container(image="a"), container(image="b"), container(image="c")],
            container(image="c"),
            id="the-last-layer-wins",
        ),
    ],
)
def test_layers_merge(layers, expected):
    before = copy.deepcopy(layers)
    assert merge_templates(*layers) == expected
    assert layers == before, "no layer may be changed"


def test_merging_twice_changes_nothing():
    template = container(env=[{"name": "A", "value": "1"}], ports=[{"containerPort": 1}])
    assert merge_templates(template, template) == template


def test_the_shorthand_stands_for_a_template():
    shorthand = {
        "image": "busybox",
        "args": ["a"],
        "volumes": [{"name": "v"}],
        "env": [{"name": "A", "value": "1"}],
        "command": None,
    }
    assert shorthand_template("pytorch", shorthand) == {
        "spec": {
            "containers": [
                {
                    "name": "pytorch",
                    "image": "busybox",
                    "command": None,
                    "args": ["a"],
                    "env": [{"name": "A", "value": "1"}],
                }
            ],
            "volumes": [{"name": "v"}],
        }
    }
    assert shorthand_template("pytorch", {}) == {}


def test_the_order_of_layers_is_framework_job_role_template():
    framework = container(image="default", command=["run"], workingDir="/")
    job = shorthand_template(
        "main", {"image": "job", "args": ["1"], "env": [{"name": "A", "value": "1"}]}
    )
    role = shorthand_template("main", {"args": ["2"], "command": None})
    template = container(env=[{"name": "A", "value": "4"}])
    assert merge_templates(framework, job, role, template) == container(
        image="job", args=["2"], workingDir="/", env=[{"name": "A", "value": "4"}]
    )


def test_the_merge_keys_are_fields_of_their_items():
    from airflow_training.documents.podmodel.check import table

    fields = {
        key: kind.removeprefix("list:")
        for model in table().values()
        for key, kind in model["fields"].items()
        if key in MERGE_KEYS and kind.startswith("list:V1")
    }
    assert set(fields) == set(MERGE_KEYS)
    for field, model in fields.items():
        assert MERGE_KEYS[field] in table()[model]["fields"]
