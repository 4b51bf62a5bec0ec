"""Slurm batch scripts, and command lines alone: each step becomes a role, each task of it an instance."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.loading import FieldLines
from airflow_training.documents.paths import Loc
from airflow_training.errors import InputError, Problem
from airflow_training.interchange.accounts import FieldAccounts, SourceField
from airflow_training.interchange.launch import (
    CLOSE,
    OPEN,
    Launch,
    LaunchSite,
    command_word,
    plain_command,
)
from airflow_training.interchange.launchers import launcher_of, read_launch
from airflow_training.interchange.options import Argument, CommandLine, read_options
from airflow_training.interchange.sbatch_options import SBATCH, BatchAllocation, read_allocation
from airflow_training.interchange.script_steps import ScriptReader, Step, host_mark
from airflow_training.interchange.shell_script import read_statements
from airflow_training.interchange.srun import SRUN, step_size

__all__ = ["ScriptImport", "is_script", "read_script"]

ROLE = "worker"
FOR_EVER = 31_536_000
_COMMANDS = ("srun", "torchrun", "mpirun", "mpiexec", "accelerate", "deepspeed")
_SLURM_ENV = {
    "SLURM_PROCID": "$(TRAINING_INDEX)",
    "SLURM_NODEID": "$(TRAINING_INDEX)",
    "SLURM_LOCALID": "0",
}


@dataclass(slots=True)
class ScriptImport:
    """What came of one script."""

    kind: str
    name: str
    accounts: FieldAccounts
    document: dict[str, Any] | None
    comments: dict[Loc, list[str]]


def is_script(text: str, path: str = "") -> bool:
    """Return whether a text is a batch script, or a command line of a launcher."""
    if re.search(r"^#SBATCH\b", text, re.MULTILINE) or text.startswith("#!"):
        return True
    if path.endswith((".sh", ".slurm", ".sbatch", ".sub")):
        return True
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.split(maxsplit=1)[:1] != [] and (
        first.split()[0].rsplit("/", 1)[-1] in _COMMANDS or launcher_of(first.split()) != ""
    )


def read_script(text: str, name: str) -> ScriptImport:
    """Read a script, and the job that it is; `name`: of the job, where the script has none."""
    lines: dict[Loc, int] = {(): 1}
    accounts = FieldAccounts({"sbatch": [], "script": []}, FieldLines.known(lines))
    batch = bool(re.search(r"^#SBATCH\b", text, re.MULTILINE))
    found = ScriptImport("sbatch" if batch else "command line", name, accounts, None, {})
    try:
        statements = list(read_statements(text))
    except InputError as error:
        accounts.problems += error.problems
        return found
    first = statements[0].line if statements else len(text.splitlines()) + 1
    allocation = read_allocation(_directives(text, accounts, lines, until=first))
    reader = ScriptReader(accounts, lines, _variables(allocation, name))
    for statement in statements:
        reader.read(statement)
    found.comments = reader.comments
    found.name = allocation.name or name
    for key in ("sbatch", "script"):
        if not accounts.data[key]:
            del accounts.data[key]
    if not reader.steps:
        message = "starts nothing that trains: a line with srun, torchrun, mpirun, accelerate launch, deepspeed or python"
        accounts.problems.append(
            Problem(code="missing", field="script", message=message, line=first)
        )
    if not accounts.problems:
        found.document = _document(found, reader, allocation, batch=batch)
    return found


def _directives(
    text: str, accounts: FieldAccounts, lines: dict[Loc, int], *, until: int
) -> CommandLine:
    """Return the options of the `#SBATCH` lines; those below the first command count for nothing."""
    words: list[Argument] = []
    for number, line in enumerate(text.splitlines(), start=1):
        written = re.match(r"^#SBATCH\b(.*)", line)
        if written is None:
            continue
        place = len(accounts.data["sbatch"])
        loc: Loc = ("sbatch", place)
        lines[loc] = number
        try:
            texts = shlex.split(written[1], comments=True)
        except ValueError:
            message = "a quote does not end"
            accounts.problems.append(
                Problem(code="syntax", field="sbatch", message=message, line=number)
            )
            continue
        accounts.data["sbatch"].append(texts)
        source = SourceField(accounts, loc, texts)
        if re.match(r"^\s*(?:hetjob|packjob)\b", written[1]):
            source.refuse("roles of several sizes come of several srun lines, not of components")
        elif number > until:
            source.drop("Slurm reads no #SBATCH line below the first command")
        else:
            words += [
                Argument(each, SourceField(accounts, (*loc, i), each))
                for i, each in enumerate(texts)
            ]
    options = read_options(words, SBATCH)
    for word in options.rest:
        accounts.mistake(word.source.loc, "not_allowed", f"{word.text!r} is no option of sbatch")
    return options


def _variables(allocation: BatchAllocation, name: str) -> dict[str, str | None]:
    run, index = f"{OPEN}TRAINING_RUN_ID{CLOSE}", f"{OPEN}TRAINING_INDEX{CLOSE}"
    found: dict[str, str | None] = {
        "SLURM_JOB_ID": run,
        "SLURM_JOBID": run,
        "SLURM_JOB_NAME": allocation.name or name,
        "SLURM_NNODES": str(allocation.nodes),
        "SLURM_JOB_NUM_NODES": str(allocation.nodes),
        "SLURM_NTASKS": str(allocation.tasks),
        "SLURM_NPROCS": str(allocation.tasks),
        "SLURM_NTASKS_PER_NODE": str(allocation.tasks_per_node),
        "SLURM_JOB_NODELIST": host_mark("SLURM_JOB_NODELIST"),
        "SLURM_NODELIST": host_mark("SLURM_NODELIST"),
        "SLURMD_NODENAME": host_mark("SLURMD_NODENAME"),
        "SLURM_SUBMIT_DIR": None,
        "SLURM_PROCID": f"{OPEN}TRAINING_INDEX{CLOSE}",
        "SLURM_NODEID": f"{OPEN}TRAINING_INDEX{CLOSE}",
        "RANDOM": None,
    }
    if allocation.cpus:
        found["SLURM_CPUS_PER_TASK"] = str(allocation.cpus)
    if allocation.gpus_per_node is not None:
        found["SLURM_GPUS_ON_NODE"] = found["SLURM_GPUS_PER_NODE"] = str(allocation.gpus_per_node)
    if allocation.array:
        found |= {
            "SLURM_ARRAY_TASK_ID": index,
            "SLURM_ARRAY_JOB_ID": run,
            "SLURM_ARRAY_TASK_COUNT": str(allocation.array),
        }
    return found


# --- the document -------------------------------------------------------------------------------


def _document(
    found: ScriptImport, reader: ScriptReader, allocation: BatchAllocation, *, batch: bool
) -> dict[str, Any]:
    launches = [_launch(step, reader, allocation) for step in reader.steps]
    if len(launches) > 1 and any(each.framework != "custom" for each, _ in launches):
        chosen = max(range(len(launches)), key=lambda i: (launches[i][0].framework != "custom", i))
        for i, step in enumerate(reader.steps):
            if i != chosen:
                step.source.refuse(
                    "a job has one framework: make a job of its own of this line, and order both in a DAG"
                )
                for word in step.words:
                    word.source.refuse("see the line")
        launches, reader.steps = [launches[chosen]], [reader.steps[chosen]]
    launch = launches[0][0]
    env = {key: command_word(value) for key, value in reader.env.items()}
    if batch:
        _tell_numbers(found.accounts, env, launches, allocation)
    spec: dict[str, Any] = {"framework": launch.framework}
    if launch.parameters:
        spec["parameters"] = launch.parameters
    options = dict(allocation.options)
    if batch:
        if (
            len(launches) == 1
            and launch.framework != "mpi"
            and not allocation.array
            and reader.steps[0].by_srun
        ):
            names = [name for name in ("nodes", "ntasks-per-node") if name in allocation.given]
            values = {"nodes": allocation.nodes, "ntasks-per-node": allocation.tasks_per_node}
            allocation.extra += [
                f"--{name}={values[name]}" for name in names if launch.replicas == allocation.tasks
            ]
        if allocation.extra:
            options["extra"] = allocation.extra
        spec["runtime"] = {"name": "slurm", **({"options": options} if options else {})}
    variables = [
        *allocation.keys.pop("env", []),
        *({"name": key, "value": value} for key, value in env.items()),
    ]
    if variables:
        spec["env"] = list({each["name"]: each for each in variables}.values())
    directory = allocation.keys.pop("workingDir", "")
    if reader.directory or directory:
        spec["workingDir"] = (
            reader.directory
            if not directory or reader.directory.startswith("/")
            else (f"{directory}/{reader.directory}".rstrip("/"))
        )
    spec["roles"] = _roles(launches, reader, allocation)
    if len(launches) == 1:
        spec["command"] = launch.command
    _restarts(found.accounts, spec, launch, allocation, reader, batch=batch)
    spec |= allocation.keys
    if batch and not allocation.array:
        spec["schedulingPolicy"] = {"gang": "slurm"}
        found.accounts.default(
            ("sbatch",),
            "one allocation",
            "translated",
            to=("spec", "schedulingPolicy", "gang"),
            why="all instances are placed together",
        )
    order = (
        "framework",
        "parameters",
        "runtime",
        "command",
        "env",
        "workingDir",
        "resources",
        "roles",
    )
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": _name(found.name)},
        "spec": {key: spec[key] for key in [*order, *spec] if key in spec},
    }


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-") or "job"


def _tell_numbers(
    accounts: FieldAccounts,
    env: dict[str, str],
    launches: Sequence[tuple[Launch, dict[str, Any]]],
    allocation: BatchAllocation,
) -> None:
    numbers = launches[0][0].env if len(launches) == 1 else {}
    if allocation.array:
        numbers = {"SLURM_ARRAY_TASK_ID": "$(TRAINING_INDEX)"}
    told = numbers or {
        name: "" for each, _ in launches for name in each.env if name.startswith("SLURM_")
    }
    if not told:
        return
    for key, value in numbers.items():
        env.setdefault(key, value)
    accounts.default(
        ("script",),
        ", ".join(told),
        "translated",
        to=("spec", "env"),
        why="each instance is told its number as if it had a node to itself: it sees its own GPUs only",
    )


def _launch(
    step: Step, reader: ScriptReader, allocation: BatchAllocation
) -> tuple[Launch, dict[str, Any]]:
    """Return what a step becomes, and what its instances ask for."""
    words: Sequence[Argument] = step.words
    size, given = step_size(words, allocation, SRUN) if step.by_srun else (None, allocation)
    if size is not None:
        if size.tasks > 1 and not size.ends_all:
            step.source.accounts.default(
                (*step.source.loc, "--kill-on-bad-exit"),
                0,
                "translated",
                to=("spec", "roles", 0, "minFailed"),
                why="the first instance that fails ends the others; there they went on, and the step failed in the end",
            )
        words = size.words
        if len(reader.steps) == 1:
            reader.env |= size.env
        if size.directory and len(reader.steps) > 1:
            step.source.accounts.default(
                (*step.source.loc, "--chdir"),
                size.directory,
                "refused",
                why="all steps share the folder of the job: a script changes into another",
            )
        else:
            reader.directory = size.directory or reader.directory
    before = (
        ["bash", "-c", "\n".join([*reader.prepares, 'exec "$@"']), "bash"]
        if reader.prepares
        else []
    )
    launcher = launcher_of([word.text for word in words])
    tasks = size.tasks if size else 1
    per_node = (size.tasks_per_node if size else 1) if launcher != "mpirun" else 1
    gpus = given.gpus_per_node // per_node if given.gpus_per_node else None
    to: Loc = (
        ("spec", "command")
        if len(reader.steps) == 1
        else ("spec", "roles", reader.steps.index(step), "command")
    )
    site = LaunchSite(
        nodes=allocation.nodes if launcher == "mpirun" else tasks,
        tasks_per_node=allocation.tasks_per_node if launcher == "mpirun" else 1,
        gpus=gpus,
        before=before,
        to=to,
    )
    if not words:
        step.source.accounts.mistake(step.source.loc, "missing", "srun is given no program")
        return Launch("custom"), {}
    if launcher == "mpirun" and step.by_srun:
        step.source.refuse("srun would start mpirun once for each task")
    if launcher:
        launch = read_launch(words, site)
        if not step.by_srun and launcher != "mpirun" and allocation.nodes > 1:
            step.source.accounts.default(
                (*step.source.loc, "srun"),
                "on the first node only",
                "translated",
                to=("spec", "roles", 0, "replicas"),
                why="without srun it ran on one node of the allocation",
            )
    else:
        launch = plain_command(
            words, "pytorch" if reader.distributed and tasks > 1 else "custom", site
        )
        if tasks > 1:
            launch.env = dict(_SLURM_ENV, SLURM_NTASKS=str(tasks), SLURM_NNODES=str(tasks))
    if size and len(reader.steps) > 1:
        launch.env |= size.env
    if allocation.array:
        launch.replicas = allocation.array
    return launch, given.resources(per_node)


def _roles(
    launches: Sequence[tuple[Launch, dict[str, Any]]],
    reader: ScriptReader,
    allocation: BatchAllocation,
) -> list[dict[str, Any]]:
    launch, resources = launches[0]
    limits = {"resources": {"limits": resources}} if resources else {}
    policy = "OnFailure" if launch.restarts else "Never"
    if launch.framework == "mpi":
        return [
            {"name": "launcher", "restartPolicy": policy},
            {"name": "worker", "replicas": launch.replicas, "restartPolicy": policy, **limits},
        ]
    if len(launches) == 1:
        role: dict[str, Any] = {
            "name": ROLE,
            "replicas": launch.replicas,
            "restartPolicy": policy,
            **limits,
        }
        if launch.least is not None:
            role |= {"minReplicas": launch.least, "maxReplicas": launch.replicas}
        if launch.restarts:
            role["backoffLimit"] = launch.restarts
        if allocation.array:
            role["minFailed"] = "100%"
        return [role]
    roles: list[dict[str, Any]] = []
    for i, (each, asked) in enumerate(launches):
        step = reader.steps[i]
        step.source.anchor(("spec", "roles", i))
        waits = [f"step-{earlier}" for earlier in sorted(step.after)]
        if waits and not reader.exits_on_error:
            step.source.accounts.default(
                (*step.source.loc, "after"),
                "whatever became of the step before",
                "refused",
                why="the script went on where a step had failed; here the job fails then: set -e says so",
            )
        roles.append(
            {
                "name": f"step-{i}",
                "replicas": each.replicas,
                "command": each.command,
                **(
                    {"env": [{"name": k, "value": v} for k, v in each.env.items()]}
                    if each.env
                    else {}
                ),
                "restartPolicy": "Never",
                **({"resources": {"limits": asked}} if asked else {}),
                **(
                    {
                        "dependsOn": [
                            {"role": name, "status": "Complete", "timeoutSeconds": FOR_EVER}
                            for name in waits
                        ]
                    }
                    if waits
                    else {}
                ),
            }
        )
    return roles


def _restarts(
    accounts: FieldAccounts,
    spec: dict[str, Any],
    launch: Launch,
    allocation: BatchAllocation,
    reader: ScriptReader,
    *,
    batch: bool,
) -> None:
    spec["restart"] = {"maxRestarts": launch.restarts, "then": "Fail"}
    if launch.restarts:
        spec["restart"] |= {
            "scope": "Job",
            "backoff": {"initialSeconds": 0, "factor": 1, "maxSeconds": 0},
        }
    else:
        accounts.default(
            ("script",),
            "nothing is started again",
            "translated",
            to=("spec", "roles", 0, "restartPolicy"),
            why="a process that fails ends the job: choose OnFailure and a limit to have it tried again",
        )
    if not reader.exits_on_error and not reader.steps[-1].last:
        accounts.default(
            ("script",),
            "the exit code of the last line",
            "translated",
            to=("spec", "failurePolicy"),
            why="a step that fails fails the job, whatever is run behind it",
        )
    if not batch or not allocation.requeue:
        return
    accounts.default(
        ("sbatch", "--requeue"),
        "of the cluster (JobRequeue)",
        "translated",
        to=("spec", "failurePolicy", "rules", 1),
        why="all begins anew after a lost node or a preemption, as Slurm does unless its administrator has changed it; --no-requeue says otherwise",
    )
    spec["failurePolicy"] = {
        "rules": [
            {"name": "time-limit", "action": "FailJob", "onReasons": ["SlurmTimeLimit"]},
            {
                "name": "requeue",
                "action": "RestartJobAndIgnoreMaxRestarts",
                "onClasses": ["preemption", "infrastructure"],
            },
        ]
    }
