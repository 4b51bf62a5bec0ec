"""The `deepspeed` launcher."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from airflow_training.interchange.launch import (
    NPROC,
    RENDEZVOUS,
    REPLICAS,
    Launch,
    LaunchSite,
    begin_launch,
    need_program,
    refuse_default,
    translate_options,
    whole_option,
)
from airflow_training.interchange.options import Argument, OptionSet, read_options

__all__ = ["read_deepspeed"]

_DEEPSPEED = OptionSet(
    program="deepspeed",
    values=frozenset(
        [
            "hostfile",
            "include",
            "exclude",
            "num-nodes",
            "num-gpus",
            "min-elastic-nodes",
            "max-elastic-nodes",
            "master-port",
            "master-addr",
            "node-rank",
            "launcher",
            "launcher-args",
            "save-pid",
            "enable-each-rank-log",
            "bind-core-list",
            "ssh-port",
            "autotuning",
            "venv-script",
            "world-info",
        ]
    ),
    flags=frozenset(
        [
            "module",
            "no-python",
            "no-local-rank",
            "no-ssh",
            "no-ssh-check",
            "force-multi",
            "elastic-training",
            "bind-cores-to-rank",
        ]
    ),
    short={"H": "hostfile", "i": "include", "e": "exclude"},
)
_BY_LAUNCH = (
    "module",
    "no-python",
    "no-local-rank",
    "enable-each-rank-log",
    "bind-cores-to-rank",
    "bind-core-list",
)


def read_deepspeed(
    program: Sequence[Argument], words: Sequence[Argument], site: LaunchSite
) -> Launch:
    """Read a line of `deepspeed`: each instance runs what it would start there by ssh."""
    line = read_options(words, _DEEPSPEED)
    found = begin_launch("pytorch", site)
    found.replicas = whole_option(line, site.nodes, "num-nodes")
    translate_options(line, REPLICAS, "an instance for each machine", "num-nodes")
    gpus = whole_option(line, site.gpus or 0, "num-gpus")
    translate_options(line, NPROC, "processes of each instance", "num-gpus")
    if not gpus:
        refuse_default(
            program, "--num_gpus", "would be counted on the machine it runs on: --num_gpus says it"
        )
        gpus = 1
    if line.last("num-nodes") is None and site.nodes == 1:
        line.refuse("how many machines there are is in the file: --num_nodes says it", "hostfile")
    else:
        line.drop("the hosts are the instances", "hostfile")
    line.refuse(
        "chooses hosts and GPUs by name; an instance has the GPUs that it asks for",
        "include",
        "exclude",
    )
    line.drop(RENDEZVOUS, "master-addr", "master-port", "node-rank", "world-info")
    line.drop(
        "no instance is reached by ssh",
        "no-ssh",
        "no-ssh-check",
        "ssh-port",
        "launcher",
        "launcher-args",
        "force-multi",
    )
    line.refuse(
        "the group keeps its size: torchrun with MIN:MAX is elastic",
        "elastic-training",
        "min-elastic-nodes",
        "max-elastic-nodes",
    )
    line.refuse("starts other trainings first", "autotuning")
    line.refuse("is written, or read, by deepspeed where it is started", "save-pid", "venv-script")
    found.parameters["nprocPerNode"] = gpus
    world = {f"worker-{i}": list(range(gpus)) for i in range(found.replicas)}
    text = base64.urlsafe_b64encode(json.dumps(world).encode()).decode()
    for word in program:
        word.source.translate(
            ("spec", "command"),
            "each instance runs what deepspeed would start there by ssh: python -m deepspeed.launcher.launch, with --local_rank",
        )
    found.command += [
        "python",
        "-u",
        "-m",
        "deepspeed.launcher.launch",
        f"--world_info={text}",
        "--node_rank=$(PET_NODE_RANK)",
    ]
    found.command += ["--master_addr=$(MASTER_ADDR)", "--master_port=$(MASTER_PORT)"]
    for name, _, option in line.options:
        if name in _BY_LAUNCH:
            found.keep(option)
    found.keep(line.rest)
    need_program(line, program)
    return found
