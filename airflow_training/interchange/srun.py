"""Options of `srun`: how many tasks a step has, and what is told to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from airflow_training.interchange.launch import OPEN
from airflow_training.interchange.options import Argument, OptionSet, read_options
from airflow_training.interchange.sbatch_options import SBATCH, BatchAllocation, read_allocation

__all__ = ["SRUN", "StepSize", "step_size"]

SRUN = OptionSet(
    program="srun",
    values=SBATCH.values
    | frozenset(
        ["accel-bind", "cpu-bind", "het-group", "jobid", "job-id", "max-threads", "mpi", "relative", "slurmd-debug", "task-epilog", "task-prolog", "threads", "unbuffered-to", "epilog", "prolog", "wait", "mem-bind", "container-image", "container-mounts", "container-workdir", "container-name", "container-writable"]
    ),
    flags=(SBATCH.flags - {"wait"})
    | frozenset(["label", "unbuffered", "disable-status", "exact", "overlap", "preserve-env", "pty",
            "bcast",
            "kill-on-bad-exit", "multi-prog", "interactive", "immediate", "no-allocate"])
    | frozenset(["no-container-mount-home", "container-mount-home", "container-remap-root", "no-container-remap-root", "container-writable"]),
    prefixes=("container-",),
    short={**SBATCH.short, "l": "label", "u": "unbuffered", "X": "disable-status", "K": "kill-on-bad-exit", "r": "relative",
           "T": "threads", "E": "preserve-env", "W": "wait", "I": "immediate"},
)  # fmt: skip
_DROPPED = {
    "label": "every line of a log is of one instance",
    "unbuffered": "output is written as it comes",
    "disable-status": "says what Ctrl-C does to srun",
    "exact": "an instance has what it asks for",
    "overlap": "an instance has what it asks for",
    "exclusive": "an instance has what it asks for",
    "oversubscribe": "an instance has what it asks for",
    "cpu-bind": "pins processes to processors: how fast, not what",
    "mem-bind": "pins processes to memory: how fast, not what",
    "accel-bind": "pins processes to devices nearby: how fast, not what",
    "distribution": "says which task is on which node: how fast, not what",
    "hint": "pins processes to processors: how fast, not what",
    "threads": "says how srun starts tasks",
    "jobid": "the step is of this job",
    "job-id": "the step is of this job",
    "job-name": "steps are roles here",
    "kill-on-bad-exit": "the first instance that fails ends the job",
    "wait": "the first instance that fails ends the job, all others are waited for",
    "preserve-env": "instances have the environment that the document says",
    "output": "every instance has a log of its own",
    "error": "every instance has a log of its own",
    "open-mode": "says how a log file is opened",
    "quiet": "says what srun prints",
    "verbose": "says what srun prints",
    "pty": "no terminal is needed",
    "immediate": "a step has its nodes already",
    "overcommit": "an instance has the processors that it asks for",
}
_REFUSED = {
    "het-group": "roles of several sizes come of several srun lines, not of components",
    "multi-prog": "each task runs another program: write a srun line for each",
    "relative": "which nodes a step is on is not chosen",
    "nodelist": "which nodes a step is on is not chosen",
    "exclude": "which nodes a step is on is not chosen",
    "bcast": "copies the program to the nodes",
    "epilog": "runs something else beside each step",
    "prolog": "runs something else beside each step",
    "task-epilog": "runs something else beside each task",
    "task-prolog": "runs something else beside each task",
    "time": "a step has no deadline of its own, the job has: #SBATCH --time",
}
_SIZES = [
    "ntasks",
    "nodes",
    "ntasks-per-node",
    "cpus-per-task",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "ntasks-per-gpu",
    "tres-per-task",
]
_MPI = "ranks by PMI are started by srun: mpirun in its place makes a job of mpi"


@dataclass(slots=True)
class StepSize:
    """What a step is: so many tasks of a command."""

    tasks: int
    tasks_per_node: int
    words: Sequence[Argument]
    env: dict[str, str] = field(default_factory=dict)
    directory: str = ""
    ends_all: bool = False
    """The first task that fails ends the others."""


def step_size(
    words: Sequence[Argument], allocation: BatchAllocation, known: OptionSet
) -> tuple[StepSize, BatchAllocation]:
    """Return the size of a step, and what it asks for; what its options do not say is the allocation's."""
    line = read_options(words[1:], known)
    words[0].source.translate(
        ("spec", "roles", 0, "replicas"),
        "each task is an instance, which starts the command itself",
    )
    sizes = read_options(
        [word for name, _, part in line.options if name in _SIZES for word in part], SBATCH
    )
    own = read_allocation(sizes, allocation)
    gpus = allocation.gpus_per_node or 0
    inherited = own.gpus_per_node == allocation.gpus_per_node
    if inherited and gpus % allocation.tasks_per_node == 0 and gpus % own.tasks_per_node:
        words[0].source.refuse(
            f"{own.tasks_per_node} tasks share the {gpus} GPUs of a node; here each instance has GPUs of its own"
        )
    given = replace(
        allocation,
        cpus=own.cpus or allocation.cpus,
        gpus_per_node=own.gpus_per_node,
        memory=own.memory or allocation.memory,
    )
    found = StepSize(own.tasks, own.tasks_per_node, line.rest)
    for name, value, part in line.options:
        if name in _SIZES:
            continue
        found.ends_all = found.ends_all or (name == "kill-on-bad-exit" and value != "0")
        for word in part:
            if name in _DROPPED:
                word.source.drop(_DROPPED[name])
            elif name == "mpi" and value == "none":
                word.source.drop("no MPI")
            elif name == "mpi":
                word.source.refuse(_MPI)
            elif name == "chdir" and OPEN in value:
                word.source.refuse(
                    "the folder is known only when it runs: a script changes into it"
                )
            elif name == "chdir":
                found.directory = value
                word.source.translate(("spec", "workingDir"), "its name here")
            elif name == "export":
                named = [each for each in value.split(",") if each not in ("ALL", "NONE", "NIL")]
                if all("=" in each for each in named) and not word.lacking:
                    found.env |= dict(each.split("=", 1) for each in named)
                    word.source.translate(
                        ("spec", "env"),
                        "the variables that it names; nothing is inherited from whoever submits",
                    )
                else:
                    word.source.refuse("the value is that of whoever submits: write NAME=value")
            elif name.startswith(("container", "no-container")):
                word.source.refuse(
                    "instances run on the node itself: Slurm starts no container for them here"
                )
            else:
                word.source.refuse(_REFUSED.get(name, "is nothing that a role can ask for"))
    return found, given
