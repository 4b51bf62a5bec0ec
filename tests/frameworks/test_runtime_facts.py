"""Frameworks ask what a runtime is like, not which one it is: a stranger's gets what ours get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.frameworks.registry import LoadedFramework, parse_framework
from airflow_training.frameworks.runtime_facts import RuntimeFacts
from airflow_training.runtimes.registry import adapter_of
from tests.frameworks.samples import a_job, container_of, rendering_of, resolve_job

JOBS: dict[str, dict[str, Any]] = {
    "pytorch": {"worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 3}},
    "jax": {"worker": 2},
    "mpi": {"launcher": 1, "worker": 2},
    "lightgbm": {"master": 1, "worker": 2},
    "ray": {"head": 1, "worker": 2},
}


def rendered(framework: str, runtime: RuntimeFacts, *, like: str, **spec: Any) -> dict[str, Any]:
    """Return what instances get on a runtime; `like`: ours, whose addresses it has."""
    job, _ = resolve_job(a_job(framework, JOBS[framework], **spec), runtime=runtime)
    assert job.runtime == runtime.name
    answer = {}
    for role in job.roles:
        rendering = replace(
            rendering_of(replace(job, runtime=like), role.name), job=job, runtime=runtime
        )
        answer[role.name] = (
            rendering.environment(),
            rendering.files(),
            container_of(job, role.name),
            role.ports,
            role.template.get("metadata"),
        )
    return answer


@pytest.mark.parametrize("ours", ["local", "kubernetes"])
@pytest.mark.parametrize(
    ("framework", "spec"),
    [
        *((name, {}) for name in JOBS),
        ("mpi", {"parameters": {"implementation": "Intel"}}),
        ("mpi", {"parameters": {"implementation": "MPICH"}}),
    ],
    ids=[*JOBS, "mpi-intel", "mpich"],
)
def test_a_runtime_that_is_like_one_of_ours_gets_the_same(ours, framework, spec):
    facts = adapter_of(ours).facts
    strangers = rendered(framework, replace(facts, name="stranger"), like=ours, **spec)
    assert strangers == rendered(framework, facts, like=ours, **spec)


def test_processes_of_other_machines_have_files_in_their_own_folders_and_shared_memory_of_their_node():
    slurm = RuntimeFacts(name="slurm")
    made = rendered("mpi", slurm, like="local")
    env, files, _, _, annotations = made["launcher"]
    assert env["OMPI_MCA_orte_default_hostfile"] == "$(TRAINING_INSTANCE_DIR)/mpi/hostfile"
    assert env["OMPI_MCA_plm_rsh_agent"] == "$(TRAINING_REMOTE_SHELL)"
    assert list(files.files) == ["mpi/hostfile"]
    assert not annotations  # no keys: nothing runs sshd
    env = made["worker"][0]
    assert env["MPI_SHARED_MEMORY_DIR"].startswith("/dev/shm/")
    assert env["OMPI_MCA_btl_vader_backing_directory"] == "$(MPI_SHARED_MEMORY_DIR)"


LAYERED = """\
apiVersion: airflow-training/v1
kind: Framework
metadata: {name: layered}
spec:
  parameters: {big: {type: boolean, default: false}}
  roles:
    - name: worker
      template: {spec: {containers: [{name: main, image: plain, workingDir: /}]}}
      templates:
        - {when: parameters.big, template: {spec: {containers: [{name: main, image: big}]}}}
        - {when: not runs_here, template: {spec: {containers: [{name: main, workingDir: /work}]}}}
      templateFor:
        kubernetes: {spec: {containers: [{name: main, image: pods}]}}
  env:
    - {name: WHERE, value: "{{ files_dir or instance_dir }}"}
    - {name: KIND, value: here, when: runs_here}
    - {name: KIND, value: "on {{ runtime }}", when: runtime != 'local'}
"""


@pytest.mark.parametrize(
    ("runtime", "big", "image", "folder", "env"),
    [
        ("local", False, "plain", "/", {"WHERE": "$(TRAINING_INSTANCE_DIR)", "KIND": "here"}),
        ("local", True, "big", "/", {"WHERE": "$(TRAINING_INSTANCE_DIR)", "KIND": "here"}),
        ("kubernetes", True, "pods", "/work", {"WHERE": "/etc/training", "KIND": "on kubernetes"}),
    ],
    ids=["here", "by-parameter", "by-name-last"],
)
def test_ones_own_framework_may_ask_for_facts_and_for_names(runtime, big, image, folder, env):
    framework, problems = parse_framework(LAYERED)
    assert framework is not None
    assert not problems
    job, _ = resolve_job(
        a_job("layered", {"worker": 1}, parameters={"big": big}),
        runtime=runtime,
        loaded=LoadedFramework(
            framework=framework, origin="folder", location="layered.yaml", digest=""
        ),
    )
    container = container_of(job, "worker")
    assert (container["image"], container["workingDir"]) == (image, folder)
    made = rendering_of(job, "worker").environment()
    assert {name: made[name] for name in env} == env


def test_mistakes_in_conditional_templates_are_told():
    text = LAYERED.replace("when: parameters.big", "when: parameters.large").replace(
        "workingDir: /work", "workinDir: /work"
    )
    _, problems = parse_framework(text)
    assert [problem.field for problem in problems] == [
        "spec.roles[0].templates[0].when",
        "spec.roles[0].templates[1].template.spec.containers[0].workinDir",
    ]
