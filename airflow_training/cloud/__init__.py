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

    from airflow_training.interception.hook import LoadWatch

__all__ = ["CLOUD", "LOCAL", "MODE_VARIABLE", "run", "runs_in_cloud"]

MODE_VARIABLE = "AIRFLOW_TRAINING_MODE"
"""`cloud` or `local`. Every run sets it to `local` for its processes: what was sent is not sent on."""
CLOUD, LOCAL = "cloud", "local"
_LOADS = "TRAINING_LOADS_FILE"
"""Where a hook in this process says what it opens; see docs/data-on-demand.md."""
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
    whole: bool = False,
    bill: bool = False,
) -> None:
    """Run this program in the cloud and end this process as it ended there; elsewhere, do nothing.

    `resources`: of each replica, as in a job (`{"nvidia.com/gpu": 8}`). `returns`: `none`, `address`, `model`,
    `model=PATH`, or `checkpoints` and `checkpoints=PATH`, which bring it while it trains, too. `hours`: how long it may run. `data`: files and folders of this machine
    that the run may read beside those of the project and of arguments. `data_wait`: hours for which it waits for them before it is paused. `team`: who pays, where accounts are kept. `env`: variables that travel, NAME or NAME=VALUE. `root`, `allow_secrets`,
    `allow_missing`: as the options of `cloud run`. `target`: see `airflow-training cloud targets`.
    `detach`: print the run and end with 0. `whole`: ask nothing first, and send all in one request. `bill`: say what it has cost, once it is over. Mistakes are printed, and end the process with 2.
    """
    if _watch is not None:
        _watch.end_telling()  # what follows is our own business, or is not sent at all
    if not runs_in_cloud(mode, os.environ, sys.modules):
        return
    from airflow_training.cloud.options import RunOptions
    from airflow_training.cloud.program import run_program

    options = RunOptions(
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
        whole=whole,
        bill=bill,
        loads=os.environ.get(_LOADS, "") if _watch is None else _watch.loads_file,
    )
    sys.exit(run_program(options))


def runs_in_cloud(mode: str, environ: Mapping[str, str], modules: Container[str]) -> bool:
    """Whether a program with the line is to be sent away: never from a rank, or from a worker of one.

    `modules`: of this process; in a worker that was spawned one is called `__mp_main__`.
    """
    wanted = environ.get(MODE_VARIABLE) or mode
    if wanted != CLOUD:
        return False
    return "__mp_main__" not in modules and not any(each in environ for each in _RANK_VARIABLES)


def _watch_loads() -> LoadWatch | None:
    """Have this program say what it opens until the line, where it is to be sent away.

    Whether it is, the line itself says too late: the variable, or the text of the script, tells it now.
    """
    main = sys.modules.get("__main__")
    if os.environ.get(_LOADS) or "airflow_training.cli" in sys.modules or _is_ours(main):
        return None
    if not runs_in_cloud(_spelled_mode(main), os.environ, sys.modules):
        return None
    import atexit
    import contextlib
    import tempfile

    from airflow_training.interception.hook import install
    from airflow_training.interception.protocol import hook_environment

    try:
        descriptor, path = tempfile.mkstemp(prefix="airflow-training-loads-")
    except OSError:  # nowhere to write: what the line captures by itself is sent
        return None
    os.close(descriptor)
    pid = os.getpid()

    def remove() -> None:
        if os.getpid() == pid:  # no worker that was forked
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108  # pathlib takes time, here at the end

    atexit.register(remove)
    return install(hook_environment(loads_file=path))


def _is_ours(main: object) -> bool:
    """Whether this is a process of our own, as a service that a script has started."""
    spec = getattr(main, "__spec__", None)
    return spec is not None and spec.name.startswith("airflow_training.")


def _spelled_mode(main: object) -> str:
    """`cloud` where the script says so in its text."""
    try:
        with open(getattr(main, "__file__", None) or "", "rb") as file:  # noqa: PTH123  # pathlib takes time
            text = file.read()
    except OSError:
        return LOCAL
    return CLOUD if b'mode="cloud"' in text or b"mode='cloud'" in text else LOCAL


_watch = _watch_loads()
