"""Looks at what an instance has around it until nothing is missing, or time is up. Nothing here waits.

Disk, devices and store are asked in children, as each of them may hang; what is missing is told by
`readiness`. Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import namedtuple
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.child_calls import ChildCall
from airflow_training.agent.devices import device_plugin, devices_of
from airflow_training.agent.environment import Cgroup, free_space
from airflow_training.agent.library import python_path
from airflow_training.agent.readiness import (
    CHECKS,
    find_shortcomings,
    measured_figures,
    performed_checks,
)

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_training.agent.readiness import Shortcoming

__all__ = ["PreflightCheck", "Verdict"]

_PATIENCE_SECONDS = 15.0
"""For one answer: then the question is put again, as what it waited for may be back."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 2.0
"""Between an answer that is not good and the next question."""
_PIECE_BYTES, _MOST_WRITTEN, _WRITE_SECONDS = 4 << 20, 512 << 20, 1.0
"""Of the look at how fast a disk writes."""
_STORE_MODULE = "airflow_training.checkpoints.reachable"
_TRIAL = b"airflow-training" * 256

Verdict = namedtuple(
    "Verdict", "ready reason message seconds checks devices measured"
)  # `typing` is dear
"""`reason`: of the failure. `checks`: those that were made where it is ready, else those that failed.
`devices`: what they said, [] where nobody was asked. `measured`: check -> figures in words."""


class PreflightCheck:
    """The checks before one start."""

    def __init__(
        self,
        wanted: Mapping[str, Any],
        *,
        folder: Path,
        cgroup: Path | None,
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        """`folder`: where the instance writes. `cgroup`: its own, as for a `Recorder`. `say`: to its log."""
        self._wanted = wanted
        self._cgroup = Cgroup(cgroup)
        self._say = say
        self._questions = _questions(folder, environment, wanted)
        self._network = wanted.get("network")
        self._found: dict[str, Any] = {}
        self._lacks: list[Shortcoming] = []
        self._said: list[str] = []
        self._answered_network: Any = None
        self._asking = False
        self._pause = _FIRST_PAUSE_SECONDS
        self._begun_at = self._again_at = time.monotonic()

    @property
    def look_again_seconds(self) -> float:
        """How long to wait before the next `poll`: an answer mostly comes within milliseconds."""
        return 0.01 if time.monotonic() - self._begun_at < 1.0 else 0.1

    def poll(self) -> Verdict | None:
        """Return how it stands in the end; None while that is open: look again soon."""
        now = time.monotonic()
        late = now - self._begun_at >= self._wanted["timeout_seconds"]
        if not self._asking:
            if late:
                return self._not_ready(self._lacks, now)
            if now < self._again_at:
                return None
            self._ask()
        if not self._all_answered(late=late and not self._lacks):
            if not late:
                return None
            self.give_up()  # what the round before found says more than that this one was cut short
            return self._not_ready(self._lacks, now)
        self._asking = False
        lacks = self._lacks = find_shortcomings(self._found, self._wanted)
        if not lacks:
            return self._ready(now)
        if late or not all(each.may_pass for each in lacks):
            return self._not_ready(lacks, now)
        self._publish(lacks)
        self._again_at = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return None

    @property
    def abandoned(self) -> dict[int, int]:
        """Pid -> start time of what may not even end by SIGKILL, and need not be waited for."""
        found: dict[int, int] = {}
        for question in self._questions.values():
            found.update(question.abandoned)
        return found

    def give_up(self) -> None:
        """End what is still asked: somebody else has ended the instance."""
        for question in self._questions.values():
            question.give_up()

    # asking --------------------------------------------------------------------------------------
    def _ask(self) -> None:
        """Look at all that answers at once, and put the questions."""
        self._asking = True
        self._found = {
            "at": time.time(),
            "boot_id": proc.boot_id(),
            "pids": self._cgroup.pids(),
            "memory": self._cgroup.memory(),
            "pressure": self._cgroup.pressure(),
            **_available(),
            "failed": {},
            "unanswered": {},
        }
        for name, question in self._questions.items():
            if name == "network" and self._answered_network is not None:
                self._found[name] = self._answered_network  # who asked us then is gone
                continue
            try:
                question.put()
            except OSError as error:  # each may fail
                self._found["failed"]["node"] = error.strerror

    def _all_answered(self, *, late: bool) -> bool:
        for name, question in self._questions.items():
            answer = question.answer()
            if answer is not None:
                self._found[name] = _read(name, answer)
                if name == "network":
                    self._answered_network = self._found[name]
            elif question.waiting and (late or question.age > self._patience(name)):
                self._found["unanswered"][name] = question.age
                question.give_up()
        return not any(question.waiting for question in self._questions.values())

    def _patience(self, name: str) -> float:
        """How long one answer is waited for: measuring the network ends by itself."""
        if name == "network" and self._network is not None:
            return _PATIENCE_SECONDS + float(self._network["wait_seconds"])
        return _PATIENCE_SECONDS

    # telling -------------------------------------------------------------------------------------
    def _publish(self, lacks: list[Shortcoming]) -> None:
        """Say what is missing, and again when it is something else."""
        failing = sorted({each.check for each in lacks})
        if failing != self._said:
            self._said = failing
            limit = self._wanted["timeout_seconds"]
            self._say(f"not ready, checked again for up to {limit:g} s: {_sentence(lacks)}")

    def _ready(self, now: float) -> Verdict:
        seconds, checks = now - self._begun_at, performed_checks(self._found)
        text = f"ready after {seconds:.2f} s, checked: {', '.join(checks)}"
        unchecked = (self._found.get("store") or {}).get("unchecked")
        if unchecked:
            text += f" (not the store: {unchecked})"
        devices = self._found.get("devices") or []
        measured = measured_figures(self._found, self._wanted)
        if measured:
            text += f"; {'; '.join(f'{name}: {value}' for name, value in measured.items())}"
        return Verdict(
            ready=True,
            reason="",
            message=text,
            seconds=round(seconds, 3),
            checks=checks,
            devices=devices,
            measured=measured,
        )

    def _not_ready(self, lacks: list[Shortcoming], now: float) -> Verdict:
        seconds = now - self._begun_at
        failed = [name for name in CHECKS if any(each.check == name for each in lacks)]
        # where only the store lacks, another node would not help
        reason = "StoreNotReady" if failed == ["store"] else "EnvironmentNotReady"
        text = f"not ready after {seconds:.1f} s: {_sentence(lacks)}"
        return Verdict(
            ready=False,
            reason=reason,
            message=text,
            seconds=round(seconds, 3),
            checks=failed,
            devices=[],
            measured={},
        )


def _sentence(lacks: list[Shortcoming]) -> str:
    return "; ".join(f"{each.check}: {each.text}" for each in lacks)


# the questions -----------------------------------------------------------------------------------
def _questions(
    folder: Path, environment: Mapping[str, str], wanted: Mapping[str, Any]
) -> dict[str, ChildCall]:
    place, fast = Path(wanted.get("disk_path") or folder), bool(wanted.get("disk_bandwidth"))
    questions = {
        "disk": ChildCall(lambda: _try_disk(place, measured=fast), on_error=lambda e: {"error": e})
    }
    network = wanted.get("network")
    if network:
        from airflow_training.agent.network_trial import measure_network

        questions["network"] = ChildCall(
            lambda: measure_network(network), on_error=lambda e: {"error": e}
        )
    plugin = device_plugin(environment)
    if plugin is not None:
        questions["devices"] = ChildCall(plugin, on_error=lambda e: [{"id": "all", "error": e}])
    arguments = _store_arguments(environment)
    if arguments:
        questions["store"] = ChildCall(
            lambda: _probe_store(arguments, environment), on_error=lambda e: {"error": e}
        )
    return questions


def _read(name: str, answer: bytes) -> Any:
    if name == "devices":
        return devices_of(answer)
    try:
        return json.loads(answer)
    except ValueError:
        return {"error": "what looked at it died"}


def _available() -> dict[str, int]:
    """Return the memory that the machine has left, where it says so."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return {"available_bytes": int(rest.split()[0]) * 1024}
    except OSError:
        pass
    return {}


def _try_disk(folder: Path, *, measured: bool = False) -> dict[str, Any]:
    """Really write: a disk may have room and still take nothing. `measured`: and how fast."""
    found: dict[str, Any] = {"folder": str(folder), **free_space(folder)}
    trial = folder / f".ready.{os.getpid()}"
    try:
        descriptor = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, _TRIAL)
            os.fsync(descriptor)
            if measured:
                found["bandwidth"] = _write_speed(descriptor, found.get("free_bytes", 0))
        finally:
            os.close(descriptor)
            trial.unlink()
    except OSError as error:
        found.update(error=error.strerror, errno=error.errno)
    return found


def _write_speed(descriptor: int, free_bytes: int) -> float:
    """Return how many bytes a second reach the disk; writes for a second or two, at most a tenth of what is free."""
    piece = os.urandom(_PIECE_BYTES)  # what repeats may be packed on the way
    most = max(_PIECE_BYTES, min(_MOST_WRITTEN, free_bytes // 10))
    written, begun = 0, time.monotonic()
    while written < most and time.monotonic() - begun < _WRITE_SECONDS:
        written += os.write(descriptor, piece)
        os.fdatasync(descriptor)
    return written / max(time.monotonic() - begun, 1e-6)


def _store_arguments(environment: Mapping[str, str]) -> list[str]:
    """Return what the look at the store is given; [] where nothing there is needed to start.

    An address that needs fsspec costs a second or more of imports. A first start restores nothing
    from there, and the library looks at it when it opens.
    """
    told = json.loads(environment.get("TRAINING_CHECKPOINT") or "{}")
    if not told:
        return []
    initial = told.get("initial")
    first = told.get("incarnation") == "0.0.0" and not initial
    if first and _needs_driver(told["root"]):
        return []
    return [told["root"], *([initial["uri"]] if initial else [])]


def _needs_driver(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file://")


def _probe_store(arguments: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return `error`, empty where it is as it should be; `unchecked` where that cannot be told here."""
    if not any(_needs_driver(uri) for uri in arguments):
        import importlib

        try:  # what is packed beside us; by name, as it is for processes of its own
            module = importlib.import_module(_STORE_MODULE)
        except (ImportError, SyntaxError, TypeError):
            return {"unchecked": "it needs Python 3.10"}
        return {"error": module.find_problem(*arguments)}
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", _STORE_MODULE, *arguments],
        env={**environment, "PYTHONPATH": python_path(environment)},
        cwd="/",  # what lies beside the script is none of its modules
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    try:
        answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"unchecked": f"{sys.executable} cannot look at it"}
    return answer
