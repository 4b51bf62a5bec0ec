"""Each error code that needs no framework, and each warning: where it points and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.documents.parsing import parse
from tests.documents.documents import FULL_TEXT, MINIMAL, edited, found, only_problem, parsed


def roles(*roles: dict[str, Any]) -> dict[str, Any]:
    return edited("spec.roles", list(roles))


def waits(role: str, **options: object) -> list[dict[str, Any]]:
    return [{"role": role, **options}]


LONG_ADDRESS = f"s3://{500 * 'a'}"
CHECKPOINT = {"uri": "s3://a"}

CODES = [
    pytest.param(
        edited("spec.rols", []),
        "unknown_key",
        "spec.rols",
        "rols",
        "did you mean 'roles'?",
        id="unknown_key",
    ),
    pytest.param(
        edited("spec.roles.1.depends_on", []),
        "unknown_key",
        "spec.roles[1].depends_on",
        "depends_on",
        "did you mean 'dependsOn'?",
        id="unknown_key-snake-case",
    ),
    pytest.param(edited("extra", 1), "unknown_key", "extra", "extra", "", id="unknown_key-at-root"),
    pytest.param(
        edited("spec.roles.1.dependsOn", [{"role": "master", "status": "Succeeded"}]),
        "not_allowed",
        "spec.roles[1].dependsOn[0].status",
        "Succeeded",
        "did you mean 'Complete'?",
        id="not_allowed-word-of-a-state",
    ),
    pytest.param(
        edited("spec.roles.1.dependsOn", [{"role": "master", "status": "service_healthy"}]),
        "not_allowed",
        "spec.roles[1].dependsOn[0].status",
        "service_healthy",
        "did you mean 'Ready'?",
        id="not_allowed-word-of-another-system",
    ),
    pytest.param(
        edited("spec.failurePolicy", {"rules": [{"action": "FailJobSet"}]}),
        "not_allowed",
        "spec.failurePolicy.rules[0].action",
        "FailJobSet",
        "did you mean 'FailJob'?",
        id="not_allowed-action-of-another-system",
    ),
    pytest.param(edited("metadata", {}), "missing", "metadata.name", None, "", id="missing-name"),
    pytest.param(
        edited("spec.output", {"role": "worker"}),
        "missing",
        "spec.output.uri",
        None,
        "",
        id="missing-nested",
    ),
    pytest.param(
        edited("spec.data", {"shard": "byInstance"}),
        "missing",
        "spec.data.files",
        None,
        "",
        id="missing-files-to-shard",
    ),
    pytest.param(
        edited("spec.checkpoint", {**CHECKPOINT, "resume": {}}),
        "missing",
        "spec.checkpoint.resume",
        None,
        "",
        id="missing-where-to-resume",
    ),
    pytest.param(
        edited("spec.plan", {"globalBatch": 8}),
        "missing",
        "spec.plan.model",
        None,
        "",
        id="missing-model-to-plan",
    ),
    pytest.param(
        edited("spec.plan", {"model": "model.yaml"}),
        "missing",
        "spec.plan.globalBatch",
        None,
        "",
        id="missing-batch-to-plan",
    ),
    pytest.param(
        edited(
            "spec.plan",
            {"model": "m.yaml", "globalBatch": 8, "constraints": {"global_batch": 16}},
        ),
        "conflict",
        "spec.plan.globalBatch",
        8,
        "",
        id="conflict-batch-pinned-twice",
    ),
    pytest.param(
        edited("spec.plan", {"model": "m.yaml", "globalBatch": 8, "role": "workr"}),
        "unknown_role",
        "spec.plan.role",
        "workr",
        "did you mean 'worker'?",
        id="unknown_role-to-plan-for",
    ),
    pytest.param(
        edited("spec.roles.1.replicas", "3"),
        "wrong_type",
        "spec.roles[1].replicas",
        "3",
        "write it without quotes",
        id="wrong_type-number-in-quotes",
    ),
    pytest.param(
        edited("spec.suspend", "yes"),
        "wrong_type",
        "spec.suspend",
        "yes",
        "YAML 1.2 knows only true and false",
        id="wrong_type-yes",
    ),
    pytest.param(
        edited("spec.args", [1]),
        "wrong_type",
        "spec.args[0]",
        1,
        'write it in quotes: "1"',
        id="wrong_type-text-without-quotes",
    ),
    pytest.param(
        edited("spec.roles.1.replicas", -1),
        "out_of_range",
        "spec.roles[1].replicas",
        -1,
        "",
        id="out_of_range",
    ),
    pytest.param(
        edited("spec.reconcileSeconds", float("inf")),
        "out_of_range",
        "spec.reconcileSeconds",
        "inf",
        "",
        id="out_of_range-infinite",
    ),
    pytest.param(
        roles({"name": "a", "minReplicas": 3, "maxReplicas": 4, "replicas": 2}),
        "out_of_range",
        "spec.roles[0].minReplicas",
        3,
        "",
        id="out_of_range-more-than-replicas",
    ),
    pytest.param(
        roles({"name": "a", "minReplicas": 1, "maxReplicas": 2, "replicas": 3}),
        "out_of_range",
        "spec.roles[0].maxReplicas",
        2,
        "",
        id="out_of_range-less-than-replicas",
    ),
    pytest.param(
        edited("spec.roles.1.restartPolicy", "onFailure"),
        "not_allowed",
        "spec.roles[1].restartPolicy",
        "onFailure",
        "did you mean 'OnFailure'?",
        id="not_allowed",
    ),
    pytest.param(
        edited("apiVersion", "airflow-training/v2"),
        "not_allowed",
        "apiVersion",
        "airflow-training/v2",
        "did you mean 'airflow-training/v1'?",
        id="not_allowed-version",
    ),
    pytest.param(edited("kind", "Job"), "not_allowed", "kind", "Job", "", id="not_allowed-kind"),
    pytest.param(
        edited("spec.dag", {"schedule": "@wekly"}),
        "not_allowed",
        "spec.dag.schedule",
        "@wekly",
        "did you mean '@weekly'?",
        id="not_allowed-schedule",
    ),
    pytest.param(
        roles({"name": "a"}, {"name": "a"}),
        "duplicate",
        "spec.roles[1].name",
        "a",
        "",
        id="duplicate-role",
    ),
    pytest.param(
        edited("spec.failurePolicy", {"rules": [{"name": "a", "action": "Ignore"}] * 2}),
        "duplicate",
        "spec.failurePolicy.rules[1].name",
        "a",
        "",
        id="duplicate-rule",
    ),
    pytest.param(
        roles({"name": "a"}, {"name": "b", "dependsOn": waits("a") * 2}),
        "duplicate",
        "spec.roles[1].dependsOn[1].role",
        "a",
        "",
        id="duplicate-dependency",
    ),
    pytest.param(
        edited("spec.env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        "duplicate",
        "spec.env[1].name",
        "A",
        "",
        id="duplicate-env",
    ),
    pytest.param(
        edited("spec.roles.1.dependsOn", waits("mastr")),
        "unknown_role",
        "spec.roles[1].dependsOn[0].role",
        "mastr",
        "did you mean 'master'?",
        id="unknown_role",
    ),
    pytest.param(
        edited("spec.successPolicy", {"targetRoles": ["chief"]}),
        "unknown_role",
        "spec.successPolicy.targetRoles[0]",
        "chief",
        "",
        id="unknown_role-success",
    ),
    pytest.param(
        edited("spec.failurePolicy", {"targetRoles": ["worker", "chief"]}),
        "unknown_role",
        "spec.failurePolicy.targetRoles[1]",
        "chief",
        "",
        id="unknown_role-failure",
    ),
    pytest.param(
        edited("spec.failurePolicy", {"rules": [{"action": "Ignore", "targetRoles": ["wrker"]}]}),
        "unknown_role",
        "spec.failurePolicy.rules[0].targetRoles[0]",
        "wrker",
        "did you mean 'worker'?",
        id="unknown_role-rule",
    ),
    pytest.param(
        edited("spec.output", {"uri": "s3://a", "role": "chief"}),
        "unknown_role",
        "spec.output.role",
        "chief",
        "",
        id="unknown_role-output",
    ),
    pytest.param(
        edited("spec.args", ["{{ address('mster', 0) }}"]),
        "unknown_role",
        "spec.args[0]",
        "mster",
        "did you mean 'master'?",
        id="unknown_role-in-an-expression",
    ),
    pytest.param(
        edited("spec.roles.1.dependsOn", waits("worker")),
        "self_dependency",
        "spec.roles[1].dependsOn[0].role",
        "worker",
        "",
        id="self_dependency",
    ),
    pytest.param(
        edited("metadata.name", "Digits_1"),
        "bad_name",
        "metadata.name",
        "Digits_1",
        "'digits-1' would do",
        id="bad_name-job",
    ),
    pytest.param(
        edited("metadata.name", "digits\n"),
        "bad_name",
        "metadata.name",
        "digits\n",
        "'digits' would do",
        id="bad_name-newline",
    ),
    pytest.param(
        edited("metadata.namespace", "-a"),
        "bad_name",
        "metadata.namespace",
        "-a",
        "'a' would do",
        id="bad_name-namespace",
    ),
    pytest.param(
        edited("spec.dag", {"params": {"learning-rate": {}}}),
        "bad_name",
        "spec.dag.params.learning-rate",
        "learning-rate",
        "",
        id="bad_name-param",
    ),
    pytest.param(
        edited("metadata.name", "a" * 64),
        "name_too_long",
        "metadata.name",
        "a" * 64,
        "",
        id="name_too_long",
    ),
    pytest.param(
        edited("spec.schedulingPolicy", {"minAvailable": 5}),
        "min_available_too_large",
        "spec.schedulingPolicy.minAvailable",
        5,
        "",
        id="min_available_too_large",
    ),
    pytest.param(
        edited("spec.roles.1.minSucceeded", 5),
        "unsatisfiable_policy",
        "spec.roles[1].minSucceeded",
        5,
        "",
        id="unsatisfiable_policy-success",
    ),
    pytest.param(
        edited("spec.roles.1.minFailed", 4),
        "unsatisfiable_policy",
        "spec.roles[1].minFailed",
        4,
        "",
        id="unsatisfiable_policy-failure",
    ),
    pytest.param(
        roles({"name": "a", "replicas": 0, "minSucceeded": "Any"}),
        "unsatisfiable_policy",
        "spec.roles[0].minSucceeded",
        "Any",
        "",
        id="unsatisfiable_policy-any-of-none",
    ),
    pytest.param(
        roles({"name": "a", "replicas": 0}, {"name": "b", "dependsOn": waits("a", require="Any")}),
        "unsatisfiable_policy",
        "spec.roles[1].dependsOn[0].require",
        "Any",
        "",
        id="unsatisfiable_policy-dependency",
    ),
    pytest.param(
        roles({"name": "a", "tracked": False}),
        "unsatisfiable_policy",
        "spec.successPolicy",
        None,
        "",
        id="unsatisfiable_policy-nothing-tracked",
    ),
    pytest.param(
        edited("spec.args", ["{{ parms.lr }}"]),
        "bad_template",
        "spec.args[0]",
        "{{ parms.lr }}",
        "did you mean 'params'?",
        id="bad_template-name",
    ),
    pytest.param(
        edited("spec.image", "busybox:{{ params.tag }}"),
        "bad_template",
        "spec.image",
        "busybox:{{ params.tag }}",
        "",
        id="bad_template-place",
    ),
    pytest.param(
        edited("spec.args", ["{{ address('worker', 3) }}"]),
        "bad_template",
        "spec.args[0]",
        "{{ address('worker', 3) }}",
        "",
        id="bad_template-no-such-instance",
    ),
    pytest.param(
        edited("spec.args", ["{{ addresses() }}"]),
        "bad_template",
        "spec.args[0]",
        "{{ addresses() }}",
        "",
        id="bad_template-call",
    ),
    pytest.param(
        edited("spec.roles.0.template", {"spec": {"containers": [{"name": "a", "imag": "b"}]}}),
        "bad_pod_template",
        "spec.roles[0].template.spec.containers[0].imag",
        "imag",
        "did you mean 'image'?",
        id="bad_pod_template",
    ),
    pytest.param(
        edited("spec.env", [{"name": "A", "value": 1}]),
        "bad_pod_template",
        "spec.env[0].value",
        1,
        'write it in quotes: "1"',
        id="bad_pod_template-shorthand",
    ),
    pytest.param(
        edited("spec.resources", {"limits": {"memory": "1GB"}}),
        "bad_quantity",
        "spec.resources.limits.memory",
        "1GB",
        "",
        id="bad_quantity",
    ),
    pytest.param(
        edited("spec.resources", {"limits": {"memory": 16}}),
        "bad_quantity",
        "spec.resources.limits.memory",
        16,
        "with a unit, as '16Gi'",
        id="bad_quantity-no-unit",
    ),
    pytest.param(
        edited("spec.roles.0.resources", {"requests": {"memory": "512m"}}),
        "bad_quantity",
        "spec.roles[0].resources.requests.memory",
        "512m",
        "with a unit, as '512Mi'",
        id="bad_quantity-thousandths",
    ),
    pytest.param(
        edited("spec.resources", {"limits": {"memory": "1k"}}),
        "bad_quantity",
        "spec.resources.limits.memory",
        "1k",
        "",
        id="bad_quantity-little",
    ),
    pytest.param(
        edited(
            "spec.roles.0.template",
            {"spec": {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1 Gi"}}]}},
        ),
        "bad_quantity",
        "spec.roles[0].template.spec.volumes[0].emptyDir.sizeLimit",
        "1 Gi",
        "",
        id="bad_quantity-deep",
    ),
    pytest.param(
        edited("spec.checkpoint", {**CHECKPOINT, "uri": LONG_ADDRESS}),
        "out_of_range",
        "spec.checkpoint.uri",
        LONG_ADDRESS,
        "",
        id="out_of_range-address",
    ),
    pytest.param(
        edited("spec.checkpoint", {**CHECKPOINT, "everySeconds": 9, "everySteps": 9}),
        "conflict",
        "spec.checkpoint.everySteps",
        None,
        "",
        id="conflict-every",
    ),
    pytest.param(
        edited("spec.checkpoint", {**CHECKPOINT, "every": "auto", "everySteps": 9}),
        "conflict",
        "spec.checkpoint.every",
        None,
        "",
        id="conflict-auto",
    ),
    pytest.param(
        edited("spec.checkpoint", {**CHECKPOINT, "resume": {"fromRun": "a", "asset": "b"}}),
        "conflict",
        "spec.checkpoint.resume.asset",
        "b",
        "",
        id="conflict-resume",
    ),
    pytest.param(
        edited("spec.roles.1.minReplicas", 1),
        "conflict",
        "spec.roles[1].minReplicas",
        1,
        "",
        id="conflict-min-without-max",
    ),
    pytest.param(
        edited("spec.roles.1.maxReplicas", 5),
        "conflict",
        "spec.roles[1].maxReplicas",
        5,
        "",
        id="conflict-max-without-min",
    ),
    pytest.param(
        roles({"name": "a", "minReplicas": 3, "maxReplicas": 2, "replicas": 3}),
        "conflict",
        "spec.roles[0].minReplicas",
        3,
        "",
        id="conflict-min-over-max",
    ),
    pytest.param(
        edited("spec.restart", {"exitCodes": {"retryable": [1, 2], "permanent": [3, 2]}}),
        "conflict",
        "spec.restart.exitCodes.permanent[1]",
        2,
        "",
        id="conflict-exit-code",
    ),
    pytest.param(
        edited("spec.restart", {"backoff": {"initialSeconds": 10, "maxSeconds": 5}}),
        "conflict",
        "spec.restart.backoff.maxSeconds",
        5,
        "",
        id="conflict-backoff",
    ),
    pytest.param(
        edited("spec.dag", {"params": {"lr": {"type": "number", "default": "x"}}}),
        "wrong_type",
        "spec.dag.params.lr.default",
        "x",
        "",
        id="wrong_type-default-of-a-param",
    ),
    pytest.param(
        edited("spec.dag", {"params": {"lr": {"default": -1, "minimum": 0}}}),
        "out_of_range",
        "spec.dag.params.lr.default",
        -1,
        "",
        id="out_of_range-default-of-a-param",
    ),
]


@pytest.mark.parametrize(("document", "code", "field", "value", "hint"), CODES)
def test_a_mistake_has_its_code_field_value_and_hint(document, code, field, value, hint):
    problem = only_problem(document)
    assert (problem.code, problem.field, problem.value) == (code, field, value)
    assert problem.hint == hint
    assert problem.message
    assert problem.line is not None


def test_a_cycle_is_named_once_with_its_path():
    document = roles(
        {"name": "a", "dependsOn": waits("c")},
        {"name": "b", "dependsOn": waits("a")},
        {"name": "c", "dependsOn": waits("b")},
        {"name": "d", "dependsOn": waits("a")},
    )
    problem = only_problem(document)
    assert (problem.code, problem.field) == ("cycle", "spec.roles[1].dependsOn[0].role")
    assert "a -> c -> b -> a" in problem.message


def test_two_cycles_are_both_named():
    document = roles(
        {"name": "a", "dependsOn": waits("b")},
        {"name": "b", "dependsOn": waits("a")},
        {"name": "c", "dependsOn": waits("d")},
        {"name": "d", "dependsOn": waits("c")},
    )
    assert [code for code, _ in found(document)] == ["cycle", "cycle"]


def test_all_mistakes_of_a_file_come_at_once_in_the_order_of_the_file():
    text = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: pytorch
  imge: busybox
  roles:
    - {name: master, replicas: -1}
    - name: worker
      dependsOn: [{role: mastr}]
      template: {spec: {contaners: []}}
  output: {role: wrker}
  reconcileSeconds: 0.1
  suspend: true
  suspend: false
"""
    (document,) = parse(text, "job.yaml")
    assert [(p.code, p.field, p.line) for p in document.problems] == [
        ("unknown_key", "spec.imge", 6),
        ("out_of_range", "spec.roles[0].replicas", 8),
        ("unknown_role", "spec.roles[1].dependsOn[0].role", 10),
        ("bad_pod_template", "spec.roles[1].template.spec.contaners", 11),
        ("missing", "spec.output.uri", 12),
        ("unknown_role", "spec.output.role", 12),
        ("out_of_range", "spec.reconcileSeconds", 13),
        ("duplicate", "spec.suspend", 15),
    ]
    assert document.job is None


def test_a_job_with_cross_field_mistakes_is_still_handed_on():
    document = parsed(edited("spec.roles.1.dependsOn", waits("mastr")))
    assert document.job is not None
    assert document.problems


@pytest.mark.parametrize("key", ["apiVersion", "kind", "metadata", "spec"])
def test_the_head_of_a_file_is_required(key):
    document = {name: value for name, value in MINIMAL.items() if name != key}
    assert (("missing", key)) in found(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.plan", {}),
        ("spec.checkpoint", {"uri": "s3://a", "watch": "out"}),
        ("spec.runtime", {"name": "local"}),
        ("spec.runtime", {"name": "kubernetes"}),
        ("spec.schedulingPolicy", {"gang": "volcano", "queue": "research"}),
        ("spec.schedulingPolicy", {"gang": "none", "minAvailable": 2, "priority": 3}),
        ("spec.data", {"files": ["a"], "shard": "byInstance"}),
    ],
)
def test_what_is_there_gives_no_warning(path, value):
    document = parsed(edited(path, value))
    assert not document.problems
    assert not document.warnings


def test_the_document_with_every_field_is_valid():
    (document,) = parse(FULL_TEXT)
    assert document.problems == []
    assert document.warnings == []


@pytest.mark.parametrize(
    ("command", "args", "warned"),
    [
        (["sh", "-c", "train {{ params.lr }}"], [], ["spec.command[2]"]),
        (["/bin/bash", "-lc"], ["train {{ params.lr }}"], ["spec.args[0]"]),
        (["tini", "--", "sh", "-ec", "train {{ params.lr }}"], [], ["spec.command[4]"]),
        (["sh", "-c", 'train "$1"', "sh", "{{ params.lr }}"], [], []),
        (["python", "-c", "print({{ params.lr }})"], [], []),
        (["sh", "train.sh", "{{ params.lr }}"], [], []),
    ],
)
def test_a_value_inside_a_shell_script_is_a_warning(command, args, warned):
    base = edited("spec.args", args)
    document = parsed(edited("spec.command", command, base=base))
    assert not document.problems
    assert [(w.code, w.field) for w in document.warnings] == [
        ("shell_template", field) for field in warned
    ]


def test_a_shell_of_the_job_reads_the_arguments_of_a_role():
    base = edited("spec.command", ["sh", "-c"])
    document = parsed(edited("spec.roles.1.args", ["{{ params.lr }}"], base=base))
    assert [w.field for w in document.warnings] == ["spec.roles[1].args[0]"]


def test_a_restart_policy_of_the_pod_is_a_warning():
    document = parsed(edited("spec.roles.0.template", {"spec": {"restartPolicy": "OnFailure"}}))
    assert [(w.code, w.field) for w in document.warnings] == [
        ("conflict", "spec.roles[0].template.spec.restartPolicy")
    ]


@pytest.mark.parametrize(
    ("key", "container", "refused"),
    [
        pytest.param("containers", {"restartPolicy": "OnFailure"}, "restartPolicy", id="container"),
        pytest.param("containers", {"restartPolicy": "Never"}, None, id="as-it-is-anyway"),
        pytest.param(
            "containers",
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
                ],
            },
            "restartPolicyRules",
            id="rules",
        ),
        pytest.param("initContainers", {"restartPolicy": "Always"}, None, id="sidecar"),
        pytest.param(
            "initContainers", {"restartPolicy": "OnFailure"}, "restartPolicy", id="init-container"
        ),
    ],
)
def test_a_container_that_would_be_restarted_inside_its_pod_is_refused(key, container, refused):
    pod = {key: [{"name": "extra", "image": "busybox", **container}]}
    document = parsed(edited("spec.roles.0.template", {"spec": pod}))
    expected = [("conflict", f"spec.roles[0].template.spec.{key}[0].{refused}")] if refused else []
    assert [(each.code, each.field) for each in document.problems] == expected
    assert all("role's own restartPolicy" in each.hint for each in document.problems)


@pytest.mark.parametrize(
    ("params", "codes"),
    [(None, []), (["lr"], []), (["epochs"], ["bad_template"]), ([], ["bad_template"])],
)
def test_a_parameter_must_be_declared_once_it_is_known_who_calls(params, codes):
    document = edited("spec.args", ["{{ params.lr }}"])
    assert [code for code, _ in found(document, params=params)] == codes


def test_a_declared_parameter_is_known_to_all_callers():
    base = edited("spec.dag", {"params": {"lr": {"default": 0.1}}})
    assert found(edited("spec.args", ["{{ params.lr }}"], base=base), params=[]) == []
    (problem,) = parsed(edited("spec.args", ["{{ params.lrr }}"], base=base), params=[]).problems
    assert problem.hint == "did you mean 'lr'?"


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("spec.env", [{"name": "TOKENS", "value": "s3cret" * 40_000}], "spec.env[0].value"),
        ("spec.roles.0.env", [{"name": "TOKENS", "value": "s3cret" * 40_000}], "spec.roles[0].env[0].value"),
        ("spec.roles.0.command", ["sh", "-c", "s3cret" * 40_000], "spec.roles[0].command[2]"),
        (
            "spec.roles.0.template",
            {"spec": {"containers": [{"name": "side", "image": "a", "args": ["s3cret" * 40_000]}]}},
            "spec.roles[0].template.spec.containers[0].args[0]",
        ),
    ],
)  # fmt: skip
def test_a_text_with_which_linux_starts_no_program_is_told_by_its_size_alone(path, value, field):
    problem = only_problem(edited(path, value))
    assert (problem.code, problem.field) == ("too_large", field)
    assert "131071" in problem.message
    assert "s3cret" not in f"{problem.message}{problem.value}{problem.hint}"


def test_a_text_that_just_fits_is_none():
    fits = "x" * (131_071 - len("BIG="))
    assert found(edited("spec.env", [{"name": "BIG", "value": fits}])) == []
