"""TFJob, XGBoostJob, PaddleJob and MPIJob of the training operator (`kubeflow.org/v1`)."""

from __future__ import annotations

from typing import Any

from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.operator_jobs import (
    OperatorKind,
    operator_document,
    success_of,
    translate_roles,
)

__all__ = ["translate_mpijob", "translate_paddlejob", "translate_tfjob", "translate_xgboostjob"]

_TENSORFLOW = OperatorKind(
    framework="tensorflow",
    replicas="tfReplicaSpecs",
    roles=("chief", "master", "worker", "ps", "evaluator"),
    container="tensorflow",
    port=2222,
    restart="Never",
    taken=frozenset({"TF_CONFIG"}),
)
_XGBOOST = OperatorKind(
    framework="xgboost",
    replicas="xgbReplicaSpecs",
    roles=("master", "worker"),
    container="xgboost",
    port=9999,
    restart="Never",
    taken=frozenset(
        {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORKER_ADDRS", "WORKER_PORT", "WORLD_SIZE"}
    ),
)
_PADDLE = OperatorKind(
    framework="paddle",
    replicas="paddleReplicaSpecs",
    roles=("master", "worker"),
    container="paddle",
    port=36543,
    restart="OnFailure",
    taken=frozenset(
        {
            "PADDLE_JOB_ID",
            "PADDLE_MASTER",
            "PADDLE_NNODES",
            "PADDLE_SERVER_NUM",
            "PADDLE_TRAINER_NUM",
        }
    ),
)
_MPI = OperatorKind(
    framework="mpi",
    replicas="mpiReplicaSpecs",
    roles=("launcher", "worker"),
    container="mpi",
    port=2222,
    restart="Never",
)


def translate_tfjob(source: SourceField) -> dict[str, Any]:
    """Return our document for a TFJob."""
    spec = source["spec"].block()
    roles = translate_roles(spec, _TENSORFLOW, source["metadata"]["name"].text("\0"))
    dynamic = spec["enableDynamicWorker"]
    if dynamic.flag():
        dynamic.refuse(
            "a worker that fails for good fails its role, and TF_CONFIG names all workers"
        )
    else:
        dynamic.drop("says nothing")
    success = success_of(source, roles, "chief", "master")
    policy = spec["successPolicy"]
    value = policy.one_of(("", "AllWorkers"), "")
    workers = next((role["replicas"] for role in roles if role["name"] == "worker"), 0)
    if any(role["name"] in ("chief", "master") for role in roles):
        policy.drop("the chief alone decides")
    elif value == "AllWorkers" or workers == 1:
        to = ("spec", "successPolicy", "targetRoles")
        policy.settle("translated", "", to=to, why="all workers have to succeed")
        success = {"successPolicy": {"targetRoles": ["worker"]}} if workers else {}
    else:
        policy.settle(
            "refused",
            "",
            why="the job had succeeded when worker 0 had; here all workers have to: AllWorkers says so",
        )
    return operator_document(source, _TENSORFLOW, roles, success=success)


def translate_xgboostjob(source: SourceField) -> dict[str, Any]:
    """Return our document for an XGBoostJob."""
    roles = translate_roles(source["spec"].block(), _XGBOOST, source["metadata"]["name"].text("\0"))
    return operator_document(source, _XGBOOST, roles, success=success_of(source, roles, "master"))


def translate_paddlejob(source: SourceField) -> dict[str, Any]:
    """Return our document for a PaddleJob."""
    spec = source["spec"].block()
    roles = translate_roles(spec, _PADDLE, source["metadata"]["name"].text("\0"))
    spec["elasticPolicy"].refuse("a job of this framework keeps its size")
    return operator_document(source, _PADDLE, roles, success=success_of(source, roles, "master"))


def translate_mpijob(source: SourceField) -> dict[str, Any]:
    """Return our document for an MPIJob of the training operator, not of the MPI operator."""
    spec = source["spec"].block()
    main = spec["mainContainer"]
    main.drop("the training container has the name that the framework gives it")
    job = source["metadata"]["name"].text("\0")
    roles = translate_roles(spec, _MPI, job, container=main.text())
    slots, own = spec["slotsPerWorker"], spec["cleanPodPolicy"]
    slots.keep(("spec", "parameters", "slotsPerWorker"))
    source.accounts.default(
        ("spec", _MPI.replicas),
        "kubectl exec",
        "translated",
        to=("spec", "framework"),
        why="the launcher reaches the workers by ssh, so their image needs an ssh server",
    )
    if own:
        spec["runPolicy"]["cleanPodPolicy"].drop("cleanPodPolicy of the spec is given")
    return operator_document(
        source,
        _MPI,
        roles,
        parameters={"slotsPerWorker": slots.whole(1, least=1)} if slots else None,
        success=success_of(source, roles, "launcher"),
        clean=own if own else None,
    )
