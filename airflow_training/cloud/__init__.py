"""The switch: a script that runs here runs in the cluster by one line, or by one word of the command line.

>>> from airflow_training import cloud
>>> cloud.run(mode="local", framework="pytorch", replicas=2)

What stands before the line runs here. Where the mode is `cloud`, the line captures the program, submits it,
shows what it prints and ends this process as the run ended. Anywhere else, in the run itself, in ranks and in
workers, it returns at once. `AIRFLOW_TRAINING_MODE` goes before `mode=`.

Imports nothing that a script would notice: all else is loaded where the mode is `cloud`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

__all__ = ["CLOUD", "LOCAL", "MODE_VARIABLE", "run", "runs_in_cloud"]

MODE_VARIABLE = "AIRFLOW_TRAINING_MODE"
"""`cloud` or `local`. Every run sets it to `local` for its processes: what was sent is not sent on."""
CLOUD, LOCAL = "cloud", "local"
_RANK_VARIABLES = (
    "TRAINING_ROLE",
    "RANK",
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
)


def run(
    *,
    mode: str = LOCAL,
    framework: str = "",
    replicas: int = 1,
    resources: Mapping[str, object] | None = None,
    returns: str = "model",
    until: str = "",
    hours: float = 0,
    team: str = "",
    data: tuple[str, ...] = (),
    data_wait: float = 1.0,
    target: str = "",
    env: tuple[str, ...] = (),
    root: str = "",
    allow_secrets: tuple[str, ...] = (),
    allow_missing: tuple[str, ...] = (),
    detach: bool = False,
) -> None:
    """Run this program in the cloud and end this process as it ended there; elsewhere, do nothing.

    `resources`: of each replica, as in a job (`{"nvidia.com/gpu": 8}`). `returns`: `none`, `address`, `model`,
    `model=PATH`, or `checkpoints` and `checkpoints=PATH`, which bring it while it trains, too. `hours`: how long it may run. `data`: files and folders of this machine
    that the run may read beside those of the project and of arguments. `data_wait`: hours for which it waits for them before it is paused. `team`: who pays, where accounts are kept. `env`: variables that travel, NAME or NAME=VALUE. `root`, `allow_secrets`,
    `allow_missing`: as the options of `cloud run`. `target`: see `airflow-training cloud targets`.
    `detach`: print the run and end with 0. Mistakes are printed, and end the process with 2.
    """
    if not runs_in_cloud(mode, os.environ, sys.modules):
        return
    from airflow_training.cloud.program import run_program

    sys.exit(
        run_program(
            framework=framework,
            replicas=replicas,
            resources={} if resources is None else resources,
            returns=returns,
            until=until,
            hours=hours,
            team=team,
            data=data,
            data_wait=data_wait,
            target=target,
            env=env,
            root=root,
            allow_secrets=allow_secrets,
            allow_missing=allow_missing,
            detach=detach,
        )
    )


def runs_in_cloud(mode: str, environ: Mapping[str, str], modules: Container[str]) -> bool:
    """Whether a program with the line is to be sent away: never from a rank, or from a worker of one.

    `modules`: of this process; in a worker that was spawned one is called `__mp_main__`.
    """
    wanted = environ.get(MODE_VARIABLE) or mode
    if wanted != CLOUD:
        return False
    return "__mp_main__" not in modules and not any(each in environ for each in _RANK_VARIABLES)
