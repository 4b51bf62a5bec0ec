"""A Kubernetes Job: who counts, how many run at once, and what a pod is told."""

from __future__ import annotations

import pytest

from airflow_training.interchange.importing import FORMATS, import_text
from tests.interchange.reading import fates, mistakes, ours, refused

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: digits}
spec:
  EXTRA
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: train
          image: ghcr.io/acme/digits:1.4
          command: [python, train.py]
"""


def job(*lines: str, **changes: str) -> str:
    text = JOB.replace("  EXTRA\n", "".join(f"  {line}\n" for line in lines))
    for before, after in changes.items():
        text = text.replace(before, after)
    return text


INDEXED = job("completionMode: Indexed", "completions: 4", "parallelism: 4")


def test_a_plain_job_is_one_instance_that_is_tried_again_six_times():
    spec = ours(job())
    (role,) = spec["roles"]
    assert (role["replicas"], role["restartPolicy"], role["backoffLimit"]) == (1, "OnFailure", 6)
    assert spec["restart"]["maxRestarts"] == 6
    assert fates(job())["spec.backoffLimit"].default


def test_never_of_a_jobs_pods_does_not_mean_that_nothing_is_tried_again():
    assert fates(job())["spec.template.spec.restartPolicy"].to == "spec.roles[0].restartPolicy"


def test_an_indexed_job_finds_its_index():
    spec = ours(INDEXED)
    (role,) = spec["roles"]
    (container,) = role["template"]["spec"]["containers"]
    assert role["replicas"] == 4
    assert container["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "$(TRAINING_INDEX)"}]
    assert refused(INDEXED) == {}


@pytest.mark.parametrize("lines", [("completions: 8", "parallelism: 2"), ("completions: 8",)])
def test_pods_that_ran_in_turns_are_refused(lines):
    assert list(refused(job(*lines))) == ["spec.parallelism"]


def test_a_work_queue_is_refused():
    assert refused(job("parallelism: 3")) == {"spec.parallelism": 5}


def test_a_limit_of_each_index_lets_the_others_go_on():
    text = job(
        "completionMode: Indexed",
        "completions: 4",
        "parallelism: 4",
        "backoffLimitPerIndex: 1",
        "maxFailedIndexes: 2",
    )
    spec = ours(text)
    assert (spec["roles"][0]["backoffLimit"], spec["roles"][0]["minFailed"]) == (1, 3)
    assert spec["restart"]["maxRestarts"] == 4
    assert refused(text) == {}


def test_rules_about_pods_keep_their_order_and_meaning():
    text = job(
        "podFailurePolicy:",
        "  rules:",
        "    - {action: Ignore, onPodConditions: [{type: DisruptionTarget}]}",
        "    - action: FailJob",
        "      onExitCodes: {containerName: train, operator: In, values: [42]}",
        "    - {action: FailIndex, onExitCodes: {operator: In, values: [7]}}",
    )
    assert ours(text)["failurePolicy"]["rules"] == [
        {"action": "Ignore", "onClasses": ["preemption"]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    assert set(refused(text).values()) == {10}


def test_enough_successes_are_kept_and_certain_indexes_refused():
    head = ("completionMode: Indexed", "completions: 4", "parallelism: 4", "successPolicy:")
    enough = job(*head, "  rules: [{succeededCount: 3}]")
    certain = job(*head, "  rules: [{succeededIndexes: 0-1}]")
    assert ours(enough)["roles"][0]["minSucceeded"] == 3
    assert list(refused(certain)) == ["spec.successPolicy.rules[0].succeededIndexes"]


def test_the_index_is_found_by_the_downward_api_too():
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    text = INDEXED + (
        "          env:\n"
        f'            - {{name: SHARD, valueFrom: {{fieldRef: {{fieldPath: "{path}"}}}}}}\n'
        "            - {name: UID, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['controller-uid']\"}}}\n"
    )
    (container,) = ours(text)["roles"][0]["template"]["spec"]["containers"]
    assert {"name": "SHARD", "value": "$(TRAINING_INDEX)"} in container["env"]
    assert "UID" not in {each["name"] for each in container["env"]}
    assert set(refused(text).values()) == {17}


def test_braces_of_others_stay_text():
    text = job() + '          args: ["--format", "{{ name }}"]\n'
    (container,) = ours(text)["roles"][0]["template"]["spec"]["containers"]
    assert container["args"] == ["--format", "{{ '{{' }} name }}"]


def test_a_second_container_is_refused_as_its_end_counted():
    text = job() + "        - {name: proxy, image: proxy}\n"
    assert set(refused(text).values()) == {12}


def test_what_selects_pods_by_labels_of_a_controller_is_refused():
    text = job().replace(
        "      restartPolicy",
        "      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ["
        "{topologyKey: zone, labelSelector: {matchLabels: {job-name: digits}}}]}}\n      restartPolicy",
    )
    assert set(refused(text).values()) == {7}
    assert "affinity" not in ours(text)["roles"][0]["template"]["spec"]


def test_a_queue_by_label_becomes_the_gang_that_waits_in_it():
    text = job().replace(
        "{name: digits}", '{name: digits, labels: {kueue.x-k8s.io/queue-name: research, "team": a}}'
    )
    assert ours(text)["schedulingPolicy"] == {"gang": "kueue", "queue": "research"}


def test_what_the_server_wrote_does_not_matter():
    text = job().replace("{name: digits}", "{generateName: digits-, uid: abc, generation: 2}")
    text += "status: {active: 1}\n"
    found = fates(text)
    assert found["metadata.generateName"].to == "metadata.name"
    assert {found[each].fate for each in ("metadata.uid", "status.active")} == {"dropped"}


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (job("completions: four"), "spec.completions", 5),
        (job("backoffLimit: -1"), "spec.backoffLimit", 5),
        (job("completionMode: Each"), "spec.completionMode", 5),
        (job("suspend: 1"), "spec.suspend", 5),
        (
            job(**{"restartPolicy: Never": "restartPolicy: Always"}),
            "spec.template.spec.restartPolicy",
            7,
        ),
        (job(**{"{name: digits}": "{}"}), "metadata", 3),
        (job(**{"batch/v1": "batch/v1beta1"}), "apiVersion", 1),
        (
            job(**{"[python, train.py]": "[python, train.py]\n          image: b"}),
            "spec.template.spec.containers[0].image",
            12,
        ),
    ],
)
def test_a_broken_job_is_told_with_its_line(text, field, line):
    assert mistakes(text) == [(field, line)]


@pytest.mark.parametrize(
    "head",
    [
        "apiVersion: batch/v2\nkind: Job\n",
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\n",
    ],
)
def test_another_version_is_refused_with_all_that_is_read(head):
    (imported,) = import_text(head + "metadata: {name: a}\n")
    (problem,) = imported.problems
    assert "Job of batch/v1" in problem.allowed
    assert len(problem.allowed) >= len(FORMATS)


def test_what_is_no_job_is_told_with_all_that_is_read():
    (imported,) = import_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    (fate,) = imported.report.of("refused")
    assert "PyTorchJob of kubeflow.org/v1" in fate.why
