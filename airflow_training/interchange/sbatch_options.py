"""What `#SBATCH` lines ask for, as options of our Slurm runtime, resources of an instance and policies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.options import Argument, CommandLine, OptionSet

__all__ = ["SBATCH", "BatchAllocation", "read_allocation", "seconds_of"]

_VALUES = (
    "account array batch bb bbf begin chdir clusters cluster-constraint comment constraint container container-id core-spec"
    " cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude export"
    " export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint"
    " input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network"
    " nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition"
    " power prefer priority profile qos reservation segment signal sockets-per-node switches thread-spec threads-per-core time"
    " time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap"
)
_FLAGS = (
    "contiguous exclusive get-user-env hold ignore-pbs no-kill no-requeue overcommit oversubscribe parsable quiet reboot requeue"
    " spread-job stepmgr test-only use-min-nodes verbose wait nice propagate resv-ports"
)
SBATCH = OptionSet(
    program="sbatch",
    values=frozenset(_VALUES.split()),
    flags=frozenset(_FLAGS.split()),
    prefixes=("container-",),
    short={
        "A": "account", "a": "array", "b": "begin", "B": "extra-node-info", "C": "constraint", "c": "cpus-per-task", "d": "dependency",
        "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name", "k": "no-kill",
        "L": "licenses", "m": "distribution", "M": "clusters", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output",
        "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe", "S": "core-spec", "t": "time", "v": "verbose",
        "w": "nodelist", "W": "wait", "x": "exclude",
    },
)  # fmt: skip
_OPTIONS: Loc = ("spec", "runtime", "options")
_SAME = ("partition", "account", "qos", "constraint", "reservation")
_EXTRA = [
    "begin",
    "bb",
    "bbf",
    "contiguous",
    "core-spec",
    "cores-per-socket",
    "cpu-freq",
    "deadline",
    "delay-boot",
    "distribution",
    "exclude",
    "gpu-bind",
    "gpu-freq",
    "gres-flags",
    "hint",
    "hold",
    "licenses",
    "mail-type",
    "mail-user",
    "mcs-label",
    "mem-bind",
    "mincpus",
    "network",
    "nice",
    "nodelist",
    "ntasks-per-core",
    "ntasks-per-socket",
    "oversubscribe",
    "power",
    "prefer",
    "priority",
    "profile",
    "reboot",
    "segment",
    "sockets-per-node",
    "spread-job",
    "switches",
    "thread-spec",
    "threads-per-core",
    "time-min",
    "tmp",
    "tres-bind",
    "use-min-nodes",
    "wait-all-nodes",
    "wckey",
]
_DROPPED = {
    "output": "every instance has a log of its own: airflow-training logs show",
    "error": "every instance has a log of its own: airflow-training logs show",
    "open-mode": "says how a log file is opened",
    "parsable": "says what sbatch prints",
    "quiet": "says what sbatch prints",
    "verbose": "says what sbatch prints",
    "wait": "airflow-training run waits for the job",
    "test-only": "airflow-training validate does that",
    "ignore-pbs": "there are no lines of PBS here",
    "overcommit": "an instance has the processors that it asks for",
    "kill-on-invalid-dep": "says nothing without a dependency",
}
_REFUSED = {
    "dependency": "a job waits for roles of its own only: order jobs in a DAG",
    "clusters": "the cluster is the one whose commands are found where the job is driven",
    "comment": "is set by us, to find the job again",
    "export-file": "the environment of an instance is in the document: env",
    "input": "a command reads nothing from a file of that name",
    "no-kill": "a lost node ends the allocation here, unless it has options.spareNodes",
    "propagate": "limits of the submitting shell are not known later",
    "wrap": "is a command line: write it into the script",
    "nodefile": "names nodes in a file of the submitting machine: --nodelist names them",
    "uid": "a job runs as the user who drives it",
    "gid": "a job runs as the user who drives it",
    "get-user-env": "an instance has the environment that the document says",
    "stepmgr": "steps are started by agents",
    "resv-ports": "ports are those of the framework",
    "container": "instances run on the node itself: Slurm starts no container for them here",
    "container-id": "instances run on the node itself: Slurm starts no container for them here",
}
_SIZE = re.compile(r"^(\d+)([KMGT]?)B?$", re.IGNORECASE)
_TIME = re.compile(r"^(?:(?P<d>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?$")
_GPU = re.compile(r"^(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][\w.-]*))?(?:[:=](?P<count>\d+))?$")


@dataclass(slots=True)
class BatchAllocation:
    """What a script asks for."""

    nodes: int = 1
    tasks_per_node: int = 1
    tasks: int = 1
    cpus: int = 0
    """Of a task; 0: nobody said."""
    gpus_per_node: int | None = None
    memory: dict[str, str] = field(default_factory=dict)
    """`node`, `cpu` or `gpu` -> an amount, as Kubernetes writes it."""
    options: dict[str, Any] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    keys: dict[str, Any] = field(default_factory=dict)
    """Of `spec`."""
    requeue: bool = True
    name: str = ""
    array: int = 0
    given: frozenset[str] = frozenset()

    def resources(self, tasks_per_node: int) -> dict[str, str]:
        """Return the limits of an instance, where so many share a node."""
        found: dict[str, str] = {}
        if self.cpus:
            found["cpu"] = str(self.cpus)
        gpus = (self.gpus_per_node or 0) // tasks_per_node
        if "node" in self.memory:
            found["memory"] = _scaled(self.memory["node"], 1, tasks_per_node)
        elif "cpu" in self.memory:
            found["memory"] = _scaled(self.memory["cpu"], self.cpus or 1, 1)
        elif "gpu" in self.memory and gpus:
            found["memory"] = _scaled(self.memory["gpu"], gpus, 1)
        if gpus:
            found["nvidia.com/gpu"] = str(gpus)
        return found


def read_allocation(line: CommandLine, within: BatchAllocation | None = None) -> BatchAllocation:
    """Return the allocation that the options ask for, and say what becomes of each.

    `within`: the allocation of a step, which has what its options do not say.
    """
    found = BatchAllocation(given=frozenset(name for name, _, _ in line.options))
    _size(line, found, within or found)
    if within is not None:
        found.gpus_per_node = within.gpus_per_node
    _gpus(line, found)
    _memory(line, found)
    for name, value, words in line.options:
        if name in _SAME:
            found.options[name] = value
            _say(words, (*_OPTIONS, name), "")
        elif name in _EXTRA:
            _say(words, (*_OPTIONS, "extra", len(found.extra)), "sbatch is given it as it is")
            found.extra.append(f"--{name}={value}" if value else f"--{name}")
        elif name in _DROPPED:
            for word in words:
                word.source.drop(_DROPPED[name])
        elif name in _REFUSED or name.startswith("container-"):
            for word in words:
                word.source.refuse(_REFUSED.get(name, _REFUSED["container"]))
    _policies(line, found)
    return found


def _say(words: Any, to: Loc, why: str) -> None:
    for word in words:
        word.source.translate(to, why or "its name here")


def _mistake(words: list[Argument], message: str) -> None:
    source = words[0].source
    source.accounts.mistake(source.loc, "wrong_type", message)


def _number(line: CommandLine, name: str, default: int) -> int:
    value = line.last(name)
    if value is None:
        return default
    if value.isdecimal() and int(value):
        return int(value)
    _mistake(line.words(name), f"--{name} must be a whole number of 1 or more, not {value!r}")
    return default


def _size(line: CommandLine, found: BatchAllocation, within: BatchAllocation) -> None:
    to: Loc = ("spec", "roles", 0, "replicas")
    nodes = line.last("nodes")
    least = nodes.partition("-")[0] if nodes else ""
    if nodes and least != nodes and least.isdecimal():
        found.nodes = int(least)
        line.refuse(f"any number of nodes from {least} was enough; here there are {least}", "nodes")
    else:
        found.nodes = _number(line, "nodes", within.nodes)
        _say(
            line.words("nodes"),
            to,
            "times the tasks of a node: an instance for each task that the script starts",
        )
    per_node = _number(line, "ntasks-per-node", within.tasks_per_node)
    _say(line.words("ntasks-per-node"), to, "an instance for each task that the script starts")
    sized = within is found or bool({"nodes", "ntasks-per-node"} & found.given)
    found.tasks = _number(line, "ntasks", found.nodes * per_node if sized else within.tasks)
    _say(line.words("ntasks"), to, "an instance for each task that the script starts")
    if per_gpu := line.last("ntasks-per-gpu"):
        gpus = line.last("gpus")
        if per_gpu.isdecimal() and (gpus or "").isdecimal():
            found.tasks = int(per_gpu) * int(gpus or 1)
            _say(line.words("ntasks-per-gpu"), to, "an instance for each task")
        else:
            line.refuse("how many GPUs there are in all is not said by --gpus", "ntasks-per-gpu")
    found.tasks_per_node = (
        per_node
        if "ntasks-per-node" in found.given and (within is found or "ntasks" not in found.given)
        else -(-found.tasks // found.nodes)
    )
    found.cpus = _number(line, "cpus-per-task", 0)
    _say(line.words("cpus-per-task"), ("spec", "resources", "limits", "cpu"), "of each instance")
    for name in ("cpus-per-gpu", "extra-node-info"):
        line.refuse("how many processors an instance has: --cpus-per-task says it", name)


def _gpus(line: CommandLine, found: BatchAllocation) -> None:
    to: Loc = ("spec", "resources", "limits", "nvidia.com/gpu")
    for name in ("gres", "gpus", "gpus-per-node", "gpus-per-task", "tres-per-task"):
        value, words = line.last(name), line.words(name)
        if value is None:
            continue
        text = value if name in ("gres", "tres-per-task") else f"gpu:{value}"
        gpu = _GPU.match(text)
        if not gpu:
            if name == "gres" and "gpu" not in text:
                found.options["gres"] = value
                _say(words, (*_OPTIONS, "gres"), "")
            else:
                line.refuse(
                    "is more than a number of GPUs: resources of an instance are processors, memory and GPUs",
                    name,
                )
            continue
        count = int(gpu["count"] or 1)
        if name == "gpus":
            per_node, rest = divmod(count, found.nodes)
        elif name.endswith("per-task"):
            per_node, rest = count * found.tasks_per_node, 0
        else:
            per_node, rest = count, 0
        found.gpus_per_node = per_node
        _say(words, to, "GPUs of each instance: those of a node, shared by its tasks")
        if rest:
            line.refuse(
                f"{count} GPUs are not the same number on each of {found.nodes} nodes", name
            )
        elif per_node % found.tasks_per_node:
            line.refuse(
                "its tasks share GPUs of a node; here each instance has GPUs of its own", name
            )
        elif gpu["type"]:
            line.refuse(
                f"any GPU will do here: --constraint names nodes that have {gpu['type']}", name
            )
    line.refuse("how many GPUs a node has: --gpus-per-node says it", "gpus-per-socket")


def _memory(line: CommandLine, found: BatchAllocation) -> None:
    to: Loc = ("spec", "resources", "limits", "memory")
    for name, of in (("mem", "node"), ("mem-per-cpu", "cpu"), ("mem-per-gpu", "gpu")):
        value = line.last(name)
        if value is None:
            continue
        size = _SIZE.match(value)
        if value == "0":
            line.refuse("all memory of the node is asked for by no instance: say how much", name)
        elif not size:
            _mistake(
                line.words(name), f"--{name} must be a number with K, M, G or T, not {value!r}"
            )
        else:
            if of == "gpu" and not found.gpus_per_node:
                line.refuse("no GPU is asked for here: say how much with --mem", name)
                continue
            found.memory[of] = f"{size[1]}{(size[2] or 'M').upper()}i"
            why = (
                "of each instance"
                if of != "node"
                else "of each instance: that of a node, shared by its tasks"
            )
            _say(line.words(name), to, why)


def _scaled(amount: str, times: int, parts: int) -> str:
    number, unit = int(amount[:-2]) * times, amount[-2:]
    while number % parts and unit != "Ki":
        number, unit = number * 1024, {"Ti": "Gi", "Gi": "Mi", "Mi": "Ki"}[unit]
    return f"{number // parts}{unit}"


def seconds_of(text: str) -> int | None:
    """Return the seconds of a time as Slurm writes it; None: it is none, or has no end."""
    time = _TIME.match(text)
    if time is None:
        return None
    a, b, c = (int(time[name] or 0) for name in "abc")
    if time["d"]:  # days-hours[:minutes[:seconds]]
        return int(time["d"]) * 86400 + a * 3600 + b * 60 + c
    if time["c"]:
        return a * 3600 + b * 60 + c
    return a * 60 + b


def _policies(line: CommandLine, found: BatchAllocation) -> None:
    time = line.last("time")
    if time is not None and time.upper() in ("UNLIMITED", "INFINITE", "0"):
        line.drop("no deadline", "time")
    elif time is not None:
        seconds = seconds_of(time)
        if seconds:
            found.keys["activeDeadlineSeconds"] = seconds
            why = "the job fails then, as there; counts only while an instance runs, and limits the allocation"
            _say(line.words("time"), ("spec", "activeDeadlineSeconds"), why)
        else:
            _mistake(
                line.words("time"), f"--time must be minutes, h:mm:ss or d-hh:mm, not {time!r}"
            )
    exclusive = line.last("exclusive")
    if exclusive:
        line.refuse(
            "nodes are shared with nobody, or with anybody: --exclusive without a value",
            "exclusive",
        )
    elif exclusive is not None:
        found.options["exclusive"] = True
        _say(line.words("exclusive"), (*_OPTIONS, "exclusive"), "")
    signal = re.match(r"^(?:[RB]:)?(\w+)(?:@(\d+))?$", line.last("signal") or "")
    if signal and signal[1].upper().removeprefix("SIG") in ("TERM", "15"):
        found.options["signalSeconds"] = int(signal[2] or 60)
        _say(
            line.words("signal"),
            (*_OPTIONS, "signalSeconds"),
            "an instance gets SIGTERM so long before the end of its time",
        )
    else:
        line.refuse(
            "an instance gets SIGTERM ahead of the end of its time, no other signal", "signal"
        )
    name = line.last("job-name")
    if name is not None:
        found.name = name
        _say(line.words("job-name"), ("metadata", "name"), "in small letters, as names of jobs are")
    directory = line.last("chdir")
    if directory == ".":
        line.refuse("was the folder from which it was submitted: write its path", "chdir")
    elif directory is not None:
        found.keys["workingDir"] = directory
        _say(line.words("chdir"), ("spec", "workingDir"), "")
    _requeue(line, found)
    export = line.last("export")
    if export is not None:
        line.drop(
            "an instance has the environment that the document says, and nothing of whoever submits",
            "export",
        )
        named = [each for each in export.split(",") if each not in ("ALL", "NONE", "NIL")]
        if any("=" not in each for each in named):
            line.refuse("the value is that of whoever submits: write NAME=value", "export")
        elif named:
            found.keys["env"] = [
                dict(zip(("name", "value"), each.split("=", 1), strict=True)) for each in named
            ]
            _say(line.words("export"), ("spec", "env"), "the variables that it names")
    _array(line, found)


def _requeue(line: CommandLine, found: BatchAllocation) -> None:
    to: Loc = ("spec", "failurePolicy", "rules", 1)
    why = "all begins anew after a lost node or a preemption, without a limit; a command that fails is not tried again"
    found.requeue = next(
        (
            name == "requeue"
            for name, _, _ in reversed(line.options)
            if name in ("requeue", "no-requeue")
        ),
        True,
    )
    _say(line.words("requeue"), to, why)
    _say(line.words("no-requeue"), ("spec", "roles", 0, "restartPolicy"), "nothing is tried again")


def _array(line: CommandLine, found: BatchAllocation) -> None:
    array = line.last("array")
    if array is None:
        return
    span = re.match(r"^0-(\d+)$", array)
    if span and found.tasks == 1:
        found.array = int(span[1]) + 1
        why = "an instance for each element; others go on where one fails, and the job fails in the end"
        _say(line.words("array"), ("spec", "roles", 0, "replicas"), why)
    elif "%" in array:
        line.refuse("all instances run at once: no limit of elements that run at a time", "array")
    elif found.tasks > 1:
        line.refuse("each element is a job of several tasks: make a job for each", "array")
    else:
        line.refuse("instances are numbered from 0 without gaps", "array")
