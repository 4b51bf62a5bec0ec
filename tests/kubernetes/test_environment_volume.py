"""The init container that makes a job's environment, and what the agent of the command is told of it."""

from __future__ import annotations

import json
from typing import Any

from airflow_training.agent.order import ORDER_VARIABLE
from airflow_training.documents.resolved_blocks import ResolvedEnvironment
from tests.kubernetes.samples import a_container, a_job, a_pod, a_role

NAMED = ResolvedEnvironment(
    name="tiny", version="1", digest="1" * 64, storage="s3://bucket/environments", python="3.11.7"
)
NAME = "airflow-training-environment"


def pod_of(environment: ResolvedEnvironment, **container: Any) -> Any:
    job = a_job(a_role(main=a_container(**container)), environment=environment)
    return a_pod(job)["spec"]


def test_it_is_made_by_the_image_of_the_training_with_its_rights_and_variables():
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    security = {"runAsUser": 1000}
    limits = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    spec = pod_of(NAMED, env=[secret], securityContext=security, resources=limits)
    (init,) = spec["initContainers"]
    assert (init["name"], init["image"], init["securityContext"]) == (NAME, "train:1", security)
    assert secret in init["env"]
    assert init["resources"] == {"limits": {"cpu": "2"}}
    told = json.loads(init["command"][-1])["environment"]
    assert (told["name"], told["digest"], told["storage"]) == ("tiny", "1" * 64, NAMED.storage)
    assert told["source"] is None


def test_both_containers_see_the_volume_and_the_agent_uses_it():
    spec = pod_of(NAMED)
    (init,), (main,) = spec["initContainers"], spec["containers"]
    folder = next(each["mountPath"] for each in init["volumeMounts"] if each["name"] == NAME)
    assert {"name": NAME, "mountPath": folder} in main["volumeMounts"]
    assert {"name": NAME, "emptyDir": {}} in spec["volumes"]
    (order,) = (each["value"] for each in main["env"] if each["name"] == ORDER_VARIABLE)
    assert json.loads(order)["environment"] == {"title": "tiny@1", "folder": f"{folder}/current"}
    assert main["command"][-2:] == ["python", "train.py"]


def test_an_address_with_what_kubernetes_replaces_arrives_as_it_is():
    named = ResolvedEnvironment(
        name="tiny", version="1", digest="1" * 64, storage="s3://b/$(HOME)", python="3.11.7"
    )
    (init,) = pod_of(named)["initContainers"]
    assert "s3://b/$$(HOME)" in init["command"][-1]


def test_one_with_an_image_needs_no_init_container():
    named = ResolvedEnvironment(name="tiny", version="1", digest="1" * 64, image="tiny:1")
    spec = pod_of(named)
    assert "initContainers" not in spec
    assert all(each["name"] != NAME for each in spec.get("volumes", ()))
