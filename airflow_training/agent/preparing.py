"""Before a command starts: what it needs is there, its environment, code and data are ready, its folder is put back, its ports are free.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from airflow_training.agent.companion import Companion
from airflow_training.agent.ports import LONGEST_WAIT_SECONDS, LOOK_SECONDS, HeldPorts, in_use

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_training.agent.code_setup import CodeSetup
    from airflow_training.agent.data_fetcher import DataFetcher
    from airflow_training.agent.environment_setup import EnvironmentSetup
    from airflow_training.agent.loop import Loop
    from airflow_training.agent.order import Order
    from airflow_training.agent.preflight import PreflightCheck

__all__ = ["Preparation"]


class Preparation:
    """Prepares one start; calls either `ready` or `failed`, unless it is given up before."""

    def __init__(
        self,
        order: Order,
        *,
        loop: Loop,
        cgroup: Path | None,
        environment: Mapping[str, str],
        log: int,
        say: Callable[[str], None],
        waits: Callable[[str], None],
        activate: Callable[[str], None],
        fit: Callable[[], None],
        ready: Callable[[], None],
        failed: Callable[[str, str], None],
    ) -> None:
        """`waits` is told what the start waits for; "": for nothing any more, or not yet.

        `activate` gets the folder of the job's environment, once that is ready.
        `fit`: all is there that the attempt needs. `failed` gets reason and message.
        """
        self._order = order
        self._loop = loop
        self._cgroup = cgroup
        self._environment = environment
        self._say = say
        self._waits = waits
        self._fit = fit
        self._ready = ready
        self._failed = failed
        self._given_up = False
        self._preflight: PreflightCheck | None = None
        self.ports = HeldPorts(order.ports.values())
        self._ports_until: float | None = None
        self.environment: EnvironmentSetup | None = None
        if order.environment is not None:
            from airflow_training.agent.environment_setup import EnvironmentSetup

            self.environment = EnvironmentSetup(
                order.environment, loop=loop, variables=environment, log=log, say=say
            )
        self._activate = activate
        self._setup: CodeSetup | None = None
        if order.code is not None:
            from airflow_training.agent.code_setup import CodeSetup

            self._setup = CodeSetup(
                order.code, Path(order.code_dir), loop=loop, environment=environment, log=log
            )
        self.data: DataFetcher | None = None
        if order.code is not None and environment.get("TRAINING_DATA_ON_DEMAND"):
            from airflow_training.agent.data_fetcher import DataFetcher

            folder = Path(order.code_dir)
            # attempts in one place have states of their own: what fetched for one may just be ending
            number = f"{order.epoch}.{order.job_attempt}.{order.attempt}.{time.time():.0f}"
            self.data = DataFetcher(
                folder,
                python=order.code.get("python") or "",
                state=folder.with_name(f"{folder.name}-data") / number,
                loop=loop,
                environment=environment,
                log=log,
                say=say,
            )
        self.companion: Companion | None = None
        if order.watch:
            self.companion = Companion(
                order.watch,
                loop=loop,
                environment=environment,
                working_dir=order.working_dir or str(Path.cwd()),
                log=log,
                say=say,
            )
        self.is_fit = False
        """All is there that the attempt needs."""
        self.looked: dict[str, Any] | None = None
        """How many `seconds` the look at the surroundings took, and its `checks`."""
        self.devices: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Look at the surroundings first."""
        if self._order.readiness is None:
            self._provide()
            return
        from airflow_training.agent.preflight import PreflightCheck

        self._preflight = PreflightCheck(
            self._order.readiness,
            folder=Path(self._order.progress_file).parent,
            cgroup=self._cgroup,
            environment=self._environment,
            say=self._waits,
        )
        self._waits("")
        self._check(self._preflight)

    def give_up(self) -> None:
        """Somebody else has ended the attempt."""
        self._given_up = True
        self._loop.cancel("readiness", "ports", "environment setup")
        if self._preflight is not None:
            self._preflight.give_up()

    def command_environment(self) -> dict[str, str]:
        """Of the command: packages that were installed for it go before those of its image."""
        found = dict(self._environment)
        code = self._order.code or {}
        if code.get("packages") or code.get("archive"):
            from airflow_training.agent.code_setup import packages_dirs

            installed = [str(each) for each in packages_dirs(Path(self._order.code_dir))]
            paths = [*installed, found.get("PYTHONPATH", "")]
            found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        if self.data is not None:
            variables = self.data.variables
            paths = [variables.get("PYTHONPATH", ""), found.get("PYTHONPATH", "")]
            found.update({**variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))})
        return found

    @property
    def abandoned(self) -> dict[int, int]:
        """Pid -> start time of what the kernel may never let go; nothing of the training."""
        return {} if self._preflight is None else self._preflight.abandoned

    def _check(self, preflight: PreflightCheck) -> None:
        verdict = preflight.poll()
        if verdict is None:
            again = preflight.look_again_seconds
            self._loop.after(again, "readiness", lambda: self._check(preflight))
            return
        self._say(verdict.message)
        self.looked = {"seconds": verdict.seconds, "checks": verdict.checks}
        if verdict.measured:
            self.looked["measured"] = verdict.measured
        self.devices = verdict.devices
        if verdict.ready:
            self._provide()
        else:
            self._failed(verdict.reason, verdict.message)

    def _provide(self) -> None:
        if self.environment is None:
            self._lay_out()
            return
        self._waits("")
        self.environment.start(self._provided)

    def _provided(self, reason: str, problem: str) -> None:
        if self._given_up or self.environment is None:
            return
        if problem:
            self._say(problem)
            self._failed(reason, problem)
        else:
            self._activate(self.environment.folder)
            self._lay_out()

    def _lay_out(self) -> None:
        if self._setup is None:
            self._restore()
            return
        self._waits("")
        self._setup.start(self._laid_out)

    def _laid_out(self, reason: str, problem: str) -> None:
        if self._given_up:
            return
        if problem:
            self._say(problem)
            self._failed(reason, problem)
        elif self.data is not None:
            self.data.start(self._data_laid_out)
        else:
            self._restore()

    def _data_laid_out(self, reason: str, problem: str) -> None:
        if self._given_up:
            return
        if problem:
            self._say(f"no data can be read on demand: {problem}")
            self._failed(reason, problem)
        else:
            self._restore()

    def _restore(self) -> None:
        self.is_fit = True
        self._fit()
        if self.companion is None:
            self._await_ports()
        else:
            self.companion.start(self._restored)

    def _restored(self, reason: str, problem: str) -> None:
        if self._given_up:
            return
        if problem:
            self._say(f"no checkpoint can be restored or committed: {problem}")
            self._failed(reason, problem)
        else:
            self._await_ports()

    def _await_ports(self) -> None:
        """Have the command started once its ports can be bound, or that was waited for long enough."""
        taken = self.ports.take()
        now = time.monotonic()
        if taken and (self._ports_until is None or now < self._ports_until):
            if self._ports_until is None:
                self._ports_until = now + LONGEST_WAIT_SECONDS
                self._waits(in_use(taken))
            self._loop.after(LOOK_SECONDS, "ports", self._await_ports)
            return
        self.ports.release()
        self._ready()
