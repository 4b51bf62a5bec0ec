"""A Slurm cluster on this machine for tests: munged, slurmctld and several slurmd, which die with the tests.

Any user can run it. Nothing of the machine's own configuration of Slurm or munge is used.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from airflow_training.agent.proc import die_with_parent
from tests.ports import free_port
from tests.waiting import wait_until

NEEDED = ("munged", "munge", "slurmctld", "slurmd", "sbatch", "squeue", "srun")
SEARCH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
_CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SlurmdParameters=config_overrides
SlurmctldParameters=enable_configless
ReturnToService=2
MpiDefault=none
SlurmdTimeout=10
KillWait=5
MinJobAge=20
InactiveLimit=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
"""


_TOKENS = """\
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
"""

_GUARD = """
import os, signal, sys
from airflow_training.agent.proc import arguments_of, kill_exactly, marked_processes, parent_of, start_time
sys.stdin.read()
marked = marked_processes(["SLURM_CONF=" + sys.argv[1]])
# what Slurm keeps steps by shows no environment
above = {parent_of(pid) for pid in marked} - {None}
marked |= {pid: start_time(pid) for pid in above if b"slurmstepd" in arguments_of(pid, "cmdline")[0]}
for pid, start in marked.items():
    kill_exactly(pid, start, signal.SIGKILL)
"""
"""Kills what runs in the cluster once nobody holds its standard input any more."""


def missing() -> str:
    """Return why there can be no cluster here; "" where there can be one."""
    absent = [name for name in NEEDED if shutil.which(name, path=SEARCH) is None]
    return f"Slurm is not installed: no {', '.join(absent)}" if absent else ""


@dataclass
class Lab:
    """A running cluster."""

    folder: Path
    nodes: int = 3
    cpus: int = 8
    spool: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="slurm-spool-")))
    """Scripts of jobs lie here, which their users read."""
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _guard: subprocess.Popen[bytes] | None = None

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def tokens(self) -> bool:
        """Return whether users can be known by tokens: a package of its own."""
        return any(Path("/usr/lib").glob("*/slurm-wlm/auth_jwt.so"))

    @property
    def env(self) -> Mapping[str, str]:
        """Return the environment in which Slurm's commands find it."""
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": SEARCH}

    def start(self) -> None:
        """Return once all nodes are idle."""
        (self.folder / "state").mkdir(parents=True)
        self.spool.chmod(0o755)
        # steps outlive the daemons, and would outlive tests that are killed
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(self.conf)], stdin=subprocess.PIPE
        )
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        ports = [free_port() for _ in range(self.nodes + 1)]
        host = socket.gethostname().partition(".")[0]
        text = _CONF.format(
            host=host,
            controller_port=ports[0],
            user=getpass.getuser(),
            folder=self.folder,
            spool=self.spool,
        )
        for number, port in enumerate(ports[1:], start=1):
            text += (
                f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
                f" CPUs={self.cpus} RealMemory=8000\n"
            )
        text += f"PartitionName=main Nodes=n[1-{self.nodes}] Default=YES MaxTime=INFINITE State=UP PriorityTier=10\n"
        text += (
            f"PartitionName=spare Nodes=n{self.nodes} MaxTime=INFINITE State=UP PriorityTier=1\n"
        )
        text += (
            f"PartitionName=urgent Nodes=n{self.nodes} MaxTime=INFINITE State=UP PriorityTier=100\n"
        )
        if self.tokens:
            key = self.folder / "jwt.key"
            key.write_bytes(secrets.token_bytes(32))
            key.chmod(0o600)
            text += _TOKENS.format(folder=self.folder)
        text += "PartitionName=short Nodes=n1 MaxTime=1 State=UP PriorityTier=10\n"
        self.conf.write_text(text)
        files = {
            f"--{name}-file": self.folder / f"munge.{name}"
            for name in ("key", "pid", "log", "seed")
        }
        self._start(
            "munged",
            ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.sock",
             *(f"{option}={path}" for option, path in files.items())],
        )  # fmt: skip
        wait_until((self.folder / "munge.sock").exists, alive=lambda: self._lives("munged"))
        self.start_controller()
        for number in range(1, self.nodes + 1):
            self.start_node(f"n{number}")
        wait_until(self._all_idle, "all nodes are idle", seen=self._sinfo)

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        wait_until(lambda: "UP" in self.run(["scontrol", "ping"], check=False))

    def start_rest(self, address: str) -> None:
        """Serve the API at `unix:PATH` or `HOST:PORT`; returns once it is there."""
        # all others want slurmdbd
        version = self.run(["slurmrestd", "-V"]).split()[-1]
        plugin = "openapi/v0.0.38" if version < "23" else "openapi/slurmctld"
        words = ["slurmrestd", "-f", str(self.conf), "-s", plugin, address]
        # it serves no user who runs clusters, unless it is told to
        env = {"SLURMRESTD_SECURITY": "disable_user_check"}
        kind, _, place = address.rpartition(":")
        there: Callable[[], bool] = Path(place).exists
        if kind != "unix":
            there = partial(_listens, int(place))
            env["SLURM_JWT"] = "daemon"  # it hands on the tokens that it is sent
        name = f"slurmrestd-{kind}"
        self._start(name, words, **env)
        wait_until(there, alive=lambda: self._lives(name))

    def start_node(self, name: str) -> None:
        self._start(name, ["slurmd", "-D", "-f", str(self.conf), "-N", name])

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a daemon: `slurmctld`, or the name of a node for its slurmd."""
        daemon = self._daemons.pop(name)
        daemon.send_signal(number)
        daemon.wait()

    def stop(self) -> None:
        """End all jobs, then all daemons."""
        with contextlib.suppress(Exception):
            self.run(["scancel", "--signal=KILL", f"--user={os.getuid()}"], check=False)
            self.run(["scancel", f"--user={os.getuid()}"], check=False)
        for name in reversed(list(self._daemons)):
            self.kill(name)
        if self._guard is not None:
            self._guard.communicate()
        shutil.rmtree(self.spool, ignore_errors=True)

    def run(self, words: Sequence[str], *, check: bool = True) -> str:
        """Return what a command of Slurm prints."""
        done = subprocess.run(
            list(words), env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{words}: {done.stderr}")
        return done.stdout

    def jobs(self, run: str = "") -> list[str]:
        """Return ids of jobs that wait or run, those of one run where its uid is given."""
        listed = self.run(["squeue", "--array", "--noheader", "--format=%i|%j"]).split()
        return [line.partition("|")[0] for line in listed if run in line]

    def requests(self) -> int:
        """Return how many requests of squeue, sbatch and others the controller has had so far."""
        stats = self.run(["sdiag"])
        counts = re.findall(r"^\s*REQUEST_\w+\s*\(\s*\d+\)\s*count:(\d+)", stats, re.M)
        return sum(map(int, counts))

    def _start(self, name: str, words: Sequence[str], **more: str) -> None:
        program = shutil.which(words[0], path=SEARCH)
        assert program is not None
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [program, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**self.env, "SLURM_NODENAME": name, **more},
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no other thread of the tests starts one
            )

    def _lives(self, name: str) -> bool:
        return self._daemons[name].poll() is None

    def _sinfo(self) -> str:
        return self.run(["sinfo", "--noheader", "--Node", "--format=%N %T"], check=False)

    def _all_idle(self) -> bool:
        states = [line.split()[-1] for line in self._sinfo().splitlines()]
        return len(states) >= self.nodes and set(states) == {"idle"}


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def put_counted_commands(folder: Path) -> tuple[str, Path]:
    """Return a PATH of Slurm's commands, and a file that gets a line with the time for each that is run."""
    asked, own = folder / "asked", folder / "bin"
    own.mkdir()
    for name in ("squeue", "sbatch", "scancel", "scontrol", "sinfo", "sacct"):
        program = shutil.which(name, path=SEARCH)
        script = own / name
        script.write_text(f"#!/bin/sh\ndate +%s.%N >>'{asked}'\nexec {program} \"$@\"\n")
        script.chmod(0o755)
    return f"{own}:{SEARCH}", asked


@contextlib.contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Yield a cluster; its commands are found while the block lasts."""
    lab = Lab(folder)
    before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}
    try:
        lab.start()
        os.environ.update(SLURM_CONF=str(lab.conf), PATH=SEARCH)
        yield lab
    finally:
        lab.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
