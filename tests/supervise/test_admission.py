"""From a document to a resolved job: every room's mistakes in one answer, and what is trusted."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_file, check_text
from airflow_training.admission.log_patterns import check_framework_file
from airflow_training.documents.resolved_blocks import ResolvedLogPattern
from tests.frameworks.samples import a_document


def text_of(framework: Any = "pytorch", roles: Any = None, **spec: Any) -> str:
    roles = {"master": 1, "worker": 2} if roles is None else roles
    return yaml.safe_dump(a_document(framework, roles, image="img", **spec), sort_keys=False)


def check(text: str, **more: Any):
    (checked,) = check_text(text, **more)
    assert (checked.resolved is None) == bool(checked.problems)
    return checked


def codes_of(checked) -> set[str]:
    return {problem.code for problem in checked.problems}


@pytest.fixture(autouse=True)
def _home(airflow_home):
    """Settings come from an empty Airflow home."""


def test_a_good_job_is_resolved_with_the_start_order_that_was_chosen():
    checked = check(text_of(schedulingPolicy={"gang": "volcano"}), runtime="kubernetes")
    assert checked.problems == []
    assert checked.resolved.scheduling.startup == "createAllHold"
    assert checked.layout.startup.reason
    assert check(text_of()).resolved.scheduling.startup == "ordered"


@pytest.mark.parametrize(
    ("framework", "roles", "spec", "code"),
    [
        ("pytorhc", None, {}, "unknown_framework"),
        ("pytorch", {"ps": 1}, {}, "unknown_role"),
        ("mpi", {"worker": 1}, {}, "missing"),
        ("pytorch", None, {"parameters": {"nprocPerNode": 0}}, "bad_parameter"),
        ("pytorch", None, {"env": [{"name": "RANK", "value": "1"}]}, "reserved_env"),
        ("pytorch", {"master": 2}, {}, "not_supported"),
        ("custom", {"w" * 60: 1}, {}, "name_too_long"),
        ({"name": "mine", "ref": "./mine.yaml"}, None, {}, "bad_reference"),
        ({"name": "pytorch", "digest": "sha256:" + "0" * 64}, None, {}, "digest_mismatch"),
        (
            "pytorch",
            None,
            {"schedulingPolicy": {"gang": "volcano", "startup": "ordered"}},
            "gang_order_deadlock",
        ),
    ],
)
def test_each_code_that_needs_a_framework(framework, roles, spec, code):
    checked = check(text_of(framework, roles, **spec))
    assert codes_of(checked) == {code}
    assert checked.problems[0].line is not None


def test_mistakes_of_all_rooms_come_together():
    text = text_of(
        roles={"master": 1, "worker": {"replicas": 2, "minSucceeded": 3}},
        env=[{"name": "RANK", "value": "1"}],
        parameters={"nprocs": 1},
        schedulingPolicy={"gang": "volcano", "startup": "ordered"},
    )
    assert codes_of(check(text)) == {
        "unsatisfiable_policy",
        "reserved_env",
        "bad_parameter",
        "gang_order_deadlock",
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"env": [{"name": "RANK", "value": "1"}]},
            {"unknown_key", "reserved_env"},
            id="reserved",
        ),
        pytest.param({"parameters": {"nprocs": 1}}, {"unknown_key", "bad_parameter"}, id="parameter"),
        pytest.param({"framework": "pytorhc"}, {"unknown_key", "unknown_framework"}, id="framework"),
        pytest.param({"framework": 7}, {"unknown_key", "wrong_type"}, id="no-framework-at-all"),
        pytest.param({"roles": []}, {"unknown_key", "out_of_range"}, id="no-roles"),
        pytest.param({"roles": [3]}, {"unknown_key", "wrong_type"}, id="no-role"),
        pytest.param(
            {"framework": "custom", "roles": [{"name": "A b"}]}, {"unknown_key", "bad_name"},
            id="bad-name",
        ),
    ],
)  # fmt: skip
def test_a_mistyped_key_hides_nothing_that_the_framework_refuses(spec, expected):
    document = a_document("pytorch", {"master": 1}, imge="typo")
    document["spec"] |= spec
    assert codes_of(check(yaml.safe_dump(document))) == expected


@pytest.mark.parametrize("text", ["", "- 1", "spec: 3", "a: [", "{}", "null", "spec: {roles: {}}"])
def test_nonsense_is_answered_not_raised(text):
    assert check(text).problems


def test_a_cycle_that_the_frameworks_default_closes_tells_the_way_out():
    text = text_of(roles={"master": {"dependsOn": [{"role": "worker"}]}, "worker": 2})
    checked = check(text)
    (problem,) = checked.problems
    assert (problem.code, problem.field) == ("cycle", "spec.roles[1].dependsOn")
    assert "dependsOn: []" in problem.hint
    mended = {"master": {"dependsOn": [{"role": "worker"}]}, "worker": {"dependsOn": []}}
    assert check(text_of(roles=mended)).problems == []


def test_every_document_of_a_file_is_answered(tmp_path):
    path = tmp_path / "jobs.yaml"
    document = yaml.safe_load(text_of("nope"))
    document["metadata"]["name"] = "other"
    texts = [text_of(), yaml.safe_dump(document), text_of()]
    path.write_text("---\n".join(texts))
    good, bad, again = check_file(path)
    assert good.resolved.base_dir == str(tmp_path)
    assert codes_of(bad) == {"unknown_framework"}
    assert codes_of(again) == {"duplicate"}, "a name is one job's within a file"


def test_a_file_that_is_not_there_is_an_answer_too(tmp_path):
    (checked,) = check_file(tmp_path / "none.yaml")
    assert codes_of(checked) == {"bad_reference"}


def test_a_framework_beside_the_job_file(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "apiVersion: airflow-training/v1\nkind: Framework\nmetadata: {name: mine}\n"
        "spec: {roles: [{name: a}]}\n"
    )
    path = tmp_path / "job.yaml"
    path.write_text(text_of({"name": "mine", "ref": "./mine.yaml"}, {"a": 1}))
    (checked,) = check_file(path)
    assert checked.resolved.framework == "mine"


# --- formats of log lines -----------------------------------------------------------------------

ROUNDS = {"name": "rounds", "line": "round {step} scored {score}", "example": "round 3 scored 0.5"}
NOTES = {"name": "notes", "line": "noted {loss} after", "example": "noted 0.5 after"}


def framework_beside(tmp_path, *patterns) -> str:
    """Write a framework with formats and a job that names it; return the job's path."""
    framework = {
        "apiVersion": "airflow-training/v1",
        "kind": "Framework",
        "metadata": {"name": "mine"},
        "spec": {"roles": [{"name": "a"}], "logs": {"patterns": [*patterns]}},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(framework, sort_keys=False))
    path = tmp_path / "job.yaml"
    reference = {"name": "mine", "ref": "./mine.yaml"}
    path.write_text(text_of(reference, {"a": 1}, logs={"patterns": [ROUNDS]}))
    return str(path)


def test_the_formats_of_a_job_go_before_those_of_its_framework(tmp_path):
    (checked,) = check_file(framework_beside(tmp_path, NOTES))
    assert checked.problems == []
    assert checked.resolved.log_patterns == (
        ResolvedLogPattern.from_document(ROUNDS),
        ResolvedLogPattern.from_document(NOTES),
    )


@pytest.mark.parametrize(
    ("change", "field", "told"),
    [
        ({"line": "(a+)+ {x} round"}, "line", "would be slow: a repeat without end"),
        ({"line": "{step}/{score}"}, "line", "would be slow: it has no fixed text"),
        ({"example": "another line"}, "line", "never matches"),
        ({"line": "round {step:parsec} of"}, "line", "has a unit that is not known"),
        ({"pairs": "sined"}, "pairs", "is not one of the values that exist"),
        ({"lines": "x"}, "lines", "is no key here"),
    ],
)
def test_a_format_that_is_no_good_is_refused_where_it_stands(change, field, told):
    text = text_of(logs={"patterns": [NOTES, {**ROUNDS, **change}]})
    (problem,) = check(text).problems
    assert problem.field == f"spec.logs.patterns[1].{field}"
    assert told in problem.message
    (line,) = [
        number
        for number, each in enumerate(text.splitlines(), 1)
        if each.strip(" -").startswith(f"{field}: ")
    ][-1:]
    assert problem.line == line


def test_a_format_is_looked_at_beside_other_mistakes():
    text = text_of(logs={"patterns": [{**ROUNDS, "example": "x"}]}, comand=["true"])
    assert {problem.field for problem in check(text).problems} == {
        "spec.comand",
        "spec.logs.patterns[0].line",
    }


def test_a_framework_with_a_format_that_is_no_good_is_told_of_where_it_is_named(tmp_path):
    path = framework_beside(tmp_path, {**NOTES, "example": "something else"})
    (checked,) = check_file(path)
    (problem,) = checked.problems
    assert problem.field == "spec.framework"
    assert "spec.logs.patterns[0].line: never matches" in problem.message
    assert problem.hint == "airflow-training frameworks check ./mine.yaml"
    (mistake,) = check_framework_file(tmp_path / "mine.yaml")
    assert (mistake.field, mistake.line) == ("spec.logs.patterns[0].line", 11)


# --- parameters ---------------------------------------------------------------------------------

LR = {"params": {"lr": {"type": "number", "default": 0.1, "minimum": 0}}}


@pytest.mark.parametrize(
    ("params", "code"),
    [({"lr": -1}, "out_of_range"), ({"lr": "fast"}, "wrong_type"), ({"lr": 0.5}, None)],
)
def test_parameters_are_checked_against_what_the_job_declares(params, code):
    checked = check(text_of(dag=LR), params=params)
    assert codes_of(checked) == ({code} if code else set())
    if not code:
        assert checked.resolved.variables["params"] == {"lr": 0.5}


def test_a_value_that_was_given_beside_the_document_is_on_none_of_its_lines():
    (problem,) = check(text_of(dag=LR), params={"lr": "fast"}).problems
    assert str(problem) == "params.lr: must be of type number, not text, given: 'fast'"


def test_a_parameter_without_default_is_missing_only_when_the_job_starts():
    text = text_of(dag={"params": {"lr": {"type": "number"}}})
    assert check(text).problems == []
    assert codes_of(check(text, run_uid="abc")) == {"missing"}
    assert check(text, run_uid="abc", params={"lr": 1}).problems == []


def test_overrides_are_checked_like_the_document():
    checked = check(text_of(), overrides=["spec.roles.worker.replicas=4"])
    assert checked.resolved.role("worker").replicas == 4
    assert codes_of(check(text_of(), overrides=["spec.framework=nope"])) == {"unknown_framework"}


# --- what a run needs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "key", "field"), [("local", "command", "spec.command"), ("kubernetes", "image", "spec.image")]
)  # fmt: skip
def test_what_cannot_start_is_a_warning_until_it_shall_start(runtime, key, field):
    document = a_document("custom", {"a": 1}, image="img")
    del document["spec"][key]
    text = yaml.safe_dump(document)
    checked = check(text, runtime=runtime)
    assert [(w.code, w.field) for w in checked.warnings] == [("missing", field)]
    assert codes_of(check(text, runtime=runtime, run_uid="abc")) == {"missing"}


def test_a_template_that_cannot_be_rendered_is_refused_before_the_start():
    text = text_of(
        command=["train", "{{ params.deep.lr }}"],
        dag={"params": {"deep": {"type": "object", "default": {}}}},
    )
    assert codes_of(check(text, run_uid="abc")) == {"bad_template"}


def test_no_job_outlives_the_deployments_ceiling(monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__MAX_RUN_SECONDS", "100")
    assert check(text_of()).resolved.active_deadline_seconds == 100
    assert check(text_of(activeDeadlineSeconds=50)).resolved.active_deadline_seconds == 50
    assert check(text_of(activeDeadlineSeconds=500)).resolved.active_deadline_seconds == 100


def test_a_runtime_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__DEFAULT_RUNTIME", "cloud")
    assert codes_of(check(text_of())) == {"not_allowed"}


# --- trust --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "spec", "metadata", "field"),
    [
        ("ALLOWED_NAMESPACES", "team-*", {}, {"namespace": "prod"}, "metadata.namespace"),
        (
            "ALLOWED_CONNECTIONS",
            "mine",
            {"runtime": {"name": "kubernetes", "connection": "theirs"}},
            {},
            "spec.runtime.connection",
        ),
        (
            "ALLOWED_SERVICE_ACCOUNTS",
            "trainer",
            {"roles": {"a": {"template": {"spec": {"serviceAccountName": "root"}}}}},
            {},
            "spec.roles[0].template.spec.serviceAccountName",
        ),
    ],
)
def test_allow_lists(monkeypatch, option, value, spec, metadata, field):
    document = a_document("custom", spec.pop("roles", {"a": 1}), image="img", **spec)
    document["metadata"] |= metadata
    text = yaml.safe_dump(document)
    assert check(text).problems == []
    monkeypatch.setenv(f"AIRFLOW__TRAINING__{option}", value)
    (problem,) = check(text).problems
    assert (problem.code, problem.field) == ("not_allowed", field)


@pytest.mark.parametrize(
    ("spec", "role", "field"),
    [
        ({}, {"template": {"spec": {"hostNetwork": True}}}, "hostNetwork"),
        ({}, {"template": {"spec": {"hostPID": True}}}, "hostPID"),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            {},
            "volumes[0].hostPath",
        ),
        (
            {},
            {
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "main", "securityContext": {"privileged": True}},
                        ]
                    }
                }
            },
            "containers[0].securityContext.privileged",
        ),
        (
            {},
            {
                "template": {
                    "spec": {
                        "initContainers": [
                            {"name": "i", "image": "x", "securityContext": {"privileged": True}}
                        ]
                    }
                }
            },
            "initContainers[0].securityContext.privileged",
        ),
    ],
)
def test_a_form_gives_no_rights_over_nodes(spec, role, field):
    text = text_of("custom", {"a": role}, **spec)
    assert check(text, source="file").problems == []
    (problem,) = check(text, source="form").problems
    assert problem.code == "not_allowed"
    assert problem.field == f"spec.roles[0].template.spec.{field}"


def test_a_form_names_no_files_of_the_server(tmp_path):
    text = text_of({"name": "mine", "ref": "/etc/passwd"})
    checked = check(text, source="form", base_dir=str(tmp_path))
    assert codes_of(checked) == {"bad_reference"}
    assert "root" not in str(checked.problems)


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ("def policy(job, user): return None", False),
        ("def policy(job, user): return f'{user} may not run {job.name}'", True),
        ("def policy(job, user): raise ValueError('no')", True),
        ("def other(job, user): return None", True),
        ("import nothing_of_that_name", True),
    ],
)
def test_the_job_policy_has_the_last_word_and_fails_closed(tmp_path, monkeypatch, policy, refused):
    (tmp_path / "house_rules.py").write_text(textwrap.dedent(policy))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("AIRFLOW__TRAINING__JOB_POLICY", "house_rules:policy")
    try:
        checked = check(text_of(), user="ann")
    finally:
        sys.modules.pop("house_rules", None)
    assert codes_of(checked) == ({"not_allowed"} if refused else set())


def test_what_only_a_cluster_can_do_is_a_warning_here():
    policy = {
        "gang": "volcano",
        "queue": "research",
        "priorityClassName": "high",
        "spread": {"topologyKey": "kubernetes.io/hostname"},
    }
    checked = check(text_of(schedulingPolicy=policy), runtime="local")
    assert {w.field.rpartition(".")[2] for w in checked.warnings if w.code == "not_supported"} == {
        *policy
    }
    assert check(text_of(schedulingPolicy=policy), runtime="kubernetes").warnings == []


def test_a_queue_that_nobody_reads_is_a_warning():
    checked = check(text_of(schedulingPolicy={"queue": "research"}), runtime="kubernetes")
    assert [w.field for w in checked.warnings] == ["spec.schedulingPolicy.queue"]


def test_what_kueue_cannot_do_is_refused_only_where_kueue_is_asked():
    text = text_of(schedulingPolicy={"gang": "kueue", "minAvailable": 1})
    (problem,) = check(text, runtime="kubernetes").problems
    assert (problem.code, problem.field) == ("not_supported", "spec.schedulingPolicy.minAvailable")
    assert check(text, runtime="local").problems == []


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        pytest.param(["python", "train.py"], "train.py", id="a-script-that-is-not-there"),
        pytest.param(["mpirun", "-n", "2", "python", "train.py"], "train.py", id="by-a-launcher"),
        pytest.param(["python", "here.py", "train.py"], "", id="only-the-script-counts"),
        pytest.param(["sh", "-c", "python train.py"], "", id="a-shell-knows-for-itself"),
        pytest.param(["python", "-m", "train"], "", id="a-module"),
        pytest.param(["python", "{{ params.script }}.py"], "", id="not-known-yet"),
    ],
)
def test_a_script_that_is_not_there_is_a_warning(tmp_path, command, absent):
    (tmp_path / "here.py").touch()
    text = yaml.safe_dump(
        {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "digits"},
            "spec": {
                "framework": "custom",
                "command": command,
                "roles": [{"name": "worker"}],
                "dag": {"params": {"script": {"type": "string", "default": "train"}}},
            },
        }
    )
    (checked,) = check_text(text, base_dir=str(tmp_path), runtime="local")
    assert [each.value for each in checked.warnings] == ([absent] if absent else [])
    (pods,) = check_text(text, base_dir=str(tmp_path), runtime="kubernetes")
    assert "bad_reference" not in {each.code for each in pods.warnings}
