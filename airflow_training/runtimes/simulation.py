"""What becomes of simulated instances with time: places, starts, ends, and the faults of a script."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from airflow_training.control.reasons import HANG
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.clock import Clock
from airflow_training.runtimes.faults import Behaviour, Fault, Script
from airflow_training.runtimes.port import InstanceRemoval, InstanceUpdate
from airflow_training.runtimes.simulated import ENDED, SimulatedInstance, SimulatedRun

__all__ = ["Simulation"]

_STALL_LOOK_SECONDS = 5.0


class Simulation:
    """The simulated runs, whose instances live by `clock` as `script` says; each change is told to who watches."""

    def __init__(self, *, script: Script, clock: Clock) -> None:
        self.script = script
        self.clock = clock
        self._runs: dict[str, SimulatedRun] = {}
        self._unreachable_until = float("-inf")

    def be_unreachable(self, seconds: float) -> None:
        """Answer nothing for a while; what runs goes on running."""
        self._unreachable_until = self.clock.now() + seconds
        for state in self._runs.values():
            for queue in state.watchers:
                queue.put_nowait(RuntimeUnavailable("the simulated runtime cannot be reached"))

    def _check_reachable(self) -> None:
        if self.clock.now() < self._unreachable_until:
            raise RuntimeUnavailable("the simulated runtime cannot be reached")

    def _later(
        self,
        seconds: float,
        run_uid: str,
        instance: SimulatedInstance,
        act: Callable[[SimulatedInstance], None],
    ) -> None:
        """Do something to this very object later, unless it has ended or gone by then."""

        def due() -> None:
            if self._is_there(run_uid, instance) and instance.state not in ENDED:
                act(instance)

        if seconds <= 0:
            due()
        else:
            self.clock.call_at(self.clock.now() + seconds, due)

    def _placed(self, run_uid: str, instance: SimulatedInstance) -> None:
        """Let an instance have its place, and begin there unless it is held."""
        if not instance.placed:
            instance.placed = True
            instance.reason = instance.reason if instance.held else ""
            self._emit(run_uid, InstanceUpdate(instance=instance.observe()))
        if not instance.held:
            self._start(run_uid, instance)

    def _start(self, run_uid: str, instance: SimulatedInstance) -> None:
        behaviour = self.script.behaviour(instance.key.role)
        self._later(behaviour.start_seconds, run_uid, instance, lambda i: self._running(run_uid, i))

    def _running(self, run_uid: str, instance: SimulatedInstance) -> None:
        if instance.state != "pending":
            return
        behaviour: Behaviour = self.script.behaviour(instance.key.role)
        instance.started_at = self.clock.now()
        self._limit(run_uid, instance)
        instance.ready = behaviour.ready_seconds <= 0
        self._set(run_uid, instance, state="running", reason="Started")
        if not instance.ready:
            self._later(
                behaviour.ready_seconds, run_uid, instance, lambda i: self._ready(run_uid, i)
            )
        role, index = instance.key
        attempt = instance.spec.ref.attempt
        for fault in self.script.faults:
            if fault.after is not None and fault.matches(role=role, index=index, attempt=attempt):
                self._later(
                    fault.after, run_uid, instance, partial(self._strike, run_uid, fault=fault)
                )
        if behaviour.run_seconds is not None:
            self._later(
                behaviour.run_seconds, run_uid, instance,
                lambda i: self._end(
                    run_uid, i, exit_code=behaviour.exit_code, reason=behaviour.reason
                ),
            )  # fmt: skip

    def _limit(self, run_uid: str, instance: SimulatedInstance) -> None:
        """Let an instance end itself at its own deadline."""
        seconds = instance.spec.deadline_seconds
        if seconds is None or instance.limited:
            return
        instance.limited = True
        self._later(
            seconds, run_uid, instance,
            lambda i: self._end(
                run_uid, i, exit_code=None, signal=15, reason="DeadlineExceeded",
                message=f"ran longer than {seconds:g} s",
            ),
        )  # fmt: skip

    def _ready(self, run_uid: str, instance: SimulatedInstance) -> None:
        if instance.state in ("running", "unknown"):
            instance.ready = True
        if instance.state == "running":
            self._emit(run_uid, InstanceUpdate(instance=instance.observe()))

    def _schedule_faults(self, run_uid: str, state: SimulatedRun) -> None:
        for fault in self.script.faults:
            if fault.at is not None and fault.kind != "refuse":  # asked for at each create
                assert state.prepared_at is not None  # noqa: S101  # set just before
                self.clock.call_at(
                    state.prepared_at + fault.at, partial(self._fault, run_uid, fault)
                )

    def _fault(self, run_uid: str, fault: Fault) -> None:
        if fault.kind == "unreachable":
            self.be_unreachable(fault.seconds)
            return
        for instance in list(self._runs[run_uid].instances.values()):
            role, index = instance.key
            attempt = instance.spec.ref.attempt
            if fault.matches(role=role, index=index, attempt=attempt):
                self._strike(run_uid, instance, fault=fault)

    def _strike(self, run_uid: str, instance: SimulatedInstance, *, fault: Fault) -> None:
        if fault.kind == "delete":
            self._forget(run_uid, instance)
        elif fault.kind == "lose":
            self._lose(run_uid, instance, seconds=fault.seconds)
        elif fault.kind == "stall":
            self._stall(run_uid, instance, seconds=fault.seconds)
        elif instance.state not in ENDED:
            signal = fault.signal
            if signal is None and fault.exit_code is None:
                signal = 9  # what a kill without further words is
            instance.disrupted = fault.disrupted
            self._end(
                run_uid, instance, exit_code=fault.exit_code, signal=signal, reason=fault.reason,
                message=fault.message,
            )  # fmt: skip

    def _lose(self, run_uid: str, instance: SimulatedInstance, *, seconds: float) -> None:
        if instance.state in (*ENDED, "unknown"):
            return
        before, reason = instance.state, instance.reason
        self._set(run_uid, instance, state="unknown", reason="NodeLost")

        def found_again(same: SimulatedInstance) -> None:
            if same.state == "unknown":
                self._set(run_uid, same, state=before, reason=reason)

        self._later(seconds, run_uid, instance, found_again)

    def _stall(self, run_uid: str, instance: SimulatedInstance, *, seconds: float) -> None:
        """Let an instance hang after so much silence, without that for which it waits for others."""
        look = min(seconds, _STALL_LOOK_SECONDS)

        def silent(same: SimulatedInstance) -> None:
            left = seconds if self.clock.now() < same.excused_until else seconds - look
            if left > 0:
                self._stall(run_uid, same, seconds=left)
            else:
                self._end(run_uid, same, exit_code=None, reason=HANG, message="no progress")

        self._later(look, run_uid, instance, silent)

    def _terminate(
        self, run_uid: str, instance: SimulatedInstance, *, grace_seconds: float
    ) -> None:
        stop = min(self.script.behaviour(instance.key.role).stop_seconds, grace_seconds)
        if stop <= 0 or instance.state in ENDED:
            self._forget(run_uid, instance)
            return
        instance.ready = instance.in_place = False
        self._set(run_uid, instance, state="terminating", reason="Deleted")
        self._later(stop, run_uid, instance, lambda i: self._forget(run_uid, i))

    def _stop(self, run_uid: str, instance: SimulatedInstance, *, grace_seconds: float) -> None:
        """End the process of an instance that stays."""
        stop = min(self.script.behaviour(instance.key.role).stop_seconds, grace_seconds)
        instance.ready = False
        self._set(run_uid, instance, state="terminating", reason="Stopped")
        self._later(stop, run_uid, instance, lambda i: self._end(run_uid, i, exit_code=143))

    def _end(
        self,
        run_uid: str,
        instance: SimulatedInstance,
        *,
        exit_code: int | None,
        signal: int | None = None,
        reason: str = "",
        message: str = "",
    ) -> None:
        if instance.state in ENDED:
            return
        # being deleted: its end is the object's end
        if instance.state == "terminating" and not instance.in_place:
            self._forget(run_uid, instance)
            return
        good = exit_code == 0 and signal is None and reason in ("", "Completed")
        instance.exit_code = exit_code if signal is None else 128 + signal
        instance.signal = signal
        instance.message = message
        instance.ready = False
        if good or reason not in ("", "Error") or instance.disrupted:
            instance.in_place = False
        elif instance.in_place:
            until = self.clock.now() + instance.spec.in_place_seconds
            self.clock.call_at(until, partial(self._stop_waiting, run_uid, instance))
        instance.finished_at = self.clock.now()
        self._set(
            run_uid, instance, state="succeeded" if good else "failed",
            reason=reason or ("Completed" if good else "Error"),
        )  # fmt: skip

    def _go(self, run_uid: str, instance: SimulatedInstance) -> None:
        if instance.kept and self._is_there(run_uid, instance):
            instance.kept = False
            self._emit(run_uid, InstanceUpdate(instance=instance.observe()))

    def _stop_waiting(self, run_uid: str, instance: SimulatedInstance) -> None:
        if instance.in_place and self._is_there(run_uid, instance):
            instance.in_place = False
            self._emit(run_uid, InstanceUpdate(instance=instance.observe()))

    def _is_there(self, run_uid: str, instance: SimulatedInstance) -> bool:
        """Return whether an object is that of its instance still: what is gone is told of no more."""
        return self._runs[run_uid].instances.get(instance.key) is instance

    def _set(self, run_uid: str, instance: SimulatedInstance, *, state: str, reason: str) -> None:
        if instance.state != state:
            instance.since = self.clock.now()
        instance.state, instance.reason = state, reason
        self._log(run_uid, instance, state)
        self._emit(run_uid, InstanceUpdate(instance=instance.observe()))

    def _forget(self, run_uid: str, instance: SimulatedInstance) -> None:
        if self._is_there(run_uid, instance):
            del self._runs[run_uid].instances[instance.key]
            self._emit(run_uid, InstanceRemoval(key=instance.key, uid=instance.uid))

    def _log(self, run_uid: str, instance: SimulatedInstance, text: str) -> None:
        logs = self._runs[run_uid].logs
        key = (*instance.key, instance.attempt)
        line = f"{self.clock.now():.3f} simulated {instance.spec.name} {text}\n"
        logs[key] = logs.get(key, b"") + line.encode()

    def _emit(self, run_uid: str, change: InstanceUpdate | InstanceRemoval) -> None:
        if self.clock.now() < self._unreachable_until:
            return  # whoever watches again gets a new snapshot
        for queue in self._runs[run_uid].watchers:
            queue.put_nowait(change)
