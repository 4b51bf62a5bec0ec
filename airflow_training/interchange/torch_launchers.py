"""`torchrun` and `accelerate launch`."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.interchange.launch import (
    NPROC,
    RENDEZVOUS,
    REPLICAS,
    Launch,
    LaunchSite,
    begin_launch,
    lacks,
    need_program,
    refuse_default,
    translate_options,
    whole_option,
)
from airflow_training.interchange.options import Argument, CommandLine, OptionSet, read_options

__all__ = ["read_accelerate", "read_torchrun"]

_TORCHRUN = OptionSet(
    program="torchrun",
    values=frozenset(
        [
            "nnodes",
            "nproc-per-node",
            "rdzv-backend",
            "rdzv-endpoint",
            "rdzv-id",
            "rdzv-conf",
            "max-restarts",
            "node-rank",
            "master-addr",
            "master-port",
            "local-addr",
            "monitor-interval",
            "start-method",
            "role",
            "log-dir",
            "redirects",
            "tee",
            "local-ranks-filter",
            "logs-specs",
            "log-line-prefix-template",
            "numa-binding",
            "signals-to-handle",
            "event-log-handler",
        ]
    ),
    flags=frozenset(
        [
            "standalone",
            "module",
            "no-python",
            "run-path",
            "virtual-local-rank",
            "use-env",
            "duplicate-stdout-filters",
            "duplicate-stderr-filters",
        ]
    ),
    short={"m": "module", "r": "redirects", "t": "tee"},
)
_OF_TORCHRUN = ("nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts", "node-rank",
                "master-addr", "master-port", "local-addr", "standalone")  # fmt: skip


def read_torchrun(
    program: Sequence[Argument], words: Sequence[Argument], site: LaunchSite
) -> Launch:
    """Read a line of `torchrun`: the processes of an instance, and how many instances."""
    line = read_options(words, _TORCHRUN)
    found = begin_launch("pytorch", site)
    found.keep(program)
    _nodes(line, found, site)
    processes = line.last("nproc-per-node")
    if processes is not None and not processes.isdecimal() and site.gpus:
        found.parameters["nprocPerNode"] = site.gpus
        translate_options(
            line, NPROC, "a process for each GPU that an instance asks for", "nproc-per-node"
        )
    elif processes in ("auto", "gpu", "cpu"):
        line.refuse(
            "would be counted on the machine it runs on: a number says how many processes an instance has",
            "nproc-per-node",
        )
    elif processes is not None:
        found.parameters["nprocPerNode"] = whole_option(line, 1, "nproc-per-node")
        translate_options(
            line, NPROC, "torchrun reads it from PET_NPROC_PER_NODE", "nproc-per-node"
        )
    _restarts(line, found)
    _configuration(line, found)
    line.drop(
        RENDEZVOUS,
        "rdzv-endpoint",
        "rdzv-id",
        "node-rank",
        "master-addr",
        "master-port",
        "local-addr",
    )
    if line.last("standalone") is not None:
        if found.replicas > 1:
            line.refuse("each instance would train alone", "standalone")
        else:
            line.drop("one instance is a group of its own", "standalone")
    for name, _, option in line.options:
        if name not in _OF_TORCHRUN:
            found.keep(option)
    found.keep(line.rest)
    need_program(line, program)
    return found


def _nodes(line: CommandLine, found: Launch, site: LaunchSite) -> None:
    nodes = line.last("nnodes")
    found.replicas = site.nodes
    if nodes is None or lacks(line, "nnodes"):
        return
    least, colon, most = nodes.partition(":")
    if not (
        least.isdecimal()
        and int(least)
        and (not colon or (most.isdecimal() and int(most) >= int(least)))
    ):
        source = line.words("nnodes")[0].source
        message = f"must be a number, or MIN:MAX, not {nodes!r}"
        source.accounts.mistake(source.loc, "wrong_type", message)
        return
    found.replicas = int(most or least)
    if colon and int(least) < int(most):
        found.least = int(least)
        why = "minReplicas, and replicas and maxReplicas: an elastic role"
        translate_options(line, ("spec", "roles", 0, "minReplicas"), why, "nnodes")
    elif found.replicas != site.nodes and site.nodes > 1:
        line.refuse(f"torchrun waits for {found.replicas} machines; {site.nodes} run it", "nnodes")
    else:
        translate_options(line, REPLICAS, "an instance for each machine", "nnodes")


def _restarts(line: CommandLine, found: Launch) -> None:
    found.restarts = whole_option(line, 0, "max-restarts", least=0)
    translate_options(
        line,
        ("spec", "restart", "maxRestarts"),
        "the whole group starts again, as there, but in new processes of torchrun; preemptions are not limited",
        "max-restarts",
    )
    line.drop(RENDEZVOUS, "rdzv-backend")
    backend = line.last("rdzv-backend")
    if backend in ("etcd", "etcd-v2", "c10d") and found.least is not None:
        found.parameters["rendezvousBackend"] = backend
        translate_options(
            line, ("spec", "parameters", "rendezvousBackend"), "its name here", "rdzv-backend"
        )


def _configuration(line: CommandLine, found: Launch) -> None:
    text = line.last("rdzv-conf") or ""
    pairs = dict(pair.partition("=")[::2] for pair in text.split(",") if pair)
    seconds = pairs.pop("last_call_timeout", "")
    if pairs or (seconds and (not seconds.isdecimal() or found.least is None)):
        line.refuse(
            "PET_RDZV_CONF is set by the framework, which knows last_call_timeout of an elastic job only",
            "rdzv-conf",
        )
    elif seconds:
        found.parameters["lastCallSeconds"] = int(seconds)
        translate_options(
            line, ("spec", "parameters", "lastCallSeconds"), "its name here", "rdzv-conf"
        )


_ACCELERATE = OptionSet(
    program="accelerate launch",
    values=frozenset(
        [
            "num-processes",
            "num-machines",
            "machine-rank",
            "main-process-ip",
            "main-process-port",
            "rdzv-backend",
            "rdzv-conf",
            "max-restarts",
            "config-file",
            "mixed-precision",
            "num-cpu-threads-per-process",
            "gpu-ids",
            "role",
            "log-dir",
            "tee",
            "monitor-interval",
            "main-training-function",
            "zero-stage",
            "offload-optimizer-device",
            "offload-param-device",
            "gradient-accumulation-steps",
            "gradient-clipping",
            "zero3-init-flag",
            "zero3-save-16bit-model",
            "dynamo-backend",
            "dynamo-mode",
            "vm",
            "tpu-name",
            "tpu-zone",
            "tpu-env",
            "num-executors",
            "mpirun-hostfile",
            "mpirun-ccl",
            "env",
            "working-dir",
        ]
    ),
    flags=frozenset(
        [
            "multi-gpu",
            "cpu",
            "tpu",
            "ipex",
            "use-deepspeed",
            "use-fsdp",
            "use-megatron-lm",
            "use-xpu",
            "use-mps-device",
            "mps",
            "debug",
            "quiet",
            "module",
            "no-python",
            "same-network",
            "dynamo-use-fullgraph",
            "dynamo-use-dynamic",
            "dynamo-use-regional-compilation",
            "enable-cpu-affinity",
            "fp16",
            "bf16",
            "tpu-cluster",
            "tpu-use-cluster",
            "tpu-use-sudo",
            "no-tpu-cluster",
            "downcast-bf16",
            "use-parallelism-config",
            "use-fp8",
        ]
    ),
    prefixes=("fsdp-", "deepspeed-", "megatron-lm-", "parallelism-config-", "fp8-", "dynamo-"),
    short={"m": "module", "q": "quiet"},
)
_OF_ACCELERATE = ("num-processes", "num-machines", "machine-rank", "main-process-ip", "main-process-port", "rdzv-backend",
                  "rdzv-conf", "max-restarts", "same-network", "gpu-ids", "mpirun-hostfile")  # fmt: skip


def read_accelerate(
    program: Sequence[Argument], words: Sequence[Argument], site: LaunchSite
) -> Launch:
    """Read a line of `accelerate launch`, which counts the processes of all machines together."""
    line = read_options(words, _ACCELERATE)
    found = begin_launch("pytorch", site)
    machines = whole_option(line, site.nodes, "num-machines")
    found.replicas = machines
    if site.nodes > 1 and machines != site.nodes:
        line.refuse(
            f"accelerate waits for {machines} machines; {site.nodes} run it", "num-machines"
        )
    else:
        translate_options(line, REPLICAS, "an instance for each machine", "num-machines")
    found.keep(program)
    each = 0
    if (total := line.last("num-processes")) is not None:
        count = whole_option(line, machines, "num-processes")
        if count % machines:
            source = line.words("num-processes")[0].source
            message = f"{total} processes cannot be the same number on each of {machines} machines"
            source.accounts.mistake(source.loc, "conflict", message)
        each = max(1, count // machines)
        translate_options(
            line, NPROC, "of all machines together there, of an instance here", "num-processes"
        )
    elif site.gpus:
        each = site.gpus
    elif line.last("cpu") is None:
        where = (
            "is in the configuration file"
            if line.last("config-file")
            else "would be counted on the machine it runs on"
        )
        why = f"how many processes there are {where}: --num_processes says it"
        refuse_default(program, "--num_processes", why)
    if each:
        found.parameters["nprocPerNode"] = each
        found.command += ["--num_processes", str(each * machines)]
    if machines > 1:
        found.command += ["--num_machines", str(machines), "--machine_rank", "$(PET_NODE_RANK)"]
        found.command += [
            "--main_process_ip",
            "$(MASTER_ADDR)",
            "--main_process_port",
            "$(MASTER_PORT)",
        ]
    _restarts(line, found)
    line.drop(RENDEZVOUS, "machine-rank", "main-process-ip", "main-process-port", "rdzv-conf")
    line.drop("says how c10d would find the first machine", "same-network")
    line.refuse("an instance has the GPUs that it asks for", "gpu-ids")
    line.refuse("hosts of a job of mpi: give the line of mpirun", "mpirun-hostfile")
    for name, _, option in line.options:
        if name not in _OF_ACCELERATE:
            found.keep(option)
        if name == "config-file":
            why = "the file has to be where the command runs; what it says of machines and processes loses to the options"
            for word in option:
                word.source.keep((*found.to, found.command.index(word.text)), why)
    found.keep(line.rest)
    need_program(line, program)
    return found
