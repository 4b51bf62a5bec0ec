"""A PyTorchJob of the training operator: what it counted, what ended it, and what its pods were told."""

from __future__ import annotations

import pytest
import yaml

from tests.interchange.reading import fates, mistakes, ours, refused

POD = """\
      template:
        spec:
          containers:
            - name: pytorch
              image: ghcr.io/acme/digits:1.4
              command: [COMMAND]
"""


def replica(name: str, *lines: str, command: str = "python, train.py") -> str:
    body = "".join(f"      {line}\n" for line in lines)
    return f"    {name}:\n{body}{POD.replace('COMMAND', command)}"


def pytorchjob(*replicas: str, spec: str = "") -> str:
    return (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: digits}\nspec:\n"
        + "".join(f"  {line}\n" for line in spec.splitlines())
        + "  pytorchReplicaSpecs:\n"
        + "".join(replicas)
    )


BOTH = pytorchjob(replica("Master"), replica("Worker", "replicas: 3"))


def test_roles_and_container_keep_their_names():
    spec = ours(BOTH)
    assert spec["framework"] == "pytorch"
    assert [(role["name"], role["replicas"]) for role in spec["roles"]] == [
        ("master", 1),
        ("worker", 3),
    ]
    assert refused(BOTH) == {}


def test_the_master_decides_and_nothing_limits_restarts_as_nobody_wrote():
    spec, found = ours(BOTH), fates(BOTH)
    assert spec["successPolicy"] == {"targetRoles": ["master"]}
    assert spec["restart"]["maxRestarts"] == 1_000_000
    assert found["spec.runPolicy.backoffLimit"].default
    assert found["spec.successPolicy"].default


def test_the_limit_is_of_the_whole_job():
    spec = ours(
        pytorchjob(replica("Master"), replica("Worker"), spec="runPolicy: {backoffLimit: 2}")
    )
    assert spec["restart"]["maxRestarts"] == 2
    assert [role["backoffLimit"] for role in spec["roles"]] == [2, 2]


def test_exit_codes_are_judged_by_the_operators_table():
    text = pytorchjob(
        replica("Master", "restartPolicy: Never"), replica("Worker", "restartPolicy: ExitCode")
    )
    spec = ours(text)
    assert [role["restartPolicy"] for role in spec["roles"]] == ["Never", "ExitCode"]
    assert spec["restart"]["exitCodes"] == "kubeflow"


def test_pods_that_went_on_running_are_ended_in_any_case():
    found = fates(
        pytorchjob(replica("Master"), spec="runPolicy: {cleanPodPolicy: None, suspend: true}")
    )
    assert found["spec.runPolicy.cleanPodPolicy"].fate == "translated"
    assert found["spec.runPolicy.suspend"].to == "spec.suspend"


def test_variables_of_the_operator_win_as_before():
    text = pytorchjob(replica("Master")) + (
        "              env: [{name: MASTER_ADDR, value: localhost}, {name: LEVEL, value: info}]\n"
    )
    env = ours(text)["roles"][0]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "LEVEL", "value": "info"}]
    assert (
        fates(text)["spec.pytorchReplicaSpecs.Master.template.spec.containers[0].env[0].value"].fate
        == "dropped"
    )


TORCHRUN = replica("Worker", "replicas: 2", command="torchrun, train.py")


def test_an_elastic_job_keeps_its_sizes():
    text = pytorchjob(
        TORCHRUN,
        spec="nprocPerNode: '2'\n"
        "elasticPolicy:\n"
        "  minReplicas: 1\n"
        "  maxReplicas: 4\n"
        "  rdzvBackend: c10d\n"
        "  maxRestarts: 5\n"
        "  rdzvConf: [{key: last_call_timeout, value: '60'}]",
    )
    spec = ours(text)
    (role,) = spec["roles"]
    assert (role["minReplicas"], role["replicas"], role["maxReplicas"]) == (1, 2, 4)
    assert spec["parameters"] == {
        "rendezvousBackend": "c10d",
        "lastCallSeconds": 60,
        "nprocPerNode": 2,
    }
    assert role["template"]["spec"]["containers"][0]["env"] == [
        {"name": "PET_MAX_RESTARTS", "value": "5"}
    ]
    assert refused(text) == {}


def test_a_rendezvous_elsewhere_and_an_autoscaler_are_refused():
    text = pytorchjob(
        TORCHRUN,
        spec="nprocPerNode: '1'\nelasticPolicy:\n  rdzvHost: etcd-service\n  metrics: [{type: Resource}]",
    )
    assert set(refused(text).values()) == {7, 8}


@pytest.mark.parametrize(
    ("command", "resources", "parameters", "lost"),
    [
        ("python, train.py", "", None, False),
        ("torchrun, --nproc-per-node=2, train.py", "", None, False),
        ("torchrun, train.py", "{limits: {nvidia.com/gpu: 4}}", {"nprocPerNode": 4}, False),
        ("torchrun, train.py", "", None, True),
    ],
)
def test_how_many_processes_torchrun_starts_is_not_guessed(command, resources, parameters, lost):
    text = pytorchjob(replica("Master", command=command))
    text += f"              resources: {resources}\n" if resources else ""
    assert ours(text).get("parameters") == parameters
    assert ("spec.nprocPerNode" in refused(text)) is lost


def test_a_gang_is_told_only_where_the_document_says_which():
    policy = (
        "runPolicy: {schedulingPolicy: {minAvailable: 1, queue: research, priorityClass: high}}"
    )
    unknown = pytorchjob(replica("Master"), spec=policy)
    known = unknown.replace("        spec:\n", "        spec:\n          schedulerName: volcano\n")
    assert set(refused(unknown)) == {
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "spec.runPolicy.schedulingPolicy.queue",
    }
    assert ours(known)["schedulingPolicy"] == {
        "gang": "volcano",
        "minAvailable": 1,
        "queue": "research",
        "priorityClassName": "high",
    }


def test_a_field_that_is_new_is_refused_by_itself():
    text = pytorchjob(replica("Master", "surprise: {deep: [1]}"), spec="shiny: true")
    assert refused(text) == {"spec.shiny": 5, "spec.pytorchReplicaSpecs.Master.surprise.deep[0]": 8}


def test_a_refused_field_is_not_in_our_document():
    assert "shiny" not in yaml.safe_dump(ours(pytorchjob(replica("Master"), spec="shiny: true")))


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (pytorchjob(), "spec.pytorchReplicaSpecs", 5),
        (
            pytorchjob(replica("Master", "replicas: many")),
            "spec.pytorchReplicaSpecs.Master.replicas",
            7,
        ),
        (
            pytorchjob(replica("Master", "restartPolicy: Maybe")),
            "spec.pytorchReplicaSpecs.Master.restartPolicy",
            7,
        ),
        (
            pytorchjob(replica("Master").replace("- name: pytorch", "- {name: side}\n            - name: main")),
            "spec.pytorchReplicaSpecs.Master.template.spec.containers",
            9,
        ),
        (pytorchjob(replica("Master"), spec="runPolicy: [1]"), "spec.runPolicy", 5),
        (
            pytorchjob(replica("Master"), spec="runPolicy: {activeDeadlineSeconds: 0}"),
            "spec.runPolicy.activeDeadlineSeconds",
            5,
        ),
        (pytorchjob(replica("Master"), spec="nprocPerNode: some"), "spec.nprocPerNode", 5),
        (
            pytorchjob(replica("Master"), spec="elasticPolicy: {maxReplicas: 2}"),
            "spec.elasticPolicy",
            5,
        ),
        (BOTH.replace("kubeflow.org/v1", "kubeflow.org/v1beta2"), "apiVersion", 1),
    ],
)
def test_a_broken_job_is_told_with_its_line(text, field, line):
    assert (field, line) in mistakes(text)
