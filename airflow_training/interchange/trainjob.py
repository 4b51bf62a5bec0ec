"""A TrainJob of Kubeflow Trainer (`trainer.kubeflow.org/v1alpha1`), with the runtime that it names."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import BACKOFF, CONTAINER, end_of_template, size_of
from airflow_training.interchange.metadata import (
    job_document,
    managed_by,
    queue_of_labels,
    suspended,
)
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template

__all__ = ["runtime_name", "translate_training_runtime", "translate_trainjob"]

FOR_EVER = 31_536_000
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_HOSTS = HostNames(re.compile(r"(?!)(?P<host>)"), lambda _: None)
_PARAMETERS: Loc = ("spec", "parameters")


@dataclass(frozen=True, slots=True)
class _Policy:
    """What a policy of the runtime makes of its jobs."""

    framework: str
    container: str
    roles: Mapping[str, str]
    """Replicated job -> role of the framework."""
    processes: str = ""
    """The parameter that says how many processes an instance has."""
    taken: frozenset[str] = frozenset()


_POLICIES = {
    "torch": _Policy(
        "pytorch",
        "pytorch",
        {"node": "worker"},
        "nprocPerNode",
        frozenset(
            {
                "PET_MASTER_ADDR",
                "PET_MASTER_PORT",
                "PET_NNODES",
                "PET_NODE_RANK",
                "PET_NPROC_PER_NODE",
            }
        ),
    ),
    "jax": _Policy("jax", "jax", {"node": "worker"}),
    "mpi": _Policy("mpi", "mpi", {"launcher": "launcher", "node": "worker"}, "slotsPerWorker"),
}
_PLAIN = _Policy("custom", CONTAINER, {})


def runtime_name(job: SourceField) -> tuple[str, str]:
    """Return kind and name of the runtime that a TrainJob names."""
    reference = job["spec"]["runtimeRef"]
    return reference["kind"].text("ClusterTrainingRuntime"), reference["name"].text()


def translate_training_runtime(source: SourceField) -> dict[str, Any]:
    """Return our document for a runtime that no job uses: the job that it would be as it stands."""
    return _document(source, SourceField(source.accounts, ("trainJob",), None), source)


def translate_trainjob(source: SourceField, runtime: SourceField | None) -> dict[str, Any] | None:
    """Return our document for a TrainJob; None: its runtime is in none of the files."""
    spec = source["spec"].block()
    if not spec["runtimeRef"]["name"].text():
        source.accounts.mistake(spec.loc, "missing", "a TrainJob needs runtimeRef.name")
        return None
    if runtime is None:
        source.refuse(
            "what it runs is in its runtime, which is in none of these files: give that file too, or what"
            " kubectl get -o yaml prints of it"
        )
        return None
    for key in ("kind", "apiVersion"):
        runtime[key].drop("the TrainJob is the document")
    runtime["metadata"].drop("the job is named and labelled by the TrainJob")
    spec["runtimeRef"].translate(("spec",), "what the runtime says is in the document")
    return _document(source, spec, runtime)


def _document(source: SourceField, job: SourceField, runtime: SourceField) -> dict[str, Any]:
    spec = runtime["spec"].block()
    learning = spec["mlPolicy"].block()
    name = next((each for each in _POLICIES if learning[each]), "")
    policy = _POLICIES.get(name, _PLAIN)
    for other in ("flux", "xgboost"):
        learning[other].refuse("no framework of ours sets the variables that it sets")
    template = spec["template"].block()
    template["metadata"].refuse("there is no JobSet that could have labels and annotations")
    jobs = template["spec"].block()
    nodes = _nodes(job["trainer"].block(), learning)
    written = jobs["replicatedJobs"].items()
    if not written:
        message = "a runtime needs a replicated job"
        runtime.accounts.mistake(jobs["replicatedJobs"].loc, "missing", message)
    chosen = [each for each in written if not policy.roles or each["name"].text() in policy.roles]
    for each in written:
        if each not in chosen:
            each.refuse(
                f"a job of framework {policy.framework} has no role for it: run it before, as a task of the DAG"
            )
    names = {
        each["name"].text(): policy.roles.get(each["name"].text(), each["name"].text())
        for each in chosen
    }
    # a framework's roles have an order of their own
    chosen.sort(
        key=lambda each: list(policy.roles).index(each["name"].text()) if policy.roles else 0
    )
    roles, limits = [], []
    for number, each in enumerate(chosen):
        role, limit = _role(each, number, policy, names, job, nodes)
        roles.append(role)
        limits.append(limit)
    parameters = _parameters(learning, policy, name, job)
    _rest(jobs, job)
    total = max(limits, default=6)
    return job_document(
        source,
        {
            "framework": policy.framework,
            **({"parameters": parameters} if parameters else {}),
            "roles": roles,
            **_success(jobs["successPolicy"].block(), names),
            "restart": {"maxRestarts": total, "then": "Fail", "backoff": dict(BACKOFF)},
            **_scheduling(source, spec["podGroupPolicy"].block()),
            **_deadline(job),
            **suspended(job["suspend"]),
        },
    )


def _deadline(job: SourceField) -> dict[str, Any]:
    seconds = job["activeDeadlineSeconds"]
    if not seconds:
        return {}
    seconds.translate(
        ("spec", "activeDeadlineSeconds"),
        "counts only while an instance runs: no queue, no place, no image, no back-off",
    )
    return {"activeDeadlineSeconds": seconds.whole(1, least=1)}


def _nodes(trainer: SourceField, learning: SourceField) -> int:
    to: Loc = ("spec", "roles", 0, "replicas")
    given, default = trainer["numNodes"], learning["numNodes"]
    count = given.whole(default.whole(1, least=1), least=1)
    given.translate(to, "an instance for each node")
    if given:
        default.drop("the TrainJob says another number")
    else:
        default.translate(to, "an instance for each node")
    return count


def _is_trainer(source: SourceField) -> bool:
    labels = source.at("template", "metadata", "labels")
    return source["name"].text() == "node" or labels[_STEP].text() == "trainer"


def _role(
    source: SourceField,
    number: int,
    policy: _Policy,
    names: Mapping[str, str],
    job: SourceField,
    nodes: int,
) -> tuple[dict[str, Any], int]:
    to: Loc = ("spec", "roles", number)
    source.anchor(to)
    name = source["name"].text()
    role: dict[str, Any] = {"name": names[name]}
    if role["name"] == name:
        source["name"].keep((*to, "name"))
    else:
        source["name"].translate((*to, "name"), f"what the framework {policy.framework} calls it")
    if source["replicas"].whole(1) != 1:
        source["replicas"].refuse("a replicated job of a runtime is one Job")
    else:
        source["replicas"].drop("one Job: its pods are the role")
    source["groupName"].drop("only names what labels say")
    labels = source.at("template", "metadata", "labels")
    source.at("template", "metadata").block()
    for key in source.at("template", "metadata").names():
        source["template"]["metadata"][key].refuse(
            "there are no Jobs that could have labels, annotations or names"
        )
    labels[_STEP].drop("says which job trains")
    spec = source.at("template", "spec").block()
    size = size_of(spec, to, always_indexed=True)
    trains = name == "node" or (not policy.roles and _is_trainer(source))
    role["replicas"] = nodes if trains else size.instances
    depends = [
        {
            "role": names[each["name"].text()],
            "status": each["status"].one_of(("Ready", "Complete"), "Ready"),
            "timeoutSeconds": FOR_EVER,
        }
        for each in source["dependsOn"].items()
        if each["name"].text() in names
    ]
    for each in source["dependsOn"].items():
        if each["name"].text() in names:
            each.translate(
                (*to, "dependsOn"), "waits for ever there; a year here, from when the other runs"
            )
        else:
            each.refuse("the job that it waits for is no role here")
    if depends:
        role["dependsOn"] = depends
    end_of_template(spec, to)
    limit = spec["backoffLimit"]
    limit.settle(
        "translated",
        6,
        to=("spec", "restart", "maxRestarts"),
        why="a Job counts the failures of all its pods; here those of the run",
    )
    spec["activeDeadlineSeconds"].refuse(
        "was the deadline of the Job; activeDeadlineSeconds of the TrainJob is the job's"
    )
    role["restartPolicy"] = "OnFailure"
    role["backoffLimit"] = limit.whole(6)
    rules = PodRules(
        container=_container_name(spec["template"], "node") if trains else "",
        ours=policy.container,
        env={"JOB_COMPLETION_INDEX": "$(TRAINING_INDEX)"} if policy.framework == "custom" else {},
        taken=policy.taken,
        hosts=_HOSTS,
    )
    role["template"] = translate_template(spec["template"], (*to, "template"), rules)
    if _is_trainer(source) and (policy.framework != "mpi" or name == "launcher"):
        _override(
            job["trainer"],
            spec["template"],
            role["template"],
            (*to, "template", "spec", "containers", 0),
            policy,
        )
    return role, limit.whole(6)


def _container_name(template: SourceField, wanted: str) -> str:
    names = [each["name"].text() for each in template.at("spec", "containers").items()]
    return wanted if wanted in names else ""


def _override(
    trainer: SourceField, runtime: SourceField, template: dict[str, Any], to: Loc, policy: _Policy
) -> None:
    """Put what the TrainJob says over what the runtime says."""
    if not template["spec"]["containers"]:
        return
    container = template["spec"]["containers"][0]
    written = next(iter(runtime.at("spec", "containers").items()))
    instead = "the TrainJob says another"
    for key, ours in (
        ("image", "image"),
        ("command", "command"),
        ("args", "args"),
        ("resourcesPerNode", "resources"),
    ):
        each = trainer[key]
        if not each:
            continue
        if key in ("command", "args"):
            container[ours] = [_escaped(word.value) for word in each.items()]
            each.keep((*to, ours))
            for i, word in enumerate(each.items()):
                if word.value != container[ours][i]:
                    word.translate((*to, ours, i), "two braces begin an expression here")
        else:
            container[ours] = copy.deepcopy(each.value)
            each.keep((*to, ours))
        written[ours].drop(instead)
    if trainer["env"].items():
        known = {each["name"]: each for each in container.get("env", [])}
        for each in trainer["env"].items():
            name = each["name"].text()
            if name in policy.taken:
                each.drop("the trainer set its own over it, and so does the framework")
                continue
            known[name] = {key: _escaped(value) for key, value in dict(each.value or {}).items()}
            each.translate((*to, "env"), "over a variable of the same name in the runtime")
            for other in written["env"].items():
                if other["name"].text() == name:
                    other.drop(instead)
        container["env"] = list(known.values())


def _escaped(value: Any) -> Any:
    return value.replace("{{", "{{ '{{' }}") if isinstance(value, str) else value


def _parameters(
    learning: SourceField, policy: _Policy, name: str, job: SourceField
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    source = learning[name] if name else learning["\0"]
    given, default = job["trainer"]["numProcPerNode"], source["numProcPerNode"]
    to: Loc = (*_PARAMETERS, policy.processes)
    for each in (default, given):
        if not each:
            continue
        text = str(each.value)
        if not policy.processes:
            each.refuse("a job of this framework starts one process in each instance")
        elif text.isdecimal() and int(text):
            found[policy.processes] = int(text)
            each.translate(to, "its name here")
        elif text in ("auto", "cpu", "gpu"):
            each.refuse(
                "would be counted on the node that it runs on: a number says how many processes an instance has"
            )
        else:
            each.accounts.mistake(each.loc, "not_allowed", "must be auto, cpu, gpu or a number")
    if name == "torch" and not found and not given and not default:
        default.accounts.default(
            default.loc,
            "auto",
            "translated",
            to=to,
            why="PET_NPROC_PER_NODE is 1 unless the parameter says more; it was the number of GPUs that a node asks for",
        )
    if given and default:
        default.drop("the TrainJob says another number")
    if name == "mpi":
        kind = source["mpiImplementation"]
        if kind:
            found["implementation"] = kind.one_of(("OpenMPI", "Intel", "MPICH"), "OpenMPI")
            kind.keep((*_PARAMETERS, "implementation"))
        source["sshAuthMountPath"].drop("keys of the run are the framework's")
        if source["runLauncherAsNode"].flag():
            source["runLauncherAsNode"].refuse(
                "the launcher runs no ranks of its own here: numNodes are the workers alone"
            )
        else:
            source["runLauncherAsNode"].drop("the launcher runs no ranks")
    elif name:
        source["envInjection"].refuse("variables are set in the training container")
        if not source.names():
            source.translate(("spec", "framework"), "its name here")
    return found


def _rest(jobs: SourceField, job: SourceField) -> None:
    jobs["network"].drop("hosts that the document names are accounted for where they stand")
    for key in (
        "failurePolicy",
        "startupPolicy",
        "coordinator",
        "volumeClaimPolicies",
        "suspend",
        "ttlSecondsAfterFinished",
    ):
        jobs[key].refuse("of a JobSet that a runtime makes: import that JobSet")
    managed_by(jobs["managedBy"], own="jobset.sigs.k8s.io/jobset-controller")
    managed_by(job["managedBy"], own="trainer.kubeflow.org/trainjob-controller")
    for key in ("initializer", "runtimePatches"):
        job[key].refuse(
            "fetches data or a model first: run it before, as a task of the DAG"
            if key == "initializer"
            else "write it into the runtime"
        )
    for old in ("labels", "annotations", "podTemplateOverrides"):
        job[old].refuse("write it into the runtime")


def _success(policy: SourceField, names: Mapping[str, str]) -> dict[str, Any]:
    if not policy.names():
        return {}
    to: Loc = ("spec", "successPolicy")
    policy["operator"].settle("kept", "All", to=(*to, "operator"), why="")
    found: list[str] = []
    for each in policy["targetReplicatedJobs"].items():
        if each.text() in names:
            each.translate((*to, "targetRoles"), "the role of this job")
            found.append(names[each.text()])
        else:
            each.refuse("the job is no role here")
    if not policy["targetReplicatedJobs"]:
        found = list(names.values())
    return {
        "successPolicy": {
            "operator": policy["operator"].one_of(("All", "Any"), "All"),
            "targetRoles": found,
        }
    }


def _scheduling(source: SourceField, policy: SourceField) -> dict[str, Any]:
    labelled = queue_of_labels(source)
    found: dict[str, Any] = {}
    to: Loc = ("spec", "schedulingPolicy")
    if labelled:
        policy.refuse("the job waits in the queue that its label names, and has no second gang")
        return {"schedulingPolicy": labelled}
    for gang in ("coscheduling", "volcano"):
        if policy[gang]:
            found["gang"] = gang
            policy[gang].translate((*to, "gang"), "a gang of all instances")
    seconds = policy["coscheduling"]["scheduleTimeoutSeconds"]
    if seconds:
        found["scheduleTimeoutSeconds"] = seconds.whole(1, least=1)
        seconds.translate(
            (*to, "scheduleTimeoutSeconds"), "the job fails then; the scheduler only tried again"
        )
    policy["volcano"]["networkTopology"].refuse(
        "no scheduler of ours is told about levels of the network"
    )
    return {"schedulingPolicy": found} if found else {}
