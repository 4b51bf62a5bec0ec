"""How a command is brought into an image, and what a job in containers is told beforehand. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.agent.order import Order
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunRef
from airflow_training.runtimes.port import InstanceRef, InstanceSpec
from airflow_training.runtimes.slurm.adapter import SLURM
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.containers import order_in_container

RUN = RunRef(uid="u1", job="digits", namespace="default", controller="c")
ENV = {"PATH": "/host/bin", "VIRTUAL_ENV": "/host", "RANK": "3"}


def contained(
    *, binds: tuple[str, ...] = (), program: str = "apptainer", folder: str = "", **spec: Any
) -> Order:
    given = {"image": "python:3.12", "command": ("python", "train.py"), **spec}
    ref = InstanceRef(run=RUN, key=InstanceKey("worker", 0))
    return order_in_container(
        Order(working_dir="/home/ada", command=["/host/bin/python", "train.py"], env={**ENV, **given.get("env", {})}),
        InstanceSpec(ref=ref, name="worker-0", **given),
        AllocationOptions(container_runtime=program, binds=binds),
        folders=("/shared/run", "/shared/run", folder),
        host={"PATH": "/node/bin"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("image", "address"),
    [
        ("python:3.12", "docker://python:3.12"),
        ("ghcr.io/ada/train@sha256:ab", "docker://ghcr.io/ada/train@sha256:ab"),
        ("/shared/train.sif", "/shared/train.sif"),
        ("oras://ghcr.io/ada/train:1", "oras://ghcr.io/ada/train:1"),
    ],
)
def test_the_command_is_that_of_the_image(image, address):
    order = contained(image=image, args=("--rank", "$(RANK)"))
    assert list(order.container) == [
        "apptainer", "exec", "--pwd", "/home/ada", "--bind=/shared/run", address,
    ]  # fmt: skip
    assert list(order.command) == ["python", "train.py", "--rank", "3"]


def test_folders_of_the_node_and_its_gpus_are_given_on():
    order = contained(binds=("/data:/data:ro",), resources={"nvidia.com/gpu": "2"})
    assert list(order.container)[-3:-1] == ["--bind=/data:/data:ro", "--nv"]


def test_an_image_has_its_own_path_unless_the_job_names_one():
    env = contained().env
    assert "APPTAINERENV_PATH" not in env
    assert "VIRTUAL_ENV" not in env
    named = contained(program="singularity", env={"PATH": "/opt/bin"}).env
    assert named["SINGULARITYENV_PATH"] == "/opt/bin"
    assert named["PATH"] == env["PATH"] == "/node/bin", "the program itself is found by the node's"


def test_a_folder_that_cannot_be_mounted_is_named():
    with pytest.raises(ValueError, match="cannot mount '/shared/a,b'"):
        contained(folder="/shared/a,b")


def told(role: dict[str, Any] | None = None) -> dict[str, str]:
    """Return field -> message of what is wrong with a job in containers."""
    template = {"spec": {"containers": [{"name": "main", "command": ["train"], "image": "train"}]}}
    found = ResolvedJob(
        name="digits",
        runtime="slurm",
        runtime_options={"containerRuntime": "apptainer"},
        roles=(ResolvedRole(name="worker", replicas=2, **{"template": template, **(role or {})}),),
    )
    return {each.field: each.message for each in (*SLURM.missing(found), *SLURM.problems(found))}


def test_a_job_in_containers_is_told_what_it_lacks_and_what_it_cannot_have():
    assert told() == {}
    bare = {"spec": {"containers": [{"name": "main", "command": ["train"]}]}}
    assert "apptainer runs one" in told({"template": bare})["spec.image"]
    launcher = {"env": {"OMPI_MCA_plm_rsh_agent": "$(TRAINING_REMOTE_SHELL)"}}
    assert "cannot start ranks" in told(launcher)["spec.runtime.options.containerRuntime"]
