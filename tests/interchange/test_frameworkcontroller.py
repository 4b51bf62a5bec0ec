"""A Framework of FrameworkController: who is tried again, and which ends decide."""

from __future__ import annotations

import pytest

from tests.interchange.reading import fates, mistakes, ours, refused


def role(
    name: str, count: int = 1, *, failed: int = 1, succeeded: int = -1, retry: int = 0, fancy: str = "false"
) -> str:  # fmt: skip
    return f"""\
  - name: {name}
    taskNumber: {count}
    frameworkAttemptCompletionPolicy: {{minFailedTaskCount: {failed}, minSucceededTaskCount: {succeeded}}}
    task:
      retryPolicy: {{fancyRetryPolicy: {fancy}, maxRetryCount: {retry}}}
      pod:
        spec:
          restartPolicy: Never
          containers: [{{name: train, image: a, command: [python, train.py]}}]
"""


def framework(*roles: str, retry: int = 0, kind: str = "Start") -> str:
    return (
        "apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\nmetadata: {name: digits}\nspec:\n"
        f"  executionType: {kind}\n  retryPolicy: {{fancyRetryPolicy: false, maxRetryCount: {retry}}}\n"
        "  taskRoles:\n" + "".join(roles)
    )


def test_tasks_are_instances_that_know_their_index():
    text = framework(role("worker", 3))
    (worker,) = ours(text)["roles"]
    assert (worker["name"], worker["replicas"], worker["minFailed"]) == ("worker", 3, 1)
    env = worker["template"]["spec"]["containers"][0]["env"]
    assert {"name": "FC_TASK_INDEX", "value": "$(TRAINING_INDEX)"} in env
    assert refused(text) == {}


def test_nothing_is_tried_again_unless_a_policy_says_so():
    spec = ours(framework(role("worker", 2)))
    assert spec["roles"][0]["restartPolicy"] == "Never"
    assert spec["restart"]["maxRestarts"] == 0


def test_tasks_are_tried_again_one_by_one():
    spec = ours(framework(role("worker", 2, retry=3)))
    assert (spec["roles"][0]["restartPolicy"], spec["roles"][0]["backoffLimit"]) == ("OnFailure", 3)
    assert (spec["restart"]["scope"], spec["restart"]["maxRestarts"]) == ("Instance", 6)


def test_the_framework_begins_anew_as_a_whole():
    spec = ours(framework(role("a"), role("b", 2), retry=2))
    assert (spec["restart"]["scope"], spec["restart"]["maxRestarts"]) == ("Job", 2)
    assert [each["restartPolicy"] for each in spec["roles"]] == ["OnFailure", "OnFailure"]


def test_both_are_told_of_one_task_only():
    restart = ours(framework(role("a", retry=1), retry=2))["restart"]
    assert (restart["maxRestarts"], restart["then"], restart["maxFreshJobs"]) == (1, "FreshJob", 2)
    assert refused(framework(role("a", 2, retry=1), retry=2)) == {
        "spec.retryPolicy.maxRetryCount": 6
    }


def test_the_role_whose_tasks_complete_the_framework_decides():
    text = framework(role("ps", 2), role("worker", 3, succeeded=3))
    spec = ours(text)
    assert spec["successPolicy"] == {"operator": "Any", "targetRoles": ["worker"]}
    assert spec["roles"][1]["minSucceeded"] == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (framework(role("a", failed=-1)), 10),
        (framework(role("a", fancy="true")), 12),
        (framework(role("a", retry=-2)), 12),
        (framework(role("a", 2, failed=2), retry=1), 10),
        (framework(role("a"), kind="Stop"), 5),
    ],
)
def test_what_would_end_otherwise_is_refused_with_its_line(text, line):
    assert set(refused(text).values()) == {line}


def test_who_waits_for_the_controller_is_refused():
    text = framework(
        role("a")
        .replace(
            "containers:",
            "initContainers: [{name: b, image: frameworkcontroller/frameworkbarrier}]\n          containers:",
        )
        .replace("train.py", "$(FB_PS_ADDRESSES)")
    )
    assert set(refused(text).values()) == {16, 17}
    assert "initContainers" not in ours(text)["roles"][0]["template"]["spec"]


def test_a_framework_that_is_only_created_is_paused():
    assert ours(framework(role("a"), kind="Create"))["suspend"] is True
    assert fates(framework(role("a")))["spec.executionType"].fate == "translated"


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        (framework(), "spec.taskRoles", 7),
        (framework(role("a"), kind="Begin"), "spec.executionType", 5),
        (framework(role("a")).replace("taskNumber: 1", "taskNumber: one"), "spec.taskRoles[0].taskNumber", 9),
        (framework(role("a")).replace("Never", "Perhaps"), "spec.taskRoles[0].task.pod.spec.restartPolicy", 15),
        (framework(role("a")).replace("name: a\n", "name: ''\n"), "spec.taskRoles[0]", 8),
    ],
)  # fmt: skip
def test_a_broken_framework_is_told_with_its_line(text, field, line):
    assert (field, line) in mistakes(text)
