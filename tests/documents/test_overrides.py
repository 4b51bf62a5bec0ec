"""`--set path=value` on a document."""

from __future__ import annotations

import copy

import pytest

from airflow_training.documents.overrides import apply_overrides
from airflow_training.documents.parsing import TrainingJob
from tests.documents.documents import MINIMAL, edited, only_problem, parsed


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("spec.roles.worker.replicas=4", "spec.roles.1.replicas", 4),
        ("spec.roles[1].replicas=4", "spec.roles.1.replicas", 4),
        ("spec.roles.1.replicas=4", "spec.roles.1.replicas", 4),
        ("spec.suspend=true", "spec.suspend", True),
        ("spec.suspend=yes", "spec.suspend", "yes"),
        ("metadata.name=other", "metadata.name", "other"),
        ("spec.image=ghcr.io/a/b:1.4", "spec.image", "ghcr.io/a/b:1.4"),
        ("spec.args=[--lr, '0.1']", "spec.args", ["--lr", "0.1"]),
        ("spec.command[0]=echo", "spec.command", ["echo"]),
        ("spec.restart.backoff.factor=1.5", "spec.restart.backoff.factor", 1.5),
        ("spec.restart.window={seconds: 9, maxRestarts: 1}", "spec.restart.window",
         {"seconds": 9, "maxRestarts": 1}),
        ("spec.dag.params.lr={default: 0.5}", "spec.dag.params.lr", {"default": 0.5}),
        ("spec.dag.params.lr.default=0.5", "spec.dag.params.lr.default", 0.5),
        ("spec.parameters.nprocPerNode=2", "spec.parameters.nprocPerNode", 2),
        ("spec.parameters.a.b=x=y", "spec.parameters.a.b", "x=y"),
        ('metadata.labels["a.b/c"]=d', "metadata.labels", {"a.b/c": "d"}),
        ("spec.framework={name: mine}", "spec.framework", {"name": "mine"}),
        ("spec.activeDeadlineSeconds=null", "spec.activeDeadlineSeconds", None),
        ("spec.image=", "spec.image", ""),
        ("spec.roles.worker.template.spec.hostNetwork=true", "spec.roles.1.template.spec.hostNetwork",
         True),
    ],
)  # fmt: skip
def test_one_value_is_replaced_and_all_else_kept(assignment, path, value):
    before = copy.deepcopy(MINIMAL)
    changed, problems = apply_overrides(MINIMAL, [assignment], model=TrainingJob)
    assert problems == []
    assert changed == edited(path, value)
    assert before == MINIMAL


def test_items_with_names_are_found_by_name():
    base = edited("spec.env", [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    changed, problems = apply_overrides(base, ["spec.env.B.value='3'"], model=TrainingJob)
    assert problems == []
    assert changed["spec"]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]


def test_assignments_apply_in_order():
    changed, problems = apply_overrides(
        MINIMAL, ["spec.dag={}", "spec.dag.owner=me"], model=TrainingJob
    )
    assert problems == []
    assert changed["spec"]["dag"] == {"owner": "me"}


@pytest.mark.parametrize(
    ("assignment", "code", "field", "hint"),
    [
        ("spec.roles.worker.replicsa=4", "unknown_key", "spec.roles[1].replicsa", "did you mean 'replicas'?"),
        ("spec.roles.wrker.replicas=4", "unknown_role", "spec.roles.wrker", "did you mean 'worker'?"),
        ("spec.roles[7].replicas=4", "unknown_role", "spec.roles[7]", ""),
        ("spce.suspend=true", "unknown_key", "spce", "did you mean 'spec'?"),
        ("spec.image.tag=1", "unknown_key", "spec.image", ""),
        ("spec.env.A.value=1", "unknown_key", "spec.env", ""),
        ("spec.suspend", "syntax", "spec.suspend", "spec.suspend=true"),
        ("spec..suspend=1", "syntax", "spec..suspend=1", "spec.suspend=true"),
        ("=1", "syntax", "=1", "spec.suspend=true"),
        ("spec.args=[a", "syntax", "spec.args", "quote it as YAML text"),
    ],
)  # fmt: skip
def test_an_unknown_path_says_what_exists(assignment, code, field, hint):
    changed, problems = apply_overrides(MINIMAL, [assignment], model=TrainingJob)
    (problem,) = problems
    assert (problem.code, problem.field, problem.hint) == (code, field, hint)
    assert changed == MINIMAL


def test_a_document_is_checked_after_its_overrides():
    job = parsed(MINIMAL, overrides=["spec.roles.worker.replicas=4"]).job
    assert job is not None
    assert job.spec.roles[1].replicas == 4
    problem = only_problem(MINIMAL, overrides=["spec.roles.worker.replicas=-4"])
    assert (problem.code, problem.field) == ("out_of_range", "spec.roles[1].replicas")


def test_a_document_that_is_no_mapping_is_refused_not_crashed_on():
    _, problems = apply_overrides(["a"], ["spec.suspend=true"], model=TrainingJob)
    assert [problem.code for problem in problems] == ["unknown_key"]
