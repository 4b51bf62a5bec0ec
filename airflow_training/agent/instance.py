"""The life of one attempt, inside its agent: hold, start, watch over, end, record. One thread.

Everything is driven by one `poll`: signals arrive through a pipe, orders through a socket (and,
should a packet be lost, through a look at the folder every few seconds).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable

from airflow_training.agent import limits, proc, staying
from airflow_training.agent.companion import LAST_LOOK_SECONDS, Companion
from airflow_training.agent.control import ControlSocket, shell_status
from airflow_training.agent.files import AttemptFolder, read_json, write_json, write_text
from airflow_training.agent.newest import NewestProgress
from airflow_training.agent.notify import notify
from airflow_training.agent.probe import Probe, run_probe
from airflow_training.agent.stalls import StallWatch

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from airflow_training.agent.environment import Recorder
    from airflow_training.agent.preflight import Preflight

__all__ = ["Agent"]

_LOOK_SECONDS = 5.0
_HELD_LOOK_SECONDS = 1.0
_WRITE_AGAIN_SECONDS = 1.0
"""When to try again what a full disk did not take."""
_HANG_GRACE_SECONDS = 2.0
"""What hangs saves nothing."""
_FIRST_RECORD_SECONDS = 1.0
"""After the start, of what it has around it: a short command pays for one record only."""
_RECORD_SECONDS = 10.0
_FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def _exit_of(end: dict[str, Any]) -> dict[str, Any]:
    return {name: end[name] for name in ("exit_code", "signal", "reason")}


class Agent:
    """Watches over one attempt until nothing of it lives; made after the lock was taken."""

    def __init__(self, folder: AttemptFolder, spec: dict[str, Any]) -> None:
        self._folder = folder
        self._spec = spec
        self._environment: dict[str, str] = spec["env"]
        self._me = proc.here(os.getpid())
        self._phase = "held" if spec["held"] else "starting"
        self._since = time.time()
        self._started_at: float | None = None
        self._child: int | None = None
        self._child_start: int | None = None
        self._status: int | None = None
        self._upload: int | None = None
        self._probing: int | None = None
        self._dumping: int | None = None
        self._after_dump: Callable[[], None] = lambda: None
        self._preflight: Preflight | None = None
        self._readiness: dict[str, Any] | None = None
        """How long the look at the surroundings took, and at what."""
        self._devices: list[dict[str, Any]] = []
        self._stall: StallWatch | None = None
        self._recorder: Recorder | None = None
        self._companion: Companion | None = None
        self._answer: int | None = None
        """Where the companion says that the command may start."""
        self._last_look = False
        self._probe_counts = [0, 0]
        self._ready = False
        self._stop_reason = ""
        self._message = ""
        self._start_error: tuple[int, str] | None = None
        self._finished = False
        self._end: dict[str, Any] | None = None
        self._waiting = False
        """The command has failed, and the next attempt may begin in our place."""
        self._next: AttemptFolder | None = None
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self._limit = limits.MemoryLimit(
            spec.get("memory_bytes"), name=spec["uid"], parent=limits.own_cgroup()
        )
        self._log = os.open(folder.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._wakeup, self._wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGCHLD, signal.SIGTERM, *_FORWARDED):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        self._control = ControlSocket(
            folder.socket,
            look=self._look,
            environment=self._environment,
            working_dir=spec["working_dir"],
        )

    # the loop ------------------------------------------------------------------------------------
    def run(self, *, recorded: Callable[[], None]) -> AttemptFolder | None:
        """Live through the attempt; return the one to go on as, or None.

        `recorded` is called once the agent can be found.
        """
        self._write_state()  # an agent that cannot be found must not go on
        recorded()
        deadline = self._spec.get("deadline_seconds")
        if deadline is not None:
            self._in(float(deadline), "deadline", self._deadline)
        self._write_files(self._spec["files"])
        if self._limit.warning:
            self._say(self._limit.warning)
            self._message = self._limit.warning
        self._look()
        if not self._spec["held"] and not self._stop_reason:
            self._start()
        while not self._finished:
            self._turn()
        self._control.close(self._folder.socket)
        self._limit.close()
        signal.set_wakeup_fd(-1)
        for descriptor in (self._log, self._wakeup, self._wakeup_write):
            os.close(descriptor)
        return self._next

    def _turn(self) -> None:
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        answers = [] if self._answer is None else [self._answer]
        for descriptor in (*self._control.descriptors, *answers):
            poller.register(descriptor, select.POLLIN)
        due = min((at for at, _ in self._timers.values()), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic()) * 1000
        for descriptor, _ in poller.poll(wait):
            if descriptor == self._wakeup:
                for number in os.read(self._wakeup, 512):
                    self._signalled(number)
            elif descriptor == self._answer:
                self._companion_answered(descriptor)
            else:
                self._control.readable(descriptor)
        self._reap()
        now = time.monotonic()
        for name, (at, act) in list(self._timers.items()):
            if at <= now and name in self._timers:
                del self._timers[name]
                act()

    def _in(self, seconds: float, name: str, act: Callable[[], None]) -> None:
        self._timers[name] = (time.monotonic() + seconds, act)

    # what others see -----------------------------------------------------------------------------
    def _record(self, phase: str | None = None) -> None:
        if phase is not None and phase != self._phase:
            self._phase, self._since = phase, time.time()
            if self._recorder is not None:
                self._record_environment("change")
        try:
            self._write_state()
        except OSError:  # no reason to end a training
            self._in(_WRITE_AGAIN_SECONDS, "record", self._record)

    def _write_state(self) -> None:
        write_json(
            self._folder.state,
            {
                "uid": self._spec["uid"],
                "generation": self._spec["generation"],
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

    def _say(self, text: str) -> None:
        """Leave a line for people in the instance's own log."""
        with contextlib.suppress(OSError):  # a full disk
            os.write(self._log, f"airflow-training: {text}\n".encode())

    # orders --------------------------------------------------------------------------------------
    def _look(self) -> None:
        """Follow what lies in the folder: delete, release, the run's tombstone."""
        short = self._phase == "held" or self._waiting
        self._in(_HELD_LOOK_SECONDS if short else _LOOK_SECONDS, "look", self._look)
        if not self._folder.spec.exists():
            self._stop("Orphaned", "the folder of the run was deleted", grace_seconds=0)
            return
        order = read_json(self._folder.delete)
        if order is not None and order.get("uid") == self._spec["uid"]:
            grace = float(order.get("grace_seconds", 0))
            self._dump_first(order, lambda: self._stop("Deleted", "", grace_seconds=grace))
            return
        tombstone = read_json(self._folder.tombstone)
        if tombstone and self._spec["generation"] <= int(tombstone.get("generation", 0)):
            self._stop("Deleted", "", grace_seconds=float(self._spec["grace_seconds"]))
            return
        told = staying.order_of(self._folder, self._spec["uid"])
        if told:
            self._follow(told)
        elif self._phase == "held" and not self._stop_reason:
            answer = read_json(self._folder.release)
            if answer is not None and answer.get("uid") == self._spec["uid"]:
                self._released(answer)

    def _follow(self, order: Mapping[str, Any]) -> None:
        """Follow an order to an instance that stays."""
        if order["do"] == "stop" and not self._waiting:
            grace = float(order["grace_seconds"])
            self._dump_first(order, lambda: self._stop("Stopped", "", grace_seconds=grace))
        elif order["do"] == "leave" and self._waiting:
            self._leave()
        elif order["do"] == "restart" and self._waiting:
            self._next = staying.next_attempt(self._folder, order)
            self._finished = self._next is not None

    def _released(self, answer: dict[str, Any]) -> None:
        """Write what the answer makes possible, then go."""
        if answer.get("kind") == "List":
            write_json(self._folder.path / "addresses.json", answer.get("addresses", {}))
        self._start()

    def _signalled(self, number: int) -> None:
        if number == signal.SIGTERM:
            grace = float(self._spec["grace_seconds"])
            self._stop("Terminated", "the agent was asked to end (SIGTERM)", grace_seconds=grace)
        # once it was waited for, its number may be another's
        elif number in _FORWARDED and self._child is not None and self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)

    def _deadline(self) -> None:
        seconds = float(self._spec["deadline_seconds"])
        self._say(f"ran longer than {seconds:g} s, ending it")
        grace = float(self._spec["grace_seconds"])
        self._stop("DeadlineExceeded", f"ran longer than {seconds:g} s", grace_seconds=grace)

    # start ---------------------------------------------------------------------------------------
    def _write_files(self, files: dict[str, dict[str, Any]]) -> None:
        for name, file in files.items():
            mode = 0o700 if file.get("executable") else 0o600
            write_text(self._folder.path / name, file["content"], mode=mode)

    def _start(self) -> None:
        """Start the command, where asked for only once all is there that it needs."""
        self._write_files(self._spec["live_files"])
        wanted = self._spec.get("readiness")
        if wanted is None:
            self._restore()
            return
        from airflow_training.agent.preflight import Preflight

        self._preflight = Preflight(
            wanted,
            folder=self._folder.path,
            cgroup=self._limit.folder,
            environment=self._environment,
            say=self._checking_says,
        )
        self._record("checking")
        self._check_readiness(self._preflight)

    def _check_readiness(self, preflight: Preflight) -> None:
        if self._stop_reason:
            return
        verdict = preflight.look()
        if verdict is None:
            again = preflight.look_again_seconds
            self._in(again, "readiness", lambda: self._check_readiness(preflight))
            return
        self._say(verdict.message)
        self._readiness = {"seconds": verdict.seconds, "checks": verdict.checks}
        self._devices = verdict.devices
        if verdict.ready:
            self._message = self._limit.warning
            self._restore()
        else:
            # it held its place for so long: its log and its usage are those of an attempt
            self._started_at = time.time() - verdict.seconds
            self._stop(verdict.reason, verdict.message, grace_seconds=0)

    def _checking_says(self, text: str) -> None:
        self._say(text)
        self._message = text
        self._record()

    def _restore(self) -> None:
        """Start the command, where a folder is watched after its content was put back."""
        watch = self._spec.get("watch")
        if not watch:
            self._start_command()
            return
        self._companion = Companion(
            watch,
            environment=self._environment,
            working_dir=self._spec["working_dir"],
            log=self._log,
        )
        self._answer = self._companion.start()

    def _companion_answered(self, pipe: int) -> None:
        self._answer = None
        reason, problem = Companion.answer(pipe)
        if self._child is not None:  # it was started again, beside the command
            if problem:
                self._say(f"checkpoints are not committed any more: {problem}")
        elif problem:
            self._say(f"no checkpoint can be restored or committed: {problem}")
            self._stop(reason, problem, grace_seconds=0)
        elif not self._stop_reason:
            self._start_command()

    def _companion_ended(self, wait_status: int) -> None:
        companion = self._companion
        if companion is None:
            return
        companion.pid = None
        if self._last_look and not self._stop_reason:
            self._conclude()
        elif wait_status != 0 and self._phase == "running" and self._status is None:
            self._answer = companion.start_again()
            if self._answer is None:
                self._say("checkpoints are not committed any more: what watches the folder died")

    def _start_command(self) -> None:
        self._started_at = time.time()
        read, write = os.pipe()
        agent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_command(write, agent)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            failure = pipe.read()  # ends when exec closes the other side
        self._child, self._child_start = pid, proc.start_time(pid)
        if failure:
            error = json.loads(failure)
            self._start_error = (error["code"], error["message"])
            self._say(error["message"])
            return
        probe = self._spec.get("readiness_probe")
        if probe:
            self._probe = Probe(probe, ports=self._spec["ports"])
            self._in(self._probe.delay_seconds, "probe", self._begin_probe)
        self._ready = not probe
        limits = self._spec.get("stall")
        if limits is not None:
            self._stall = StallWatch(NewestProgress(self._folder.progress), limits)
            self._in(self._stall.every_seconds, "stall", self._check_progress)
        self._in(_FIRST_RECORD_SECONDS, "environment", self._watch_environment)
        self._record("running")

    def _become_command(self, failures: int, agent: int) -> None:
        """Turn the forked child into the command; never returns."""
        command: list[str] = self._spec["command"]
        code, what = _NOT_EXECUTABLE, "cannot set up the process"
        try:
            os.setsid()
            proc.die_with_parent()
            if os.getppid() != agent:  # died before the kernel was told
                os._exit(255)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, *_FORWARDED, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(self._log, 1)
            os.dup2(self._log, 2)
            what = "cannot limit its memory"
            self._limit.join()
            what = f"cannot enter the working directory {self._spec['working_dir']!r}"
            os.chdir(self._spec["working_dir"])
            what = f"cannot run {command[0]!r}"
            os.execvpe(command[0], command, self._environment)  # noqa: S606  # what we are for
        except BaseException as error:  # noqa: BLE001  # a child must never run on as a second agent
            if isinstance(error, FileNotFoundError):
                code = _NOT_FOUND
            reason = error.strerror if isinstance(error, OSError) else repr(error)
            message = {"code": code, "message": f"{what}: {reason}"}
            os.write(failures, json.dumps(message).encode())
        finally:
            os._exit(255)

    # readiness -----------------------------------------------------------------------------------
    def _begin_probe(self) -> None:
        if self._phase != "running" or self._probing is not None:
            return
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                run_probe(self._probe, environment=self._environment, log=self._log)
            finally:
                os._exit(1)
        self._probing = pid

    def _probed(self, wait_status: int) -> None:
        self._probing = None
        good = shell_status(wait_status) == 0
        count = self._probe_counts
        count[:] = [count[0] + 1, 0] if good else [0, count[1] + 1]
        ready = self._ready
        if count[0] >= self._probe.successes_needed:
            ready = True
        elif count[1] >= self._probe.failures_allowed:
            ready = False
        if ready != self._ready:
            self._ready = ready
            self._record()
        self._in(self._probe.period_seconds, "probe", self._begin_probe)

    # what it has around it -----------------------------------------------------------------------
    def _watch_environment(self) -> None:
        """Record it now and again, for as long as the command runs."""
        first = self._recorder is None
        ready = {"ready": self._readiness} if first and self._readiness else {}
        self._record_environment("start" if first else "interval", **ready)
        self._in(_RECORD_SECONDS, "environment", self._watch_environment)

    def _record_environment(self, on: str, **more: Any) -> None:
        if self._recorder is None:
            from airflow_training.agent.devices import device_watch
            from airflow_training.agent.environment import Recorder

            self._recorder = Recorder(
                self._folder.environment,
                progress=self._folder.progress,
                cgroup=self._limit.folder,
                devices=device_watch(self._environment, self._devices),
            )
        self._recorder.record(on, phase=self._phase, **more)

    # hangs ---------------------------------------------------------------------------------------
    def _check_progress(self) -> None:
        """End a script that has stopped getting anywhere, once its log says where it stands."""
        if self._stall is None or self._phase != "running" or self._stop_reason:
            return
        message = self._stall.look(now=time.monotonic())
        if not message:
            self._in(self._stall.every_seconds, "stall", self._check_progress)
            return
        self._say(f"{message}; ending it, as it hangs")
        grace = _HANG_GRACE_SECONDS
        self._dump(lambda: self._stop("Hang", message, grace_seconds=grace))

    def _dump_first(self, order: Mapping[str, Any], end: Callable[[], None]) -> None:
        """Follow an order to end, which may want the stacks of the processes first."""
        if order.get("dump_stacks") and self._phase == "running" and not self._stop_reason:
            self._dump(end)
        else:
            end()

    def _dump(self, then: Callable[[], None]) -> None:
        """Dump stacks in a child, so that orders and the end of the command still count meanwhile."""
        if self._dumping is not None:
            return
        from airflow_training.agent import stacks

        tree = self._tree()
        self._after_dump = then
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                path = self._environment.get("PATH", os.defpath)
                stacks.dump_stacks(tree, log=self._log, search_path=path)
            except BaseException as error:  # noqa: BLE001  # a child must never run on as a second agent
                self._say(f"cannot dump stacks: {error!r}")
            finally:
                os._exit(0)
        self._dumping = pid
        self._in(stacks.DUMP_SECONDS, "dump", self._dumped)

    def _dumped(self) -> None:
        self._timers.pop("dump", None)
        self._after_dump()

    # end -----------------------------------------------------------------------------------------
    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid, status = 0, 0
            if pid == 0:
                break
            if pid == self._child and self._status is None:
                self._status = status
                self._command_ended()
            elif pid == self._upload:
                self._upload = None
                self._uploaded(status)
            elif pid == self._probing:
                self._probed(status)
            elif self._companion is not None and pid == self._companion.pid:
                self._companion_ended(status)
            elif pid == self._dumping:
                self._dumping = None
                self._dumped()
            else:
                self._control.exited(pid, status)
        over = self._finished or self._waiting
        if self._stop_reason and not over and not self._tree():
            self._finish()

    def _tree(self) -> dict[int, int]:
        # looking at every process of the machine is dear; mostly there is nobody to look for
        tree = proc.descendants(os.getpid()) if proc.has_children() else {}
        for pid in self._limit.members():
            start = proc.start_time(pid)
            if start is not None:
                tree.setdefault(pid, start)
        for pid, start in (self._preflight.abandoned if self._preflight else {}).items():
            if tree.get(pid) == start:  # nothing of the training; the kernel may never let it go
                del tree[pid]
        return tree

    def _command_ended(self) -> None:
        """Take everything the command left behind with it, as a container's end would."""
        self._timers.pop("probe", None)
        self._timers.pop("stall", None)
        self._ready = False
        companion = self._companion
        watched = companion is not None and companion.pid is not None
        if companion is not None:
            companion.end(self._status or 0)
        if self._stop_reason or self._dumping is not None:
            return  # the others still have their grace
        self._last_look = True
        self._kill_tree(besides=companion.pid if companion is not None else None)
        if watched:
            self._in(LAST_LOOK_SECONDS, "last look", self._conclude)
        else:
            self._conclude()

    def _conclude(self) -> None:
        """Bring the output away, after the last checkpoint was committed."""
        self._timers.pop("last look", None)
        self._kill_tree()
        uri = self._spec.get("output_uri")
        if self._status == 0 and uri and self._start_error is None:
            self._begin_upload(uri)
        else:
            self._finish()

    def _stop(self, reason: str, message: str, *, grace_seconds: float) -> None:
        """TERM to the whole tree, KILL after the grace; the first reason stays."""
        if self._waiting:
            self._leave()
            return
        kill_at = time.monotonic() + grace_seconds
        if self._stop_reason:
            if "kill" in self._timers and kill_at < self._timers["kill"][0]:
                self._timers["kill"] = (kill_at, self._kill_and_finish)
            return
        self._stop_reason, self._message = reason, message or self._message
        self._timers.pop("deadline", None)
        self._timers["kill"] = (kill_at, self._kill_and_finish)
        if self._preflight is not None:
            self._preflight.give_up()
        if self._folder.spec.exists():
            self._record("stopping")
        tree = self._tree()
        for pid, start in tree.items():
            proc.kill_exactly(pid, start, signal.SIGTERM)
            proc.kill_exactly(pid, start, signal.SIGCONT)
        if self._child is None and self._companion is not None and self._companion.pid:
            os.kill(self._companion.pid, signal.SIGKILL)  # nothing was written since the last time
        if not tree:  # nothing was started yet: no event would come
            self._in(0, "kill", self._kill_and_finish)

    def _kill_and_finish(self) -> None:
        self._kill_tree()
        self._reap()

    def _kill_tree(self, *, besides: int | None = None) -> None:
        """Return when nothing lives below: a process that forks meanwhile is found again."""
        pause = 0.001
        while True:
            tree = self._tree()
            tree.pop(besides or 0, None)
            if not tree:
                return
            for pid, start in tree.items():
                proc.kill_exactly(pid, start, signal.SIGKILL)
            time.sleep(pause)  # no event says that a grandchild is gone
            pause = min(pause * 2, 0.05)

    # output --------------------------------------------------------------------------------------
    def _begin_upload(self, uri: str) -> None:
        """Upload in a child, so that orders and the deadline still count meanwhile."""
        self._record("uploading")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGTERM, *_FORWARDED):
                    signal.signal(number, signal.SIG_DFL)
                os.environ.update(self._environment)  # credentials of the object storage
                from airflow_training.agent.upload import upload

                write_json(self._folder.output_result, upload(self._folder.output, uri))
                code = 0
            except BaseException as error:  # noqa: BLE001  # whatever a storage client raises
                self._say(f"cannot upload the output to {uri}: {error!r}")
                write_json(self._folder.output_result, {"error": f"{uri}: {error!r}"})
            finally:
                os._exit(code)
        self._upload = pid

    def _uploaded(self, wait_status: int) -> None:
        if self._stop_reason:
            return
        if wait_status != 0:
            self._stop_reason = "OutputFailed"
            error = (read_json(self._folder.output_result) or {}).get("error", "it was killed")
            self._message = f"the output could not be uploaded: {error}"
        self._kill_tree()
        self._finish()

    # the record ----------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Write down how it ended. Nothing of the attempt lives any more."""
        if self._end is None:  # orders that come while the disk is full change nothing any more
            self._end = {
                "uid": self._spec["uid"],
                "started_at": self._started_at,
                "finished_at": time.time(),
                **self._result(),
                **({"readiness": self._readiness} if self._readiness else {}),
            }
            if self._started_at is not None and self._folder.spec.exists():
                self._record_environment("exit", exit=_exit_of(self._end))
            self._end["in_place"] = staying.stays(self._spec, self._end)
        if self._folder.spec.exists():  # a folder that somebody deleted is not brought back
            try:
                write_json(self._folder.exit, self._end, durable=True)
            except OSError:  # to die without a record would be told as a failure
                self._in(_WRITE_AGAIN_SECONDS, "finish", self._finish)
                return
            self._notify()
            if self._end["in_place"]:
                self._wait()
                return
        self._finished = True

    def _wait(self) -> None:
        """Stay for the next attempt, but not for ever: whoever orders it may be gone."""
        self._waiting = True
        deadline = self._timers.get("deadline")
        self._timers = {} if deadline is None else {"deadline": deadline}
        self._in(float(self._spec["in_place_seconds"]), "wait", self._leave)
        self._look()

    def _leave(self) -> None:
        """Go as the command ended; that is written down."""
        self._finished = True

    def _result(self) -> dict[str, Any]:
        """Return exit code, signal, reason, message and output, as the record has them."""
        exit_code: int | None = None
        number: int | None = None
        reason, message = self._stop_reason, self._message
        if self._start_error is not None:
            exit_code, message = self._start_error
            reason = reason or "StartError"
        elif self._status is not None:
            exit_code = shell_status(self._status)
            if os.WIFSIGNALED(self._status):
                number = os.WTERMSIG(self._status)
            if not reason:
                reason = "Completed" if exit_code == 0 else "Error"
                # a shell in front shows the kill of its child as 137
                if exit_code == 128 + signal.SIGKILL and self._limit.oom_killed:
                    reason, message = "OOMKilled", "the kernel ended it for want of memory"
        output = None
        if reason == "Completed" and self._spec.get("output_uri"):
            output = read_json(self._folder.output_result)
            if output is not None and not output.get("files"):
                message = "the output folder is empty"
        return {
            "exit_code": exit_code,
            "signal": number,
            "reason": reason,
            "message": message,
            "output": output,
        }
