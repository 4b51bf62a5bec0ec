"""Small real trainings, one per framework, and what is needed to run, watch and kill them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from airflow_training.agent.files import read_json
from airflow_training.agent.proc import marked_processes
from tests.waiting import PATIENCE, wait_until

__all__ = ["TRAININGS", "Running", "Training"]

HERE = Path(__file__).resolve().parent
LAUNCHES = frozenset(
    (
        "mpirun",
        "paddle.distributed.launch",
        "torchrun",
        "accelerate",
        "deepspeed",
        "deepspeed.launcher.launch",
        "start.py",  # of ray
    )
)
"""Programs that start those that train, and are told of the same script."""
ENVIRONMENTS = HERE.parents[1] / ".frameworks"
"""Made by `make frameworks`: a virtual environment for each framework that ours does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    framework: str
    roles: Sequence[tuple[str, int]]
    victim: str
    """Instance whose process is killed where the test does not choose another."""
    command: Sequence[str] = ("python", "train.py")
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the job's spec."""
    program: str = ""
    """Of several programs of a framework, which one; empty: the framework's own."""
    environment: str = ""
    """The environment that it is in; empty: one of its own name, or ours."""
    script: str = ""
    """Whose script it runs; empty: its own."""

    @property
    def name(self) -> str:
        return self.program or self.framework

    @property
    def folder(self) -> Path:
        """Where its programs lie."""
        own = ENVIRONMENTS / (self.environment or self.name) / "bin"
        return own if own.exists() else Path(sys.executable).parent

    @property
    def together(self) -> bool:
        """Whether the loss of one restarts all."""
        return self.framework not in ("custom", "ray", "tensorflow")

    @property
    def instances(self) -> list[str]:
        return [f"{role}-{index}" for role, size in self.roles for index in range(size)]

    def document(self) -> dict[str, Any]:
        command = [str(self.folder / "python") if w == "python" else w for w in self.command]
        roles: list[dict[str, Any]] = [{"name": n, "replicas": size} for n, size in self.roles]
        spec: dict[str, Any] = {
            "framework": self.framework,
            "command": command,
            "env": {
                "OMP_NUM_THREADS": "1",
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "PATH": f"{self.folder}:{os.environ['PATH']}",
            },
            "roles": roles,
            "output": {"uri": "out"},
            "restart": {"maxRestarts": 9, "backoff": {"initialSeconds": 0.1, "factor": 1}},
            **self.more,
        }
        spec["env"] = [{"name": name, "value": value} for name, value in spec["env"].items()]
        return {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name},
            "spec": spec,
        }

    def write(self, folder: Path) -> Path:
        """Put script and job into a folder; return the job's path."""
        shutil.copy(HERE / "gate.py", folder)
        if self.name == "mpi":
            source, program = str(HERE / "train_mpi.c"), str(folder / "train")
            subprocess.run(["mpicc", source, "-o", program], check=True)
        else:
            shutil.copy(HERE / f"train_{self.script or self.name}.py", folder / "train.py")
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(self.document()))
        return path


PAGE = HERE.parents[1] / "docs" / "launchers.md"


def of_docs(program: str, *, environment: str = "", script: str = "") -> Training:
    """Return the training of a job of the page of launchers, as a reader would copy it."""
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"^# {program}\.yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    spec = yaml.safe_load(block)["spec"]
    return Training(
        program=program,
        framework=spec["framework"],
        roles=[(role["name"], role.get("replicas", 1)) for role in spec["roles"]],
        victim="worker-0",
        command=spec["command"],
        environment=environment,
        script=script,
    )


TRAININGS = {
    each.name: each
    for each in (
        Training(framework="pytorch", roles=[("master", 1), ("worker", 2)], victim="worker-1"),
        Training(
            framework="xgboost",
            roles=[("master", 1), ("worker", 1)],
            victim="worker-0",
        ),
        Training(framework="lightgbm", roles=[("master", 1), ("worker", 1)], victim="worker-0"),
        Training(
            framework="mpi",
            roles=[("launcher", 1), ("worker", 2)],
            victim="worker-1",
            command=("mpirun", "-n", "2", "./train"),
        ),
        Training(
            framework="mpi",
            program="mpich",
            roles=[("launcher", 1), ("worker", 2)],
            victim="worker-1",
            command=("mpirun", "-n", "2", "python", "train.py"),
            more={"parameters": {"implementation": "MPICH"}},
            script="mpi4py",
        ),
        Training(
            framework="custom",
            roles=[("hub", 1), ("peer", 2)],
            victim="hub-0",
            more={"env": {"HUB": "{{ address('hub', 0) }}"}},
        ),
        Training(
            framework="tensorflow",
            roles=[("chief", 1), ("worker", 2)],
            victim="worker-1",
        ),
        Training(
            framework="paddle",
            roles=[("worker", 2)],
            victim="worker-1",
            command=("python", "-m", "paddle.distributed.launch", "train.py"),
        ),
        Training(framework="jax", roles=[("worker", 2)], victim="worker-1"),
        Training(
            framework="ray",
            roles=[("head", 1), ("worker", 2)],
            victim="worker-1",
            more={
                "parameters": {"headOptions": ["--num-cpus=0"]},
                "resources": {"requests": {"cpu": "500m"}},
            },
        ),
        of_docs("torchrun", script="pytorch"),
        of_docs("accelerate"),
        of_docs("lightning"),
        of_docs("huggingface"),
        of_docs("deepspeed", environment="launchers"),
    )
}


@dataclass(kw_only=True)
class Running:
    """One run from the command line, in a folder of its own."""

    training: Training
    folder: Path
    home: Path
    controller: subprocess.Popen[bytes] | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    """What `run` printed at its end."""
    killed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Attempts that do not count as running any more, by instance, or all of them under ""."""

    def start(self) -> None:
        """Start `run`, or take up the run whose controller was killed."""
        words = ["run", "job.yaml", "--run-id", "r", "--output", "json"]
        code = "from airflow_training.cli.main import main; main()"
        with (
            (self.folder / "run.out").open("wb") as out,
            (self.folder / "run.err").open("ab") as err,
        ):
            self.controller = subprocess.Popen(
                [sys.executable, "-c", code, *words],
                cwd=self.folder,
                env={**os.environ, "AIRFLOW_HOME": str(self.home)},
                stdout=out,
                stderr=err,
            )

    def wait(self) -> int:
        """Return the exit code of `run`."""
        assert self.controller is not None
        code = self.controller.wait(timeout=2 * PATIENCE)
        self.status = json.loads((self.folder / "run.out").read_text() or "{}")
        return code

    # what there is -----------------------------------------------------------------------------
    def attempts(self, instance: str) -> list[Path]:
        return sorted(self.home.glob(f"training/*/{instance}/attempt-*"), key=_numbers)

    def log(self, instance: str) -> str:
        logs = [each / "log" for each in self.attempts(instance)]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def said(self) -> str:
        """Return everything, for the message of a failed assertion."""
        logs = "".join(f"--- {i}\n{self.log(i)}" for i in self.training.instances)
        return f"{(self.folder / 'run.err').read_text()}\n{self.status}\n{logs}"

    def alive(self) -> list[int]:
        """Return the processes of the run's instances, agents apart."""
        found: set[int] = set()
        for spec in self.home.glob("training/*/*/attempt-*/.agent/spec.json"):
            uid = (read_json(spec) or {}).get("uid", "")
            found |= set(marked_processes([f"TRAINING_INSTANCE_UID={uid}"]))
        return sorted(found)

    def until(self, holds: Callable[[], object]) -> None:
        """Return once it holds; fails where `run` has ended before."""
        wait_until(
            holds,
            alive=lambda: self.controller is None or self.controller.poll() is None,
            seen=self.said,
            patience=2 * PATIENCE,  # to train as far may be long
        )

    def trains(self) -> bool:
        """Return whether the first checkpoint past the gate's step is there."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "checkpoint").read_text().split()[0]) >= 4  # gate.WAITS_AT
        return False

    # what is killed ------------------------------------------------------------------------------
    def is_whole(self) -> bool:
        """Return whether every instance runs, in an attempt that was not killed yet."""
        return all(self._runs(name) for name in self.training.instances)

    def _runs(self, instance: str) -> bool:
        attempts = self.attempts(instance)
        if not attempts or (attempts[-1] / ".agent" / "exit.json").exists():
            return False
        state = read_json(attempts[-1] / ".agent" / "state.json") or {}
        numbers = _numbers(attempts[-1])
        return state.get("phase") == "running" and numbers > self.killed.get(
            "" if self.training.together else instance, (-1, -1, -1)
        )

    def kill(self, instance: str, what: str) -> int:
        """Kill what belongs to an instance; return how many restarts that costs."""
        state = self._state(instance)
        agent, child = state["agent"]["pid"], state["child"]["pid"]
        numbers = _numbers(self.attempts(instance)[-1])
        if self.training.together:  # then all of them go on to the next job attempt
            self.killed[""] = (*numbers[:2], 1 << 30)
        else:
            self.killed[instance] = numbers
        tree = self._tree(state["uid"])
        trains = [pid for pid in tree if _trains(pid)]
        pids = {"process": [*trains[:1], child][:1], "agent": [agent], "tree": [agent, *tree]}
        for pid in pids[what]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return 1

    def kill_controller(self) -> None:
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def let_pass(self, seconds: float) -> None:
        """Let a random moment pass: nothing in particular is waited for."""
        time.sleep(seconds)

    @staticmethod
    def _tree(uid: str) -> list[int]:
        return sorted(marked_processes([f"TRAINING_INSTANCE_UID={uid}"]))

    def _state(self, instance: str) -> dict[str, Any]:
        state = read_json(self.attempts(instance)[-1] / ".agent" / "state.json")
        assert state is not None
        return state


def _numbers(attempt: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in attempt.name.removeprefix("attempt-").split("."))


def _trains(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    launches = LAUNCHES & {Path(word).name for word in words}
    return not launches and not {"train.py", "./train"}.isdisjoint(words)


@contextlib.contextmanager
def running(training: Training, folder: Path, *, closed: bool = True) -> Iterator[Running]:
    """Start a training; whatever happens, nothing of it is alive afterwards.

    `closed`: it stays at the gate until the file `closed` is deleted.
    """
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    home.mkdir()
    training.write(work)
    if closed:
        (work / "closed").touch()
    run = Running(training=training, folder=work, home=home)
    run.start()
    try:
        yield run
    finally:
        if run.controller is not None and run.controller.poll() is None:
            run.controller.kill()
            run.controller.wait()
        for state in home.glob("training/*/*/attempt-*/.agent/state.json"):
            agent = (read_json(state) or {}).get("agent", {})
            with contextlib.suppress(ProcessLookupError, KeyError):
                os.kill(agent["pid"], signal.SIGKILL)
        for pid in run.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
