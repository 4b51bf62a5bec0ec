"""A job of ours as a Slurm batch script: a step for each role."""

from __future__ import annotations

import re
import shlex
from typing import Any

from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.export_policies import drop_backoff, plain_ends, refuse_others
from airflow_training.interchange.our_jobs import ExportedRole, ExportRules, OurJob, read_job

__all__ = ["export_sbatch"]

_SAME = ("partition", "account", "qos", "constraint", "reservation", "gres")
_SIZE = re.compile(r"^(\d+)(Ki|Mi|Gi|Ti)$")
_COUNTS = ("SLURM_NTASKS", "SLURM_NNODES")
_POD = "Slurm starts a command, no pod"
_HEAD = "head_node=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"


def export_sbatch(source: SourceField) -> str:
    """Return the script."""
    rules = ExportRules(
        variables={"TRAINING_RUN_ID": "$SLURM_JOB_ID"},
        sets={
            "SLURM_PROCID": "$(TRAINING_INDEX)",
            "SLURM_NODEID": "$(TRAINING_INDEX)",
            "SLURM_LOCALID": "0",
        },
    )
    job = read_job(source, rules, place=lambda i: ("script", i))
    head, body = _directives(job), _body(job)
    plain_ends(job.roles)
    for key in ("successPolicy", "cleanPodPolicy", "suspend", "ttlSecondsAfterFinished"):
        value = job.spec[key]
        if key == "successPolicy" and {each.text() for each in value["targetRoles"].items()} >= {
            role.name for role in job.roles
        }:
            value.drop("all steps have to succeed")
        elif key == "cleanPodPolicy":
            value.drop("nothing is left of a step")
        else:
            value.refuse("a script runs all of its steps, and a job goes once it has ended")
    refuse_others(job)
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {each}" for each in head), "", *body, ""])


# --- directives ---------------------------------------------------------------------------------


def _directives(job: OurJob) -> list[str]:
    found = [f"--job-name={job.name}"]
    job.source["metadata"]["name"].keep(("sbatch",))
    for key in ("namespace", "labels", "annotations"):
        job.source["metadata"][key].drop("of objects of Kubernetes")
    options = _options(job)
    sizes = {json_like(_limits(role)) for role in job.roles}
    if len(sizes) > 1:
        for role in job.roles:
            role.source["resources"].refuse(
                "all steps share what the job asks for: the same resources in each role"
            )
    tasks = max((role.replicas for role in job.roles), default=1)
    together = _together(job)
    if together and len(job.roles) > 1:
        tasks = sum(role.replicas for role in job.roles)
    found.append(f"--ntasks={tasks}")
    if job.roles:
        found += _resources(job, job.roles[0])
    seconds = job.spec["activeDeadlineSeconds"]
    if seconds:
        whole = seconds.whole(1)
        found.append(
            f"--time={whole // 86400}-{whole % 86400 // 3600:02}:{whole % 3600 // 60:02}:{whole % 60:02}"
        )
        seconds.keep(("sbatch",), "counts from the start of the allocation there")
    found.append("--requeue" if _requeues(job) else "--no-requeue")
    return [*found, *options]


def json_like(value: dict[str, Any]) -> str:
    return str(sorted(value.items()))


def _options(job: OurJob) -> list[str]:
    runtime = job.spec["runtime"].block()
    name, options = runtime["name"], runtime["options"].block()
    found: list[str] = []
    if name.text("slurm") != "slurm":
        name.refuse("it runs on Slurm")
        options.refuse("of another runtime")
        return found
    name.translate(("sbatch",), "a script of Slurm")
    for key in options.names():
        each = options[key]
        if key in _SAME:
            found.append(f"--{key}={each.text()}")
            each.keep(("sbatch",))
        elif key == "extra":
            found += [word.text() for word in each.items()]
            each.keep(("sbatch",))
        elif key == "exclusive":
            found += ["--exclusive"] if each.flag() else []
            each.keep(("sbatch",))
        elif key == "signalSeconds":
            found.append(f"--signal=TERM@{each.whole(60)}")
            each.keep(("sbatch",))
        elif key == "time":
            each.drop("activeDeadlineSeconds says it") if job.spec[
                "activeDeadlineSeconds"
            ] else each.translate(("sbatch",), "--time")
            found += [] if job.spec["activeDeadlineSeconds"] else [f"--time={each.text()}"]
        else:
            each.drop("is about our agents")
    runtime["connection"].drop("no connection is needed")
    scheduling = job.spec["schedulingPolicy"].block()
    gang = scheduling["gang"].text("none")
    if gang in ("slurm", "none"):
        scheduling["gang"].settle(
            "kept" if gang == "slurm" else "translated",
            "none",
            to=("sbatch",),
            why="one allocation of all instances",
        )
    else:
        scheduling["gang"].refuse("the allocation is the gang")
    for key in ("queue", "minAvailable", "priorityClassName", "scheduleTimeoutSeconds"):
        scheduling[key].refuse("an allocation has its full size or waits in its partition")
    return found


def _limits(role: ExportedRole) -> dict[str, Any]:
    resources = role.container.get("resources") or {}
    found: dict[str, Any] = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return found


def _resources(job: OurJob, role: ExportedRole) -> list[str]:
    found: list[str] = []
    limits = _limits(role)
    cpus = str(limits.get("cpu", ""))
    whole = int(cpus) if cpus.isdecimal() else 0
    if whole:
        found.append(f"--cpus-per-task={whole}")
    memory = _SIZE.match(str(limits.get("memory", "")))
    lost = [key for key in limits if key not in ("cpu", "memory", "nvidia.com/gpu")]
    if memory:
        kibibytes = int(memory[1]) * 1024 ** ("Ki", "Mi", "Gi", "Ti").index(memory[2])
        found.append(f"--mem-per-cpu={_size(kibibytes // max(1, whole))}")
        lost += ["memory"] if kibibytes % max(1, whole) else []
    elif limits.get("memory"):
        lost.append("memory")
    if gpus := limits.get("nvidia.com/gpu"):
        found.append(f"--gpus-per-task={gpus}")
    if cpus and not whole:
        lost.append("cpu")
    for each in (role.source["resources"], job.spec["resources"], role.source["template"]):
        for key in lost:
            target = each if each.loc[-1] == "resources" else each["spec"]["containers"]
            target.refuse(
                f"{key} is not what Slurm counts: processors, memory in Ki to Ti, and NVIDIA's GPUs"
            )
    return found


def _size(kibibytes: int) -> str:
    """Return an amount of memory in the largest unit of which it is a whole number."""
    units = iter("KMGT")
    unit = next(units)
    while kibibytes and kibibytes % 1024 == 0 and unit != "T":
        kibibytes, unit = kibibytes // 1024, next(units)
    return f"{kibibytes}{unit}"


def _requeues(job: OurJob) -> bool:
    policy = job.spec["failurePolicy"].block()
    again = False
    for key in ("operator", "targetRoles"):
        policy[key].drop("a step that fails fails the job") if policy[key].value in (
            None,
            "Any",
        ) else policy[key].refuse("a step that fails fails the job")
    for rule in policy["rules"].items():
        action, classes = rule["action"].text(), {each.text() for each in rule["onClasses"].items()}
        reasons = [each.text() for each in rule["onReasons"].items()]
        if (
            action == "RestartJobAndIgnoreMaxRestarts"
            and classes == {"preemption", "infrastructure"}
            and not rule["targetRoles"]
        ):
            again = True
            rule.keep(("sbatch",), "--requeue")
        elif action == "FailJob" and reasons == ["SlurmTimeLimit"]:
            rule.keep(("sbatch",), "the end of the time is final")
        else:
            rule.refuse("Slurm begins a job anew after a lost node or a preemption, or not at all")
    return again


# --- what it runs -------------------------------------------------------------------------------


def _together(job: OurJob) -> bool:
    return all(
        not [each for each in role.depends if each["status"].text() == "Complete"]
        for role in job.roles
    )


def _body(job: OurJob) -> list[str]:
    found: list[str] = []
    together = _together(job)
    if len(job.roles) > 1 and not together:
        found.append("set -e")
    launched = _framework(job)
    found += launched
    restarts = _restarts(job)
    variables: dict[str, str] = {}
    for role in job.roles:
        role.source["name"].translate(("script",), "a step has no name")
        known = job.framework == "custom" or (job.framework == "pytorch" and len(job.roles) == 1)
        role.source["replicas"].settle(
            "kept" if known else "translated", 1, to=("script",), why="tasks of the step"
        )
        _refuse_pods(role)
        for variable in role.container.get("env") or ():
            name, value = str(variable.get("name")), variable.get("value")
            if not isinstance(value, str):
                role.source["template"].refuse(f"{name} has its value from an object of Kubernetes")
            elif name in _COUNTS and value == str(role.replicas):
                continue  # srun tells it
            elif variables.setdefault(name, value) != value:
                role.source["env"].refuse(
                    f"all steps share the variables of the script: {name} has two values"
                )
    array = variables.pop("SLURM_ARRAY_TASK_ID", "")
    if array:
        job.spec["env"].refuse("elements of an array are jobs of their own")
    found += [f"export {name}={_quoted(value)}" for name, value in variables.items()]
    prepared: list[str] = []
    lines: list[str] = []
    for i, role in enumerate(job.roles):
        words, before = _command(job, role, restarts)
        prepared += [each for each in before if each not in prepared]
        waits = _waits(job, role, i)
        several = f"-n {role.replicas} " if len(job.roles) > 1 else ""
        cpus = str(_limits(role).get("cpu", ""))
        if cpus.isdecimal():  # srun takes it over from sbatch in old versions of Slurm only
            several += f"-c {cpus} "
        lines.append(
            f"srun {several}{' '.join(words)}{' &' if not waits and together and len(job.roles) > 1 else ''}"
        )
    directories = {str(role.container.get("workingDir") or "") for role in job.roles}
    if len(directories) > 1:
        for role in job.roles:
            role.source["workingDir"].refuse("all steps share the folder of the script")
    found += [f"cd {_quoted(each)}" for each in sorted(directories)[-1:] if each]
    return [*found, *prepared, *lines, *(["wait"] if together and len(job.roles) > 1 else [])]


def _quoted(word: str) -> str:
    """Return a word for a shell; variables of Slurm are put in."""
    if "$SLURM_" in word:
        return '"' + re.sub(r'(["\\`]|\$(?!SLURM_))', r"\\\1", word) + '"'
    return shlex.quote(word)


def _framework(job: OurJob) -> list[str]:
    framework = job.spec["framework"]
    if job.framework == "custom":
        framework.keep(("script",))
        job.spec["parameters"].refuse("nobody there sets what it stands for")
        return []
    if job.framework != "pytorch" or len(job.roles) > 1:
        framework.refuse(
            f"nobody there sets the variables that {job.framework} sets for these roles"
        )
        job.spec["parameters"].refuse("nobody there sets what it stands for")
        return []
    for key in job.spec["parameters"].block().names():
        if key != "nprocPerNode":
            job.spec["parameters"][key].refuse("nobody there sets what it stands for")
    if _is_torchrun(job.roles[0]):
        framework.keep(("script",), "the first host is the master")
        return [_HEAD]
    framework.translate(
        ("script",), "each task is told its rank, and that the first host is the master"
    )
    job.spec["parameters"]["nprocPerNode"].refuse("only torchrun starts several processes")
    return [f"export MASTER_ADDR={_HEAD.partition('=')[2]}", "export MASTER_PORT=29500"]


def _is_torchrun(role: ExportedRole) -> bool:
    words = role.container.get("command") or []
    return "torchrun" in words


def _restarts(job: OurJob) -> int:
    """Return how often torchrun starts its group again: nobody else starts anything again."""
    restart = job.spec["restart"].block()
    again = any(role.restart != "Never" for role in job.roles) and job.restarts > 0
    torchrun = len(job.roles) == 1 and _is_torchrun(job.roles[0])
    for key in ("then", "maxFreshJobs", "scope"):
        restart[key].drop("nothing begins anew")
    drop_backoff(job, {"initialSeconds": 0, "factor": 1, "maxSeconds": 0}, "nothing waits")
    limit = restart["maxRestarts"]
    for role in job.roles:
        policy = role.source["restartPolicy"]
        role.source["backoffLimit"].drop("nothing is started again by Slurm")
        role.source["maxRestarts"].drop("nothing is started again by Slurm")
        if role.restart == "Never" or not again:
            policy.settle(
                "kept" if role.restart == "Never" else "dropped",
                "OnFailure",
                to=("script",),
                why="nothing is started again",
            )
        elif torchrun and role.restart == "OnFailure":
            policy.translate(("script",), "torchrun starts its group again")
        else:
            policy.settle(
                "refused",
                "OnFailure",
                why="Slurm starts no command again: restartPolicy: Never says so",
            )
    if again and torchrun:
        limit.translate(("script",), "--max-restarts")
        return job.restarts
    limit.settle("dropped", 3, why="nothing is started again")
    return 0


def _refuse_pods(role: ExportedRole) -> None:
    pod = role.source["template"]["spec"]
    known = {"command", "args", "env", "resources", "workingDir", "name"}
    for key in pod.names():
        if key != "containers":
            pod[key].refuse(_POD)
    for each in pod["containers"].items():
        for key in each.names():
            if key not in known:
                each[key].refuse(_POD)
    role.source["template"]["metadata"].refuse(_POD)
    shared = SourceField(role.source.accounts, ("spec",), role.source.accounts.data.get("spec"))
    for where in (role.source, shared):
        for key in ("image", "envFrom", "volumes", "volumeMounts", "ports"):
            if where[key]:
                where[key].refuse(_POD)


def _waits(job: OurJob, role: ExportedRole, number: int) -> bool:
    earlier = {each.name for each in job.roles[:number]}
    waits = {each["role"].text() for each in role.depends if each["status"].text() == "Complete"}
    for each in role.depends:
        if each["status"].text("AddressKnown") == "AddressKnown":
            each.drop("nodes are known before steps begin")
        elif each["status"].text() != "Complete" or waits != earlier:
            each.refuse("a step begins with the others, or once all before it have ended")
        else:
            each.translate(("script",), "steps in their order, and set -e")
    return bool(waits)


def _command(job: OurJob, role: ExportedRole, restarts: int) -> tuple[list[str], list[str]]:
    """Return the words of a step, and what is prepared before it."""
    container = role.container
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    before: list[str] = []
    if (
        words[:2] == ["bash", "-c"]
        and len(words) > 4
        and str(words[2]).endswith('\nexec "$@"')
        and words[3] == "bash"
    ):
        before = str(words[2]).split("\n")[:-1]
        words = words[4:]
    if not words:
        role.source.accounts.mistake(
            role.source.loc, "missing", "a step needs a command: an image has none there"
        )
    texts = [_quoted(_plain(str(word), role)) for word in words]
    if job.framework == "pytorch" and "torchrun" in words:
        at = words.index("torchrun") + 1
        processes = job.spec["parameters"]["nprocPerNode"]
        nodes = (
            f"{role.source['minReplicas'].value}:{role.replicas}"
            if role.source["minReplicas"]
            else str(role.replicas)
        )
        told = ["--nnodes", nodes]
        if processes:
            told += ["--nproc-per-node", str(processes.whole(1))]
            processes.keep(("script",))
        if restarts:
            told += ["--max-restarts", str(restarts)]
        told += [
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "$head_node:29500",
            "--rdzv-id",
            "$SLURM_JOB_ID",
        ]
        texts = [*texts[:at], *told, *texts[at:]]
    elif job.framework == "pytorch":
        script = 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "$@"'
        texts = ["bash", "-c", shlex.quote(script), "bash", *texts]
    return texts, before


def _plain(word: str, role: ExportedRole) -> str:
    if re.search(r"(?<!\$)\$\([A-Z_]+\)", word):
        role.source["command"].refuse(f"{word} is a variable of an instance")
    return word.replace("$$(", "$(").replace("$$$$", "$$")
