"""An attempt on this machine: orders and records are files in its folder.

Everything is driven by one `poll`: signals arrive through a pipe, orders through a socket (and,
should a packet be lost, through a look at the folder every few seconds).
"""

from __future__ import annotations

import os
import time

from airflow_training.agent import limits, proc, waiting_agent
from airflow_training.agent.attempt import Attempt
from airflow_training.agent.control import ControlSocket
from airflow_training.agent.files import AttemptFolder, read_json, write_files, write_json
from airflow_training.agent.notify import notify
from airflow_training.agent.order import Order
from airflow_training.agent.probe import Probe, run_probe

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from typing_extensions import Unpack  # of `typing` from 3.11 on

    from airflow_training.agent.environment import RecordDetails, Recorder

__all__ = ["RECORD_SECONDS", "LocalAttempt"]

_LOOK_SECONDS = 5.0
_HELD_LOOK_SECONDS = 1.0
_WRITE_AGAIN_SECONDS = 1.0
"""When to try again what a full disk did not take."""
_FIRST_RECORD_SECONDS = 1.0
"""After the start, of what it has around it: a short command pays for one record only."""
_SECOND_RECORD_SECONDS = 2.0
RECORD_SECONDS = 10.0
"""How often at least an agent writes while its command runs."""


def _exit_of(end: dict[str, Any]) -> dict[str, Any]:
    return {name: end[name] for name in ("exit_code", "signal", "reason")}


class LocalAttempt(Attempt):
    """An attempt in a folder; made after the lock was taken."""

    def __init__(self, folder: AttemptFolder, order: Order) -> None:
        super().__init__(
            order,
            environment=order.env,
            log=os.open(folder.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
            limit=limits.MemoryLimit(
                order.memory_bytes, name=order.uid, parent=limits.own_cgroup()
            ),
        )
        self._folder = folder
        self._me = proc.process_identity(os.getpid())
        self._since = time.time()
        self._recorder: Recorder | None = None
        self._probe_counts = [0, 0]
        self._ready = False
        self._end: dict[str, Any] | None = None
        self._next: AttemptFolder | None = None
        self._control = ControlSocket(
            folder.socket,
            loop=self._loop,
            look=self._poll,
            environment=self._environment,
            working_dir=str(folder.path) if order.container else order.working_dir,
            container=order.container,
        )

    def _kept_output(self) -> str:
        return self._order.output_dir

    def run(self, *, recorded: Callable[[], None]) -> AttemptFolder | None:
        """Live through the attempt; return the one to go on as, or None.

        `recorded` is called once the agent can be found.
        """
        self._write_state()  # an agent that cannot be found must not go on
        recorded()
        self._watch_deadline()
        write_files(self._order.files, below=self._folder.path)
        if self._limit.warning:
            self._say(self._limit.warning)
        self._live()
        self._control.close(self._folder.socket)
        os.close(self._log)
        return self._next

    # what others see -----------------------------------------------------------------------------
    def _record(self, phase: str | None = None) -> None:
        if phase is not None and phase != self._phase:
            self._phase, self._since = phase, time.time()
            if self._recorder is not None:
                self._record_environment("change")
        if self._folder.deleted:  # it is not brought back
            return
        try:
            self._write_state()
        except OSError:  # no reason to end a training
            self._loop.after(_WRITE_AGAIN_SECONDS, "record", self._record)

    def _write_state(self) -> None:
        write_json(
            self._folder.state,
            {
                "uid": self._order.uid,
                "generation": self._order.generation,
                "agent": self._me,
                "phase": self._phase,
                "since": self._since,
                "started_at": self._started_at,
                "child": {"pid": self._child, "start_time": self._child_start},
                "ready": self._ready,
                "reason": self._stop_reason,
                "message": self._message,
            },
        )
        self._notify()

    def _notify(self) -> None:
        notify(self._folder.watchers, self._folder.instance.name)

    # orders --------------------------------------------------------------------------------------
    def _poll(self) -> None:
        """Follow what lies in the folder: delete, release, the run's tombstone."""
        short = self._phase == "held" or (self._waiting and not self._staying)
        self._loop.after(_HELD_LOOK_SECONDS if short else _LOOK_SECONDS, "look", self._poll)
        if self._folder.deleted:
            self._stop("Orphaned", "the folder of the run was deleted", grace_seconds=0)
            return
        order = read_json(self._folder.delete)
        if order is not None and order.get("uid") == self._order.uid:
            grace = float(order.get("grace_seconds", 0))
            self._dump_first(order, lambda: self._stop("Deleted", "", grace_seconds=grace))
            return
        tombstone = {} if self._staying else read_json(self._folder.tombstone)
        if tombstone and self._order.generation <= int(tombstone.get("generation", 0)):
            self._stop("Deleted", "", grace_seconds=self._order.grace_seconds)
            return
        told = waiting_agent.order_of(self._folder, self._order.uid)
        if told:
            self._follow(told)
        elif self._phase == "held" and not self._stop_reason:
            answer = read_json(self._folder.release)
            if answer is not None and answer.get("uid") == self._order.uid:
                self._released(answer)

    def _restart(self, order: Mapping[str, Any]) -> None:
        self._next = waiting_agent.next_attempt(self._folder, order)
        self._finished = self._next is not None
        if self._finished:
            self._tree.kill()  # what a shell has started ends with the attempt

    def _stay(self, *, seconds: float) -> None:
        super()._stay(seconds=seconds)
        waiting_agent.record_stay(self._folder)
        self._notify()

    def _released(self, answer: dict[str, Any]) -> None:
        """Write what the answer makes possible, then go."""
        if answer.get("kind") == "List":
            write_json(self._folder.path / "addresses.json", answer.get("addresses", {}))
        self._prepare()

    def _on_termination(self, number: int) -> None:  # noqa: ARG002  # only one signal ends it
        grace = self._order.grace_seconds
        self._stop("Terminated", "the agent was asked to end (SIGTERM)", grace_seconds=grace)

    def _stop(self, reason: str, message: str, *, grace_seconds: float) -> None:
        super()._stop(reason, message, grace_seconds=grace_seconds)
        self._control.hang_up()

    # the command ---------------------------------------------------------------------------------
    def _prepare(self) -> None:
        write_files(self._order.live_files, below=self._folder.path)
        super()._prepare()

    def _steps_before_command(self) -> Sequence[tuple[str, Callable[[], object]]]:
        # that of a container need not be on the machine, and is entered there
        folder = str(self._folder.path) if self._order.container else self._order.working_dir
        return (
            ("cannot set up the process", self._take_streams),
            ("cannot limit its memory", self._limit.join),
            (f"cannot enter the working directory {folder!r}", lambda: os.chdir(folder)),
        )

    def _take_streams(self) -> None:
        os.setsid()
        proc.die_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(self._log, 1)
        os.dup2(self._log, 2)

    def _command_started(self) -> None:
        document = self._order.readiness_probe
        if document:
            probe = Probe(document, ports=self._order.ports)
            self._loop.after(probe.delay_seconds, "probe", lambda: self._begin_probe(probe))
        self._ready = not document
        self._loop.after(_FIRST_RECORD_SECONDS, "environment", self._watch_environment)
        self._record("running")

    def _command_ended(self, wait_status: int) -> None:
        self._ready = False
        super()._command_ended(wait_status)

    # readiness -----------------------------------------------------------------------------------
    def _begin_probe(self, probe: Probe) -> None:
        if self._phase == "running":
            self._loop.fork(
                lambda: run_probe(
                    probe,
                    environment=self._environment,
                    log=self._log,
                    container=self._order.container,
                ),
                ended=lambda status: self._probed(probe, status),
            )

    def _probed(self, probe: Probe, wait_status: int) -> None:
        if self._status is not None:
            return
        count = self._probe_counts
        count[:] = [count[0] + 1, 0] if wait_status == 0 else [0, count[1] + 1]
        ready = self._ready
        if count[0] >= probe.successes_needed:
            ready = True
        elif count[1] >= probe.failures_allowed:
            ready = False
        if ready != self._ready:
            self._ready = ready
            self._record()
        self._loop.after(probe.period_seconds, "probe", lambda: self._begin_probe(probe))

    # what it has around it -----------------------------------------------------------------------
    def _watch_environment(self) -> None:
        """Record it now and again, for as long as the command runs."""
        first, looked = self._recorder is None, self._preparation.looked
        more: RecordDetails = {"ready": looked} if first and looked else {}
        self._record_environment("start" if first else "interval", **more)
        # the second one soon: it tells what the instance uses, and which Python answered
        self._loop.after(
            _SECOND_RECORD_SECONDS if first else RECORD_SECONDS,
            "environment",
            self._watch_environment,
        )

    def _record_environment(self, on: str, **more: Unpack[RecordDetails]) -> None:
        if self._folder.deleted:
            return
        if self._recorder is None:
            from airflow_training.agent.devices import device_watch
            from airflow_training.agent.environment import Recorder
            from airflow_training.agent.plan_use import PlanUse

            self._recorder = Recorder(
                self._folder.environment,
                progress=self._folder.progress,
                cgroup=self._limit.folder,
                own_cgroup=self._limit.folder is not None,
                devices=device_watch(self._environment, self._preparation.devices),
                plan=PlanUse(
                    self._order.command,
                    working_dir=self._order.working_dir,
                    environment=self._environment,
                    progress=self._folder.progress,
                ),
            )
        told: RecordDetails = {"phase": self._phase, **more}
        self._recorder.record(on, **told)

    # the record ----------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Write down how it ended. Nothing of the attempt lives any more."""
        if self._end is None:  # orders that come while the disk is full change nothing any more
            looked = self._preparation.looked
            self._end = {
                "uid": self._order.uid,
                "started_at": self._started_at,
                "finished_at": self._finished_at(),
                **self._result(),
                **({"readiness": looked} if looked else {}),
            }
            if self._started_at is not None:
                self._record_environment("exit", exit=_exit_of(self._end))
            self._end["in_place"] = self._may_be_followed(self._end)
            if self._end["in_place"]:
                self._preparation.ports.take()
        if not self._folder.deleted:
            try:
                write_json(self._folder.exit, self._end, durable=True)
            except OSError:  # to die without a record would be told as a failure
                self._loop.after(_WRITE_AGAIN_SECONDS, "finish", self._finish)
                return
            self._notify()
            if self._end["in_place"]:
                self._wait()
                return
        self._finished = True
