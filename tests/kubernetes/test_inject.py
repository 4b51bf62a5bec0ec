"""What is injected into a pod that needs an agent."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from airflow_training.agent.order import ORDER_VARIABLE, Order
from airflow_training.agent.package import portable_agent, portable_environment_program
from airflow_training.documents.resolved_blocks import ResolvedCheckpoint, StallRules
from airflow_training.runtimes.kubernetes import inject, names
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.gangs import pod_requests
from airflow_training.runtimes.kubernetes.objects import agent_document, answer_documents
from airflow_training.runtimes.kubernetes.pod_files import answer_shards
from airflow_training.runtimes.kubernetes.pods import PodOptions, needs_agent
from tests.kubernetes.emulator.environment import expand
from tests.kubernetes.samples import (
    OPTIONS,
    RUN,
    a_container,
    a_job,
    a_pod,
    a_role,
    an_instance,
    main_container,
)
from tests.kubernetes.strict import complaints


def hold_of(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(
        each for each in pod["spec"]["initContainers"] if each["name"] == names.AGENT_CONTAINER
    )
    return found


def order_of(pod: dict[str, Any]) -> Order:
    """Return the order that the agent of a pod gets from its kubelet."""
    variables = {each["name"]: each.get("value", "") for each in main_container(pod)["env"]}
    return Order.of_text(expand(variables[ORDER_VARIABLE], {}))


def test_an_image_without_anything_works_when_nothing_is_asked():
    distroless = a_role(main={"name": "main", "image": "gcr.io/distroless/static"})
    pod = a_pod(a_job(distroless))
    assert "initContainers" not in pod["spec"]
    assert "command" not in main_container(pod)
    assert not any("agent" in volume["name"] for volume in pod["spec"]["volumes"])
    assert not needs_agent(an_instance(a_job(distroless)), OPTIONS)
    reporting = PodOptions(callback_url="http://airflow")
    assert "command" not in main_container(a_pod(a_job(distroless), options=reporting))


def test_a_held_instance_waits_in_a_restricted_init_container():
    pod = a_pod(a_job(a_role(spec={"initContainers": [a_container("fetch")]})), held=True)
    assert complaints(pod) == []
    assert [each["name"] for each in pod["spec"]["initContainers"]] == [
        "fetch",
        names.AGENT_CONTAINER,
    ]
    hold = hold_of(pod)
    assert hold["image"] == "agent:1"
    security = hold["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert main_container(pod)["command"] == ["python", "train.py"]
    assert pod["metadata"]["annotations"][names.HELD] == "true"


@pytest.mark.parametrize(
    ("asked", "beside"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"requests": {"cpu": "1"}}, [], id="only-cpu-as-in-a-queue-of-cpus"),
        pytest.param(
            {"requests": {"cpu": "50m", "memory": "32Mi"}}, [], id="less-than-an-agent-had"
        ),
        pytest.param({"limits": {"cpu": "2", "memory": "1Gi"}}, [], id="guaranteed"),
        pytest.param({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, [], id="burstable"),
        pytest.param({"limits": {"cpu": 2, "nvidia.com/gpu": 8}}, [], id="with-gpus"),
        pytest.param(
            {"requests": {"cpu": "1"}},
            [a_container("proxy", restartPolicy="Always", resources={"requests": {"cpu": "1"}})],
            id="after-a-sidecar",
        ),
    ],
)
def test_a_held_pod_asks_for_what_it_would_ask_for_otherwise(asked, beside):
    main = a_container(**({"resources": asked} if asked else {}))
    job = a_job(a_role(main=main, spec={"initContainers": beside} if beside else {}))
    held, plain = a_pod(job, held=True)["spec"], a_pod(job)["spec"]
    assert pod_requests(held) == pod_requests(plain)
    assert quality_of(held) == quality_of(plain)
    assert "nvidia.com/gpu" not in str(hold_of({"spec": held})["resources"])


def quality_of(spec: dict[str, Any]) -> str:
    """Return the class that Kubernetes gives a pod: by limits and requests of all of its containers."""
    asked = [
        each.get("resources") or {}
        for each in [*(spec.get("initContainers") or ()), *spec["containers"]]
    ]
    if all(
        each.get("limits", {}).keys() >= {"cpu", "memory"}
        and {**each["limits"], **each.get("requests", {})} == each["limits"]
        for each in asked
    ):
        return "Guaranteed"
    return "Burstable" if any(asked) else "BestEffort"


@pytest.mark.parametrize(
    ("pod_security", "configured", "user"),
    [
        pytest.param({}, 65532, 65532, id="nobody-is-named"),
        pytest.param({"runAsUser": 0}, 65532, 65532, id="never-root"),
        pytest.param({"runAsUser": 1000}, 65532, None, id="the-pods-own"),
        pytest.param({}, 0, None, id="openshift-says-who"),
        pytest.param({"runAsUser": 1000}, 7, None, id="the-pods-own-first"),
        pytest.param({"runAsNonRoot": True}, 7, 7, id="as-configured"),
    ],
)
def test_who_the_init_container_runs_as(pod_security, configured, user):
    options = dataclasses.replace(OPTIONS, agent_user=configured)
    job = a_job(a_role(spec={"securityContext": pod_security}))
    security = hold_of(a_pod(job, held=True, options=options))["securityContext"]
    assert security.get("runAsUser") == user
    assert security["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("agent_image", "policy"), [("agent:latest", "IfNotPresent"), ("", "Always")]
)
def test_the_agents_image_is_pulled_only_where_it_is_missing(agent_image, policy):
    options = dataclasses.replace(OPTIONS, agent_image=agent_image)
    job = a_job(a_role(main=a_container(imagePullPolicy="Always")))
    assert hold_of(a_pod(job, held=True, options=options))["imagePullPolicy"] == policy


def test_without_an_agent_image_the_users_own_is_taken():
    pod = a_pod(held=True, options=PodOptions(agent_config_map="m"))
    assert hold_of(pod)["image"] == "train:1"


def test_the_release_reaches_the_pod_without_rights():
    pod = a_pod(held=True)
    (volume,) = [v for v in pod["spec"]["volumes"] if "downwardAPI" in v]
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{names.RELEASE}']"
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_large_answers_have_a_place_from_the_start():
    small, large = a_job(a_role("worker", 100)), a_job(a_role("worker", 5000))
    assert answer_shards(facts_of(RUN, small)) == 0
    shards = answer_shards(facts_of(RUN, large))
    pod = a_pod(large, held=True)
    (volume,) = [v for v in pod["spec"]["volumes"] if "projected" in v]
    sources = [source["configMap"] for source in volume["projected"]["sources"]]
    assert all(source["optional"] for source in sources)
    documents = answer_documents(
        RUN, pod["metadata"]["name"], "3f0c", "x" * 1000, shard_bytes=999, record_uid="u"
    )
    assert len(sources) == shards >= len(documents) == 2
    assert [d["metadata"]["name"] for d in documents] == [s["name"] for s in sources[:2]]


def test_output_and_progress_make_the_agent_the_parent_of_the_command():
    job = a_job(output_uri="s3://b/$(x)", output_role="worker")
    pod = a_pod(job)
    command = main_container(pod)["command"]
    assert command[:5] == ["python3", "-I", "-S", command[3], "run"]
    assert command[command.index("--") + 1 :] == ["python", "train.py"]
    text = next(e["value"] for e in main_container(pod)["env"] if e["name"] == ORDER_VARIABLE)
    assert "s3://b/$$(x)" in text
    order = order_of(pod)
    assert order.output_uri == "s3://b/$(x)"
    assert order.predictions_dir == "/training/predictions"
    assert order.predictions_uri.startswith("s3://b/$(x).predictions/")
    assert order.predictions_uri.endswith("/worker-0")
    env = {each["name"]: each.get("value") for each in main_container(pod)["env"]}
    assert env["TRAINING_PREDICTIONS_DIR"] == "/training/predictions"
    assert order.progress_uri == "s3://b/$(x).progress/worker-0.json"
    mounts = {m["mountPath"]: m for m in main_container(pod)["volumeMounts"]}
    assert command[3].startswith(f"{inject.AGENT_FOLDER}/program/")
    assert mounts[f"{inject.AGENT_FOLDER}/program"]["readOnly"] is True
    assert "initContainers" not in pod["spec"]
    assert a_pod(job, index=1)["spec"]["containers"][0]["command"] == ["python", "train.py"]


def test_progress_beside_a_whole_bucket_is_inside_it():
    pod = a_pod(a_job(output_uri="s3://b/", output_role="worker"))
    assert order_of(pod).progress_uri == "s3://b/progress/worker-0.json"


def test_progress_goes_to_the_callback_with_a_token_that_is_a_secret():
    options = PodOptions(agent_config_map="m", callback_url="https://airflow/training/")
    pod = a_pod(options=options)
    assert order_of(pod).progress_url == f"https://airflow/training/runs/{RUN.uid}/progress"
    token = main_container(pod)["env"][-1]
    assert token["valueFrom"]["secretKeyRef"]["name"] == names.callback_secret_name(RUN)
    silent = a_job(a_role(metadata={"annotations": {names.AGENT: "false"}}))
    assert main_container(a_pod(silent, options=options))["command"] == ["python", "train.py"]


def test_the_programs_fit_into_a_config_map_and_bring_no_byte_code():
    agent, environment = portable_agent(), portable_environment_program()
    assert (len(agent) <= 384 * 1024, len(environment) <= 384 * 1024) == (True, True)
    assert b".pyc" not in agent + environment
    assert (portable_agent(), portable_environment_program()) == (agent, environment)
    for programs in ({"agent.pyz": agent}, {"agent.pyz": agent, "environment.pyz": environment}):
        document = agent_document(RUN, programs, record_uid="u")
        digest = hashlib.sha256(b"".join(programs.values())).hexdigest()[:8]
        assert document["metadata"]["name"] == f"digits-01234-agent-{digest}"
        assert set(document["binaryData"]) == set(programs)


def test_a_pod_of_a_job_with_a_checkpoint_is_checked_for_what_its_limits_say():
    gpus = a_container(resources={"limits": {"nvidia.com/gpu": 8}})
    job = a_job(a_role(main=gpus), checkpoint=ResolvedCheckpoint(uri="s3://b/c"))
    asked = order_of(a_pod(job)).readiness
    assert asked is not None
    assert (asked["devices"], asked["timeout_seconds"]) == (8, 60.0)
    assert "before" not in asked
    keeps_none = a_job(output_uri="s3://b", output_role="worker")
    assert order_of(a_pod(keeps_none)).readiness is None


@pytest.mark.parametrize(
    ("rules", "ordered"),
    [
        pytest.param(None, {}, id="as-the-agent-thinks-right"),
        pytest.param(StallRules(seconds=30), {"stallSeconds": 30, "sections": {}}, id="the-jobs"),
    ],
)
def test_a_pod_of_a_job_with_a_checkpoint_looks_for_hangs(rules, ordered):
    job = a_job(checkpoint=ResolvedCheckpoint(uri="s3://b/c", stall=rules))
    assert order_of(a_pod(job)).stall == ordered
