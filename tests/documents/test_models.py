"""Every field of the document: what it takes, what it refuses, what it is when nobody sets it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from airflow_training import TrainingJob
from airflow_training.documents.loading import load_documents
from airflow_training.documents.models import TrainingJobSpec
from airflow_training.documents.parsing import parse
from airflow_training.documents.roles import Dependency, Role
from airflow_training.errors import InputError
from tests.documents.documents import FULL_TEXT, MINIMAL, edited, found, parsed

TEXT, NUMBER, LIST, MAP = "text", 3, ["x"], {"x": 1}

WORKER = "spec.roles.1"
RULE = "spec.failurePolicy.rules.0"

# path (0 and 1 are positions), good values, values of a wrong type, values out of range,
# values that are not allowed; all on top of the documents below
Values = list[Any]
CODE = {"uri": "s3://a", "digest": f"sha256:{'0' * 64}"}
FIELDS: list[tuple[str, Values, Values, Values, Values]] = [
    ("metadata.name", ["a", "a-1"], [NUMBER], [], []),
    ("metadata.namespace", ["team-a"], [NUMBER], [], []),
    ("metadata.labels", [{}, {"a.b/c": "d"}], [LIST, {"a": 1}], [], []),
    ("metadata.annotations", [{}, {"any key": "any {{ text"}], [LIST, {"a": 1}], [], []),
    ("spec.framework", ["pytorch", {"name": "mine", "ref": "./m.yaml"}], [NUMBER, LIST], [], []),
    ("spec.framework.digest", ["sha256:" + "0" * 64], [NUMBER], [], ["sha256:xyz", "md5:1"]),
    ("spec.framework.ref", ["./mine.yaml"], [NUMBER], [], []),
    ("spec.parameters", [{}, {"a": [1, {"b": None}]}], [LIST, TEXT], [], []),
    ("spec.runtime", [{}], [TEXT], [], []),
    ("spec.runtime.name", ["local", "kubernetes", None], [NUMBER], [], ["memory"]),
    ("spec.runtime.connection", ["my_cluster"], [NUMBER], [], []),
    ("spec.image", ["busybox"], [NUMBER], [], []),
    ("spec.command", [["a"], [], None], [TEXT, [1]], [], []),
    ("spec.args", [["a"]], [TEXT, [True]], [], []),
    ("spec.env", [[{"name": "A", "value": "1"}]], [MAP, ["A=1"]], [], []),
    ("spec.envFrom", [[{"secretRef": {"name": "s"}}]], [MAP], [], []),
    ("spec.workingDir", ["."], [NUMBER], [], []),
    ("spec.resources", [{}, {"limits": {"cpu": 1}}], [LIST], [], []),
    ("spec.ports", [[{"containerPort": 80}]], [MAP], [], []),
    ("spec.volumes", [[{"name": "a", "emptyDir": {}}]], [MAP], [], []),
    ("spec.volumeMounts", [[{"name": "a", "mountPath": "/a"}]], [MAP], [], []),
    ("spec.code", [CODE, None], [TEXT], [], []),
    ("spec.code.uri", ["s3://a"], [NUMBER], [], []),
    ("spec.code.digest", [f"sha256:{'1' * 64}"], [NUMBER], [], ["sha256:1", "1" * 64]),
    ("spec.code.packages", [["a==1"], []], [TEXT, [1]], [], []),
    ("spec.code.python", ["/opt/python"], [NUMBER], [], []),
    ("spec.environment", [{"name": "builtin"}, None], [TEXT], [], []),
    ("spec.environment.name", ["tiny"], [NUMBER], [], ["../a", "Tiny", ""]),
    ("spec.environment.version", ["1", "2.0", None], [NUMBER], [], ["1/2", " "]),
    ("spec.data", [{}, None, {"uri": "s3://a"}], [TEXT], [], []),
    ("spec.data.uri", ["s3://a"], [NUMBER], [], []),
    ("spec.data.files", [["a"], []], [TEXT, [1]], [], []),
    ("spec.data.shard", ["byInstance", None], [NUMBER], [], ["byRole"]),
    ("spec.data.initialModel", ["s3://a"], [NUMBER], [], []),
    ("spec.roles", [[{"name": "a"}]], [MAP, [1]], [[]], []),
    (f"{WORKER}.name", ["worker"], [NUMBER], [], []),
    (f"{WORKER}.replicas", [0, 1, 10_000], [TEXT, 1.5, True, None], [-1], []),
    (f"{WORKER}.minReplicas", [0, 3], [TEXT], [-1], []),
    (f"{WORKER}.maxReplicas", [3, 9], [TEXT], [0], []),
    (f"{WORKER}.template", [{}, None, {"spec": {"hostNetwork": True}}], [LIST], [], []),
    (f"{WORKER}.image", ["busybox"], [NUMBER], [], []),
    (f"{WORKER}.command", [["a"], None], [TEXT], [], []),
    (f"{WORKER}.spot", [{"replicas": 1}, None], [NUMBER], [], []),
    (f"{WORKER}.spot.replicas", [0, 3], [TEXT, 1.5], [-1, 4], []),
    (f"{WORKER}.spot.label", ["cloud.google.com/gke-spot"], [NUMBER], [], []),
    (f"{WORKER}.spot.value", ["true"], [NUMBER], [], []),
    (f"{WORKER}.warmSpares", [0, 2], [TEXT, 1.5], [-1], []),
    (f"{WORKER}.networkPolicy", [{}, None], [["master"]], [], []),
    (f"{WORKER}.networkPolicy.ingress", [[], [{}], None], [TEXT], [], []),
    (f"{WORKER}.networkPolicy.ingress.0.roles", [["master"], []], [TEXT], [], []),
    (
        f"{WORKER}.networkPolicy.ingress.0.peers",
        [[{"ipBlock": {"cidr": "10.0.0.0/8"}}], []],
        [["10.0.0.0/8"]],
        [],
        [],
    ),
    (
        f"{WORKER}.networkPolicy.ingress.0.ports",
        [["peers", 23456], []],
        [[1.5], TEXT],
        [[0], [65536]],
        [],
    ),
    (f"{WORKER}.networkPolicy.egress", [[], [{}], None], [TEXT], [], []),
    (f"{WORKER}.networkPolicy.egress.0.roles", [["master"], []], [TEXT], [], []),
    (
        f"{WORKER}.networkPolicy.egress.0.peers",
        [[{"ipBlock": {"cidr": "10.0.0.0/8"}}], []],
        [["10.0.0.0/8"]],
        [],
        [],
    ),
    (
        f"{WORKER}.networkPolicy.egress.0.ports",
        [["peers", 443], []],
        [[1.5], TEXT],
        [[0], [65536]],
        [],
    ),
    (f"{WORKER}.dependsOn", [[], [{"role": "master"}]], [MAP, ["master"]], [], []),
    (f"{WORKER}.dependsOn.0.role", ["master"], [NUMBER], [], []),
    (
        f"{WORKER}.dependsOn.0.status",
        ["Running", "AddressKnown", "PortOpen", "Ready", "Complete"],
        [NUMBER],
        [],
        ["Alive"],
    ),
    (f"{WORKER}.dependsOn.0.require", ["All", "Any"], [NUMBER], [], ["Most"]),
    (f"{WORKER}.dependsOn.0.listener", ["Each", "Any"], [NUMBER], [], ["All"]),
    (f"{WORKER}.dependsOn.0.answer", ["Auto", "List", "Confirmation"], [NUMBER], [], ["auto"]),
    (f"{WORKER}.dependsOn.0.timeoutSeconds", [1, 0.5], [TEXT], [0, -1], []),
    (f"{WORKER}.dependsOn.0.pollSeconds", [1, 0.1], [TEXT], [0], []),
    (
        f"{WORKER}.restartPolicy",
        ["Always", "OnFailure", "Never", "ExitCode"],
        [NUMBER],
        [],
        ["Sometimes"],
    ),
    (f"{WORKER}.backoffLimit", [0, 9], [TEXT, 1.5], [-1], []),
    (f"{WORKER}.maxRestarts", [0, 9, None], [TEXT, 1.5], [-1], []),
    (
        f"{WORKER}.minSucceeded",
        ["All", "Any", 1, 3, "1%", "100%"],
        [1.5, True, LIST],
        [0, "0%", "101%", "x%"],
        ["Most", "2"],
    ),
    (f"{WORKER}.minFailed", ["All", "Any", 1, 3, "50%"], [None, MAP], [0, -1, "1000%"], ["Some"]),
    (f"{WORKER}.tracked", [True, False, None], ["yes", 1], [], []),
    ("spec.successPolicy", [{}, None], [TEXT], [], []),
    ("spec.successPolicy.operator", ["All", "Any"], [NUMBER], [], ["Most"]),
    ("spec.successPolicy.targetRoles", [[], ["master"]], [TEXT, [1]], [], []),
    ("spec.failurePolicy.operator", ["All", "Any"], [NUMBER], [], ["Most"]),
    ("spec.failurePolicy.targetRoles", [[], ["worker"]], [TEXT], [], []),
    ("spec.failurePolicy.rules", [[]], [TEXT, [1]], [], []),
    (f"{RULE}.name", ["any text"], [NUMBER], [], []),
    (
        f"{RULE}.action",
        [
            "FailJob",
            "RestartJob",
            "RestartJobAndIgnoreMaxRestarts",
            "RestartRole",
            "RestartInstance",
            "Ignore",
            "CompleteJob",
        ],
        [NUMBER],
        [],
        ["Restart"],
    ),
    (
        f"{RULE}.onClasses",
        [["user", "infrastructure", "preemption", "resource", "unknown"], []],
        [TEXT],
        [],
        [],
    ),
    (f"{RULE}.onClasses.0", ["user"], [NUMBER], [], ["network"]),
    (f"{RULE}.onReasons", [["Evicted"]], [TEXT], [], []),
    (f"{RULE}.onExitCodes", [{"values": [1, 255]}, None], [[1]], [{"values": []}], []),
    (f"{RULE}.onExitCodes.operator", ["In", "NotIn"], [NUMBER], [], ["Is"]),
    (f"{RULE}.onExitCodes.values.0", [1, 255], [TEXT], [0, 256], []),
    (f"{RULE}.onMessagePattern", ["", "a.*b"], [NUMBER], [], ["("]),
    (f"{RULE}.targetRoles", [["worker"]], [TEXT], [], []),
    ("spec.restart", [{}], [TEXT, None], [], []),
    ("spec.restart.scope", ["Instance", "Role", "Job"], [NUMBER], [], ["Pod"]),
    ("spec.restart.maxRestarts", [0, 3], [TEXT], [-1], []),
    ("spec.restart.window", [{"seconds": 1, "maxRestarts": 0}, None], [NUMBER], [], []),
    ("spec.restart.window.seconds", [1, 0.5], [TEXT], [0], []),
    ("spec.restart.window.maxRestarts", [0], [TEXT], [-1], []),
    ("spec.restart.backoff.initialSeconds", [0, 1.5], [TEXT], [-1], []),
    ("spec.restart.backoff.factor", [1, 2.5], [TEXT], [0.9], []),
    ("spec.restart.backoff.maxSeconds", [2, 1000], [TEXT], [-1], []),
    (
        "spec.restart.exitCodes",
        ["default", "kubeflow", "kubedl", {"retryable": [3]}, {}],
        [NUMBER, LIST],
        [],
        ["volcano"],
    ),
    ("spec.restart.exitCodes.retryable", [[1, 255]], [TEXT], [], []),
    ("spec.restart.exitCodes.retryable.0", [7], [TEXT], [0, 256], []),
    ("spec.restart.exitCodes.permanent.0", [7], [TEXT], [0, 256], []),
    ("spec.restart.then", ["FreshJob", "Fail", None], [NUMBER], [], ["Stop"]),
    ("spec.restart.maxFreshJobs", [0, 1], [TEXT], [-1], []),
    ("spec.restart.freshFrom", ["newest", "scratch"], [NUMBER], [], ["oldest"]),
    ("spec.restart.readyTimeoutSeconds", [0.5, 600], [TEXT], [0, -1], []),
    ("spec.restart.keepFailedSeconds", [0, 0.5, 604800], [TEXT], [-1, 604801], []),
    (
        "spec.restart.onOutOfMemory",
        [{"upTo": "64Gi"}, {"factor": 2, "upTo": "1e9"}, None],
        [TEXT, NUMBER, LIST, {"factor": "2", "upTo": "64Gi"}, {"upTo": 64}],
        [{"factor": 1, "upTo": "64Gi"}, {"upTo": "0"}],
        [],
    ),
    (
        "spec.schedulingPolicy.gang",
        ["none", "volcano", "coscheduling", "kueue"],
        [NUMBER],
        [],
        ["yarn"],
    ),
    ("spec.schedulingPolicy.minAvailable", [1, 4, None], [TEXT], [0], []),
    (
        "spec.schedulingPolicy.startup",
        ["auto", "ordered", "perWave", "firstWaveReserveAll", "createAllHold"],
        [NUMBER],
        [],
        ["random"],
    ),
    ("spec.schedulingPolicy.queue", ["research"], [NUMBER], [], []),
    ("spec.schedulingPolicy.priorityClassName", ["high"], [NUMBER], [], []),
    ("spec.schedulingPolicy.priority", [-5, 0, 5], [TEXT, 1.5], [], []),
    ("spec.schedulingPolicy.scheduleTimeoutSeconds", [1], [TEXT], [0], []),
    ("spec.schedulingPolicy.neverFits", ["Wait", "Fail"], [NUMBER], [], ["Never"]),
    ("spec.schedulingPolicy.excludedNodes", ["Avoid", "Ignore"], [NUMBER], [], ["Never"]),
    (
        "spec.schedulingPolicy.preemptionPolicy",
        ["Never", "PreemptLowerPriority"],
        [NUMBER],
        [],
        ["Always"],
    ),
    ("spec.schedulingPolicy.unfitNodes", [{}], [TEXT, None], [], []),
    (
        "spec.schedulingPolicy.unfitNodes.action",
        ["Move", "Warn", "Ignore", None],
        [NUMBER],
        [],
        ["Stay"],
    ),
    ("spec.schedulingPolicy.unfitNodes.maxMoves", [0, 5], [TEXT, 1.5, None], [-1], []),
    ("spec.schedulingPolicy.unfitNodes.conditions", [["Xid*"], [], None], [NUMBER], [], []),
    (
        "spec.schedulingPolicy.unfitNodes.taints",
        [["example.com/maintenance"], [], None],
        [NUMBER],
        [],
        [],
    ),
    ("spec.schedulingPolicy.unfitNodes.labels", [{"a": "b"}, {}], [TEXT, None], [], []),
    ("spec.preflight", [{}, None], [TEXT], [], []),
    ("spec.preflight.timeoutSeconds", [1, None], [TEXT], [0], []),
    ("spec.preflight.gpus", [{}, None], [NUMBER], [], []),
    ("spec.preflight.gpus.count", [0, 8, None], [TEXT, 1.5], [-1], []),
    ("spec.preflight.gpus.freeMemory", ["70Gi", None], [NUMBER], ["0"], []),
    ("spec.preflight.disk", [{}, None], [NUMBER], [], []),
    ("spec.preflight.disk.path", ["/scratch", None], [NUMBER], [], ["scratch"]),
    ("spec.preflight.disk.free", ["100Gi", None], [NUMBER], ["0"], []),
    ("spec.preflight.disk.bandwidth", ["200Mi", None], [NUMBER], ["0"], []),
    ("spec.preflight.network", [{}, None], [NUMBER], [], []),
    ("spec.preflight.network.bandwidth", ["1Gi", None], [NUMBER], ["0"], []),
    ("spec.preflight.network.latencyMilliseconds", [0.5, None], [TEXT], [0], []),
    ("spec.preflight.network.waitSeconds", [30, 600], [TEXT], [0, 601], []),
    ("spec.schedulingPolicy.spread", [{"topologyKey": "zone"}, None], [TEXT], [], []),
    ("spec.schedulingPolicy.spread.topologyKey", ["zone"], [NUMBER], [], []),
    ("spec.schedulingPolicy.spread.maxSkew", [1], [TEXT], [0], []),
    (
        "spec.schedulingPolicy.spread.whenUnsatisfiable",
        ["ScheduleAnyway", "DoNotSchedule"],
        [NUMBER],
        [],
        ["Wait"],
    ),
    ("spec.activeDeadlineSeconds", [1, None], [TEXT], [0], []),
    (
        "spec.stop",
        [{"until": "loss < 0.1"}, {"until": "step > 3", "rank": "mean"}, None],
        [TEXT],
        [],
        [],
    ),
    ("spec.ttlSecondsAfterFinished", [0, 1, None], [TEXT], [-1], []),
    ("spec.cleanPodPolicy", ["Running", "All", "None"], [NUMBER, None], [], ["Never"]),
    ("spec.reconcileSeconds", [1, 10.5], [TEXT], [0.5], []),
    ("spec.suspend", [True, False], ["no", 0], [], []),
    ("spec.checkpoint", [{"uri": "s3://a"}, None], [TEXT], [], []),
    ("spec.checkpoint.uri", ["s3://a"], [NUMBER, None], [], []),
    ("spec.checkpoint.everySeconds", [1, 0.5], [TEXT], [0], []),
    ("spec.checkpoint.everySteps", [1], [TEXT, 1.5], [0], []),
    ("spec.checkpoint.every", ["auto"], [NUMBER], [], ["600s"]),
    ("spec.checkpoint.keep", [1], [TEXT], [0], []),
    ("spec.checkpoint.keepEvery", [1], [TEXT], [0], []),
    (
        "spec.checkpoint.resume",
        ["latest", "none", 0, 500, {"fromRun": "r"}, {"asset": "s3://a"}],
        [True, LIST],
        [-1],
        ["newest"],
    ),
    ("spec.checkpoint.watch", ["ckpt/"], [NUMBER], [], []),
    ("spec.checkpoint.progress", [{}, None], [TEXT], [], []),
    ("spec.checkpoint.progress.stallSeconds", [1], [TEXT], [0], []),
    ("spec.checkpoint.progress.stallFactor", [1.5], [TEXT], [0], []),
    ("spec.checkpoint.progress.sections", [{"eval": 600}], [LIST, {"eval": "x"}], [], []),
    ("spec.output", [{"uri": "s3://a"}, None], [TEXT], [], []),
    ("spec.output.uri", ["s3://a"], [NUMBER], [], []),
    ("spec.output.role", ["worker", None], [NUMBER], [], []),
    ("spec.trainer", [None], [TEXT, LIST], [], []),
    ("spec.trainer.epochs", [1, 300], [TEXT, 1.5], [0], []),
    ("spec.trainer.batchSize", [1, 64], [TEXT, 1.5], [0], []),
    ("spec.trainer.updateInterval", [1, 4], [TEXT], [0], []),
    ("spec.trainer.threads", [1, None], [TEXT], [0], []),
    ("spec.trainer.seed", [0, 7], [TEXT], [-1], []),
    ("spec.trainer.shuffle", [True, False], [TEXT, NUMBER], [], []),
    ("spec.trainer.fromParams", [{"epochs": "n"}], [TEXT, LIST], [], []),
    ("spec.trainer.python", [["python3"]], [TEXT, [NUMBER]], [], []),
    ("spec.trainer.network", [{"name": "lenet"}, {"file": "a.yaml"}], [TEXT, None], [], []),
    ("spec.trainer.data.format", ["npz", "images"], [NUMBER, None], [], ["xlsx"]),
    ("spec.trainer.data.classes", [["cat", "dog"]], [TEXT], [], []),
    ("spec.trainer.data.test", [["a.csv"]], [TEXT], [], []),
    ("spec.trainer.optimizer.name", ["SGD", "AdamW"], [NUMBER], [], ["Adm"]),
    ("spec.trainer.optimizer.learningRate", [0.1, 1], [TEXT], [0, -1], []),
    ("spec.plan", [{}], [TEXT, None], [], []),
    ("spec.plan.model", [{"hidden": 64}, "model.yaml", "train:model"], [NUMBER], [], []),
    ("spec.plan.cluster", ["nodes", "request", "a.yaml", {"nodes": []}], [NUMBER, LIST], [], []),
    ("spec.plan.globalBatch", [1, 2048], [TEXT, 1.5], [0], []),
    ("spec.plan.precision", ["fp32", "tf32", "fp16", "bf16", "fp8"], [NUMBER], [], ["bf32"]),
    (
        "spec.plan.objective",
        ["time", "money", {"purchase": "spot"}, {"tokens": 1, "budget": 0.5}],
        [NUMBER, LIST],
        [],
        ["tokens"],
    ),
    ("spec.plan.objective.by", ["time", "money", None], [NUMBER], [], ["tokns"]),
    ("spec.plan.objective.purchase", ["on_demand", "spot"], [NUMBER], [], ["reserved"]),
    ("spec.plan.objective.restartSeconds", [1, 600.5], [TEXT], [0], []),
    ("spec.plan.objective.tokens", [1, 3e11], [TEXT], [0], []),
    ("spec.plan.objective.budget", [1, 2.5], [TEXT], [0], []),
    ("spec.plan.constraints", [{}, {"tp": 8, "pp": {"max": 4}}], [LIST], [], []),
    ("spec.plan.apply", [[], ["replicas"], ["env", "microBatch"]], [TEXT], [], []),
    ("spec.plan.apply.0", ["replicas", "env", "microBatch"], [NUMBER], [], ["batch"]),
    ("spec.plan.role", ["worker", None], [NUMBER], [], []),
    ("spec.logs", [{}, {"patterns": []}], [TEXT], [], []),
    (
        "spec.logs.patterns",
        [[], [{"name": "a", "line": "loss {loss}", "example": "loss 1"}]],
        [TEXT],
        [],
        [],
    ),
    ("spec.dag", [{}, None], [TEXT], [], []),
    (
        "spec.dag.schedule",
        [
            "@weekly",
            "0 3 * * 1",
            "*/5 0 1,15 * MON-FRI",
            None,
            {"assets": ["a"], "operator": "any"},
        ],
        [NUMBER, LIST],
        [],
        ["@wekly", "every day", "* * *", "0 25 * * *", "0 0 31 2 *"],
    ),
    ("spec.dag.schedule.assets", [["a"]], [TEXT], [[]], []),
    ("spec.dag.schedule.operator", ["any", "all"], [NUMBER], [], ["Any"]),
    (
        "spec.dag.startDate",
        ["2026-01-01", "2026-01-01T06:00:00+00:00", "2026-01-01T06:00Z", None],
        [2026],
        [],
        ["tomorrow", "2026-13-01", "01.02.2026"],
    ),
    ("spec.dag.timezone", ["America/Chicago", "UTC", None], [NUMBER], [], ["America/Chicag", ""]),
    (
        "spec.dag.params",
        [{}, {"a": {}}, {"a": {"type": ["null", "integer"]}}],
        [LIST, {"a": 1}],
        [],
        [],
    ),
    ("spec.dag.params.lr.type", ["number", ["number", "null"]], [NUMBER], [], ["double"]),
    ("spec.dag.outlets", [["s3://a"]], [TEXT], [], []),
    ("spec.dag.tags", [["a"]], [TEXT], [], []),
    ("spec.dag.maxActiveRuns", [1], [TEXT], [0], []),
    ("spec.dag.catchup", [True], ["yes"], [], []),
    ("spec.dag.owner", ["me", None], [NUMBER], [], []),
]

TRAINER = {"network": {"name": "lenet"}, "data": {"format": "npz"}}
PLAN = {"model": "model.yaml", "globalBatch": 8, "apply": ["env"]}

# what has to be there before a field inside it can be set
SURROUNDINGS = {
    "spec.framework.": ("spec.framework", {"name": "mine"}),
    f"{WORKER}.minReplicas": (f"{WORKER}.maxReplicas", 9),
    f"{WORKER}.maxReplicas": (f"{WORKER}.minReplicas", 1),
    f"{WORKER}.dependsOn.0.": (f"{WORKER}.dependsOn", [{"role": "master"}]),
    f"{WORKER}.spot.": (f"{WORKER}.spot", {"replicas": 1}),
    f"{WORKER}.networkPolicy.": (f"{WORKER}.networkPolicy", {"ingress": [{}], "egress": [{}]}),
    f"{RULE}.onClasses.": (
        "spec.failurePolicy",
        {"rules": [{"action": "Ignore", "onClasses": ["user"]}]},
    ),
    f"{RULE}.onExitCodes.": (
        "spec.failurePolicy",
        {"rules": [{"action": "Ignore", "onExitCodes": {"values": [3]}}]},
    ),
    f"{RULE}.": ("spec.failurePolicy", {"rules": [{"action": "Ignore"}]}),
    "spec.restart.window.": ("spec.restart", {"window": {"seconds": 9, "maxRestarts": 1}}),
    "spec.restart.exitCodes.": (
        "spec.restart",
        {"exitCodes": {"retryable": [3], "permanent": [4]}},
    ),
    "spec.schedulingPolicy.spread.": ("spec.schedulingPolicy", {"spread": {"topologyKey": "zone"}}),
    "spec.checkpoint.": ("spec.checkpoint", {"uri": "s3://a"}),
    "spec.code.": ("spec.code", CODE),
    "spec.environment.": ("spec.environment", {"name": "tiny", "version": "1"}),
    "spec.output.": ("spec.output", {"uri": "s3://a"}),
    "spec.data.shard": ("spec.data", {"files": ["a"]}),
    "spec.dag.schedule.": ("spec.dag", {"schedule": {"assets": ["a"]}}),
    "spec.dag.params.lr.": ("spec.dag", {"params": {"lr": {}}}),
    "spec.plan.objective.": ("spec.plan", {**PLAN, "objective": {"tokens": 1, "budget": 1}}),
    "spec.plan.": ("spec.plan", PLAN),
    "spec.trainer.": ("spec", {"data": {"uri": "a"}, "roles": [{"name": "a"}], "trainer": TRAINER}),
    "spec.volumeMounts": ("spec.volumes", [{"name": "a", "emptyDir": {}}]),
}


def document_with(path: str, value: object) -> dict[str, Any]:
    base = MINIMAL
    for start, (where, what) in SURROUNDINGS.items():
        if path.startswith(start) and path != where:
            base = edited(where, what, base=base)
            break
    return edited(path, value, base=base)


def cases(column: int) -> list[Any]:
    return [
        pytest.param(row[0], value, id=f"{row[0]}={value}"[:70])
        for row in FIELDS
        for value in row[column]
    ]


@pytest.mark.parametrize(("path", "value"), cases(1))
def test_a_field_takes_what_it_should(path, value):
    document = parsed(document_with(path, value))
    assert not document.problems
    assert document.job is not None
    assert document.job.to_dict() == document.raw


@pytest.mark.parametrize(("path", "value"), cases(2))
def test_a_field_refuses_another_type(path, value):
    expect("wrong_type", path, value)


@pytest.mark.parametrize(("path", "value"), cases(3))
def test_a_field_refuses_what_is_out_of_range(path, value):
    expect("out_of_range", path, value)


@pytest.mark.parametrize(("path", "value"), cases(4))
def test_a_field_refuses_what_does_not_exist(path, value):
    expect("not_allowed", path, value)


def expect(code: str, path: str, value: object) -> None:
    """Check that there is one kind of mistake, at the field or in it, with a line and a message."""
    problems = parsed(document_with(path, value)).problems
    dotted = path.replace(".0", "[0]").replace(".1", "[1]")
    assert {problem.code for problem in problems} == {code}
    assert problems[0].field.startswith(dotted)
    assert problems[0].line is not None
    assert problems[0].message


def test_the_table_above_names_every_field_of_the_document():
    def paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
        for name, field in model.model_fields.items():
            yield f"{prefix}.{field.alias or name}"

    tested = {row[0] for row in FIELDS}
    wanted = set(paths(TrainingJobSpec, "spec"))
    assert wanted - tested - {"spec.failurePolicy", "spec.schedulingPolicy"} == set()
    shorthand = {f"{WORKER}.{key}" for key in ("args", "env", "envFrom", "workingDir", "resources")}
    shorthand |= {f"{WORKER}.{key}" for key in ("ports", "volumes", "volumeMounts")}
    assert set(paths(Role, WORKER)) - tested - shorthand == set()


DEFAULTS: dict[str, Any] = {
    "metadata.namespace": "default",
    "metadata.labels": {},
    "metadata.annotations": {},
    "spec.parameters": {},
    "spec.runtime.name": None,
    "spec.runtime.connection": None,
    "spec.code": None,
    "spec.environment": None,
    "spec.data": None,
    "spec.success_policy": None,
    "spec.failure_policy": None,
    "spec.restart.scope": None,
    "spec.restart.max_restarts": 3,
    "spec.restart.window": None,
    "spec.restart.backoff.initial_seconds": 2,
    "spec.restart.backoff.factor": 2,
    "spec.restart.backoff.max_seconds": 300,
    "spec.restart.exit_codes": "default",
    "spec.restart.then": None,
    "spec.restart.max_fresh_jobs": 1,
    "spec.restart.fresh_from": "newest",
    "spec.restart.ready_timeout_seconds": 60,
    "spec.restart.on_out_of_memory": None,
    "spec.scheduling_policy.gang": "none",
    "spec.scheduling_policy.min_available": None,
    "spec.scheduling_policy.startup": "auto",
    "spec.scheduling_policy.queue": None,
    "spec.scheduling_policy.priority_class_name": None,
    "spec.scheduling_policy.priority": 0,
    "spec.scheduling_policy.schedule_timeout_seconds": 3600,
    "spec.scheduling_policy.spread": None,
    "spec.active_deadline_seconds": None,
    "spec.ttl_seconds_after_finished": None,
    "spec.clean_pod_policy": "Running",
    "spec.reconcile_seconds": 10,
    "spec.suspend": False,
    "spec.checkpoint": None,
    "spec.output": None,
    "spec.plan.model": None,
    "spec.plan.cluster": "nodes",
    "spec.plan.global_batch": None,
    "spec.plan.precision": None,
    "spec.plan.objective": "time",
    "spec.plan.constraints": {},
    "spec.plan.apply": ["replicas", "env", "microBatch"],
    "spec.plan.role": None,
    "spec.dag": None,
    "role.replicas": 1,
    "role.min_replicas": None,
    "role.max_replicas": None,
    "role.warm_spares": 0,
    "role.template": None,
    "role.depends_on": [],
    "role.restart_policy": None,
    "role.backoff_limit": 6,
    "role.max_restarts": None,
    "role.min_succeeded": "All",
    "role.min_failed": "Any",
    "role.tracked": None,
    "dependency.status": "AddressKnown",
    "dependency.require": "All",
    "dependency.listener": "Each",
    "dependency.answer": "Auto",
    "dependency.timeout_seconds": 600,
    "dependency.poll_seconds": 1,
    "success.operator": "All",
    "success.target_roles": [],
    "failure.operator": "Any",
    "failure.target_roles": [],
    "failure.rules": [],
    "rule.on_classes": [],
    "rule.on_exit_codes": None,
    "checkpoint.every_seconds": None,
    "checkpoint.every_steps": None,
    "checkpoint.every": None,
    "checkpoint.keep": 3,
    "checkpoint.keep_every": None,
    "checkpoint.resume": "latest",
    "checkpoint.watch": None,
    "checkpoint.progress": None,
    "output.role": None,
    "dag.schedule": None,
    "dag.start_date": None,
    "dag.timezone": None,
    "dag.params": {},
    "dag.outlets": [],
    "dag.tags": [],
    "dag.max_active_runs": 16,
    "dag.catchup": False,
    "dag.owner": None,
    "spread.max_skew": 1,
    "spread.when_unsatisfiable": "ScheduleAnyway",
}


@pytest.mark.parametrize(("path", "value"), DEFAULTS.items())
def test_a_field_has_its_default_when_nobody_sets_it(path, value):
    job = TrainingJob(**MINIMAL)
    rich = TrainingJob(
        metadata={"name": "a"},
        spec={
            "framework": "custom",
            "roles": [{"name": "a"}, {"name": "b", "depends_on": [{"role": "a"}]}],
            "successPolicy": {},
            "failurePolicy": {"rules": [{"action": "Ignore"}]},
            "checkpoint": {"uri": "s3://a"},
            "output": {"uri": "s3://a"},
            "dag": {},
            "schedulingPolicy": {"spread": {"topologyKey": "zone"}},
        },
    ).spec
    roots = {
        "metadata": job.metadata,
        "spec": job.spec,
        "role": job.spec.roles[0],
        "dependency": rich.roles[1].depends_on[0],
        "success": rich.success_policy,
        "failure": TrainingJob(**edited("spec.failurePolicy", {})).spec.failure_policy,
        "rule": rich.failure_policy.rules[0],
        "checkpoint": rich.checkpoint,
        "output": rich.output,
        "dag": rich.dag,
        "spread": rich.scheduling_policy.spread,
    }
    root, *rest = path.split(".")
    here = roots[root]
    for part in rest:
        assert part not in here.model_fields_set or part in ("backoff",)
        here = getattr(here, part)
    assert here == value


def test_python_and_yaml_make_the_same_job():
    from airflow_training.documents.models import Metadata

    python = TrainingJob(
        metadata=Metadata(name="digits"),
        spec=TrainingJobSpec(
            framework="custom",
            roles=[
                Role(name="master"),
                Role(name="worker", depends_on=[Dependency(role="master", timeout_seconds=60)]),
            ],
        ),
    )
    text = """
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: custom
  roles: [{name: master}, {name: worker, dependsOn: [{role: master, timeoutSeconds: 60}]}]
"""
    assert TrainingJob.from_text(text) == python
    assert TrainingJob.from_text(python.to_yaml()) == python
    assert python.to_dict() == load_documents(text)[0].data


def test_every_field_survives_a_round_trip(tmp_path):
    (document,) = parse(FULL_TEXT)
    assert document.problems == []
    job = document.job
    assert job is not None
    assert job.to_dict() == document.raw == load_documents(FULL_TEXT)[0].data
    file = tmp_path / "job.yaml"
    file.write_text(job.to_yaml())
    assert TrainingJob.from_file(file) == job
    assert TrainingJob.from_file(str(file)).to_dict() == job.to_dict()


def test_a_python_date_is_written_as_text():
    job = TrainingJob(**edited("spec.dag", {"startDate": dt.date(2026, 1, 1)}))
    assert job.spec.dag.start_date == "2026-01-01"


def test_a_python_mistake_names_field_value_and_hint():
    mistaken: dict[str, Any] = {"restartPolicy": "OnFailur", "backof_limit": 3}
    with pytest.raises(InputError) as caught:
        Role(name="worker", replicas=-1, **mistaken)
    codes = {problem.field: problem.code for problem in caught.value.problems}
    assert codes == {
        "replicas": "out_of_range",
        "restartPolicy": "not_allowed",
        "backof_limit": "unknown_key",
    }
    assert "did you mean 'OnFailure'?" in str(caught.value)


def test_a_later_assignment_is_checked_too():
    from pydantic import ValidationError

    job = TrainingJob(**MINIMAL)
    job.spec.roles[0].replicas = 4
    assert job.to_dict()["spec"]["roles"][0]["replicas"] == 4
    with pytest.raises(ValidationError):
        job.spec.roles[0].replicas = -4


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"upTo": "64GB"}, ("bad_quantity", "spec.restart.onOutOfMemory.upTo")),
        ({"factor": 2}, ("missing", "spec.restart.onOutOfMemory.upTo")),
    ],
)
def test_the_ceiling_of_memory_is_a_quantity(given, problem):
    assert found(edited("spec.restart.onOutOfMemory", given)) == [problem]


def test_documents_are_camel_case_only():
    assert found(edited("spec.roles.1.backoff_limit", 3)) == [
        ("unknown_key", "spec.roles[1].backoff_limit")
    ]


def test_only_one_job_fits_into_one_object():
    text = TrainingJob(**MINIMAL).to_yaml()
    other = TrainingJob(**{**MINIMAL, "metadata": {"name": "other"}}).to_yaml()
    with pytest.raises(InputError, match="holds 2 jobs"):
        TrainingJob.from_text(f"{text}---\n{other}")


def test_a_file_that_is_not_there_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        TrainingJob.from_file(tmp_path / "none.yaml")
