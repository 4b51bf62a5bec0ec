"""The life of one attempt, written once: prepare, run, watch over, end. One thread.

What differs by the place it lives in is in two classes: `instance` (this machine) and `pod`. Python 3.8
and newer.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import signal
import time

from airflow_training.agent import proc
from airflow_training.agent.command_start import fork_command
from airflow_training.agent.fetched_data import ask_data_failure
from airflow_training.agent.finishing import EarlyEnd
from airflow_training.agent.hangs import HangWatch
from airflow_training.agent.loop import Loop
from airflow_training.agent.preparing import Preparation
from airflow_training.agent.process_tree import ProcessTree, names_of, outlived_text, outliving
from airflow_training.agent.publishing import Publisher
from airflow_training.agent.stack_dump import StackDump

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from airflow_training.agent.limits import MemoryLimit
    from airflow_training.agent.order import Order

__all__ = ["FORWARDED", "Attempt"]

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Besides SIGTERM: what the command is passed on, as it would get it without us."""
_HANG_GRACE_SECONDS = 2.0
_SERVE_FILES = ("squashfuse", "fuse")
"""Programs through which a container sees its image."""
"""What hangs saves nothing."""
_LEAVES_A_HEALTHY_PLACE = frozenset({"Error", "Hang", "Stopped"})
"""Reasons after which nothing but the process has to be made anew."""


class Attempt(abc.ABC):
    """Watches over one attempt until nothing of it lives."""

    def __init__(
        self, order: Order, *, environment: Mapping[str, str], log: int, limit: MemoryLimit
    ) -> None:
        """`environment`: of the command, and of all that is done for it. `log`: the instance's own."""
        self._order = order
        self._environment = dict(environment)
        self._log = log
        self._limit = limit
        self._phase = "held" if order.held else "starting"
        self._started_at: float | None = None
        self._started_steady = 0.0
        self._child: int | None = None
        self._child_start: int | None = None
        self._status: int | None = None
        self._start_error: tuple[int, str] | None = None
        self._passed_on = 0
        """The signal to end that was passed on to the command; its end is then no success."""
        self._stop_reason = ""
        self._message = limit.warning
        self._outlived_by = ""
        """Processes that still ran when the command had ended, in words."""
        self._grace_seconds = 0.0
        self._killed = ""
        """That it had to be killed, as it did not end within its grace, in words."""
        self._output: dict[str, Any] | None = None
        self._is_data_wrong = False
        """Something was read before it was there, or did not come."""
        self._finished = False
        self._ended = False
        """The command has, with all that it started."""
        self._waiting = False
        """The command has failed, and the next attempt may begin in our place."""
        self._staying = False
        """While it waits: for people who look inside, and for no attempt any more."""
        self._loop = Loop((signal.SIGTERM, *FORWARDED), signalled=self._signalled)
        self._publisher = Publisher(
            order, loop=self._loop, environment=self._environment, say=self._say
        )
        self._preparation = Preparation(
            order,
            loop=self._loop,
            cgroup=limit.folder,
            environment=self._environment,
            log=log,
            say=self._say,
            waits=self._waits_for,
            activate=self._activate,
            fit=self._is_fit,
            ready=self._start_command,
            failed=self._not_ready,
        )
        self._tree = ProcessTree(limit=limit, loop=self._loop, preparation=self._preparation)
        self._dump = StackDump(
            loop=self._loop, tree=self._tree, environment=self._environment, log=log, say=self._say
        )
        self._hangs = HangWatch(
            order,
            loop=self._loop,
            tree=self._tree,
            dump=self._dump,
            say=self._say,
            told=self._tell_stopped,
            end=lambda why: self._stop("Hang", why, grace_seconds=_HANG_GRACE_SECONDS),
        )
        self._early = EarlyEnd(
            [order.output_dir, order.code_dir, order.working_dir],
            loop=self._loop,
            tree=self._tree.processes,
            kill=self._tree.kill_rest,
        )

    # what the place adds -------------------------------------------------------------------------
    def _record(self, phase: str | None = None) -> None:
        """Write down how far it got."""
        self._phase = phase or self._phase

    @abc.abstractmethod
    def _poll(self) -> None:
        """Look for orders, and again after a while."""

    @abc.abstractmethod
    def _on_termination(self, number: int) -> None:
        """SIGTERM, or what else ends an agent, has come."""

    def _is_fit(self) -> None:
        """All is there that the command needs; what was waited for needs no words any more."""
        self._message = self._limit.warning

    def _steps_before_command(self) -> Sequence[tuple[str, Callable[[], object]]]:
        """Return what to do in the child that becomes the command, each with words for its failure."""
        return ()

    def _command_started(self) -> None:  # noqa: B027 - a place may have nothing to do then
        """The command runs."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Tell how it ended. Nothing of the attempt lives any more; may be called again."""

    @abc.abstractmethod
    def _restart(self, order: Mapping[str, Any]) -> None:
        """Have the attempt that is ordered begin in our place."""

    # the loop ------------------------------------------------------------------------------------
    def _live(self) -> None:
        """Return once it is over."""
        try:
            self._poll()
            if self._phase != "held" and not self._stop_reason:
                self._prepare()
            while not self._finished:
                self._loop.turn()
                self._settle()
        except BaseException:  # whatever it is: nothing of the tree may outlive us
            self._tree.kill()
            raise
        if self._preparation.data is not None:
            self._preparation.data.close()
        self._preparation.ports.release()
        if self._preparation.environment is not None:
            self._preparation.environment.close()
        self._limit.close()
        self._loop.close()

    def _settle(self) -> None:
        """Finish what was stopped, once nothing of it lives, and go on with what was told to finish."""
        if self._early.told and self._status is not None and not self._ended:
            self._command_over()
        if not self._stop_reason or self._is_reported or self._tree.processes():
            return
        self._loop.reap()  # else nobody may have heard yet how the command ended
        if not self._is_reported:
            self._finish()

    @property
    def _is_reported(self) -> bool:
        """Whether it was told how it ended."""
        return self._finished or self._waiting

    def _say(self, text: str) -> None:
        """Leave a line for people in the instance's own log."""
        with contextlib.suppress(OSError):  # a full disk
            os.write(self._log, f"airflow-training: {text}\n".encode())

    def _signalled(self, number: int) -> None:
        if number == signal.SIGTERM:
            self._on_termination(number)
        else:
            self._pass_on(number)

    def _pass_on(self, number: int) -> bool:
        """Signal the command, where it lives."""
        # once it was waited for, its number may be another's
        if self._child is None or self._status is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, number)
        return True

    def _follow(self, order: Mapping[str, Any]) -> None:
        """Follow an order to an instance that stays."""
        if order.get("do") == "stop" and not self._waiting:
            grace = float(order["grace_seconds"])
            self._dump_first(order, lambda: self._stop("Stopped", "", grace_seconds=grace))
        elif order.get("do") == "finish" and self._is_running:
            self._hangs.end()
            self._early.begin(float(order["grace_seconds"]))
        elif order.get("do") == "leave" and self._waiting:
            self._leave()
        elif order.get("do") == "stay" and self._waiting and not self._staying:
            self._stay(seconds=float(order["seconds"]))
        elif order.get("do") == "restart" and self._waiting and not self._staying:
            self._restart(order)
        elif order.get("do") == "await":
            self._hangs.excuse(order)

    @property
    def _is_running(self) -> bool:
        """Whether the command runs, and nobody ends it."""
        ended = self._status is not None or self._start_error is not None
        return self._child is not None and not (ended or self._stop_reason or self._dump.runs)

    # prepare -------------------------------------------------------------------------------------
    def _prepare(self) -> None:
        """Start the command, where asked for only once all is there that it needs."""
        self._preparation.begin()

    def _waits_for(self, what: str) -> None:
        if what:
            self._say(what)
            self._message = what
        self._record("checking")

    def _activate(self, folder: str) -> None:
        """Have all that is started from now on be of the job's environment."""
        from airflow_training.agent.environment_setup import activated

        self._environment.update(activated(self._environment, folder))

    def _not_ready(self, reason: str, message: str) -> None:
        looked = self._preparation.looked
        if looked is not None and not self._preparation.is_fit:
            # it held its place for so long: its log and its usage are those of an attempt
            self._started_at = time.time() - looked["seconds"]
            self._started_steady = time.monotonic() - looked["seconds"]
        self._stop(reason, message, grace_seconds=0)

    # run -----------------------------------------------------------------------------------------
    def _start_command(self) -> None:
        if self._stop_reason:
            return
        self._message = self._limit.warning
        self._started_at, self._started_steady = time.time(), time.monotonic()
        self._publisher.prepare()
        pid, failure = fork_command(
            self._order,
            environment=self._preparation.command_environment,
            steps=self._steps_before_command(),
            leave=self._loop.leave,
        )
        self._child, self._child_start = pid, proc.start_time(pid)
        self._tree.command = pid
        self._loop.when_ended(pid, self._command_ended)
        if failure:
            error = json.loads(failure)
            self._start_error = (error["code"], error["message"])
            self._say(error["message"])
            return
        companion = self._preparation.companion
        if companion is not None:
            companion.script_started()
        self._hangs.begin()
        self._publisher.begin()
        self._command_started()

    # hangs ---------------------------------------------------------------------------------------
    def _tell_stopped(self, message: str) -> None:
        self._message = message or self._limit.warning
        self._record()

    def _dump_first(self, order: Mapping[str, Any], end: Callable[[], None]) -> None:
        """Follow an order to end, which may want the stacks of the processes first."""
        if order.get("dump_stacks") and self._phase == "running" and not self._stop_reason:
            self._dump.begin(end)
        else:
            end()

    # end -----------------------------------------------------------------------------------------
    def _command_ended(self, wait_status: int) -> None:
        """Take everything the command left behind with it, as a container's end would."""
        self._status = wait_status
        self._loop.cancel("probe")
        self._hangs.end()
        self._publisher.end()
        if not self._early.told:
            self._command_over()

    def _command_over(self) -> None:
        """Go on after the command; what was told to finish has its grace first, with all that it has started."""
        companion = self._preparation.companion
        if self._early.told and not self._stop_reason and self._tree.of_command():
            return
        self._ended = True
        if not self._stop_reason:
            self._early.over()
        if not (self._stop_reason or self._dump.runs):  # else the others still have their grace
            self._end_what_is_left()
        if companion is not None:
            companion.end(self._status or 0, self._conclude)
        else:
            self._conclude()

    def _end_what_is_left(self) -> None:
        """End what outlives the command, and say what it was: somebody may have meant it to go on."""
        self._outlived_by = outlived_text(outliving(self._tree.of_command))
        if self._outlived_by:
            self._say(f"the command has ended; {self._outlived_by}")
        self._tree.kill_rest()
        self._outlived_by = self._with_denied(self._outlived_by)

    def _kill_after(self, grace_seconds: float) -> None:
        """Kill what did not end within its grace, and say so."""
        tree = self._tree.of_command()
        if tree and grace_seconds > 0:
            self._killed = f"did not end within {grace_seconds:g} s of SIGTERM, and was killed"
            self._say(f"{self._killed}: {names_of(tree)}")
        self._tree.kill()
        self._killed = self._with_denied(self._killed)

    def _with_denied(self, text: str) -> str:
        """Add to a text, and to the log, what lives on because it may not be ended."""
        if not self._tree.denied:
            return text
        lives = f"still alive, as another user's: {names_of(self._tree.denied)}"
        self._say(lives)
        return "; ".join(filter(None, (text, lives)))

    def _conclude(self) -> None:
        """Bring the output away, after the last checkpoint was committed."""
        if self._stop_reason or self._dump.runs:
            return
        self._tree.kill()
        self._publisher.publish_rest(then=self._conclude_output)

    def _conclude_output(self) -> None:
        if self._stop_reason:
            return
        data = self._preparation.data
        if data is not None:
            data.end(self._conclude_data)
        elif self._has_succeeded:
            ask_data_failure(self._loop, self._environment, then=self._conclude_data)
        else:
            self._finish()

    @property
    def _has_succeeded(self) -> bool:
        ended_well = self._status == 0 or self._early.told
        return ended_well and self._start_error is None and not self._passed_on

    def _conclude_data(self, failure: tuple[str, str] | None) -> None:
        if self._stop_reason:
            return
        if failure is not None and not self._passed_on:
            # what it computed may be of bytes that nobody sent
            self._stop_reason, self._message = failure
            self._is_data_wrong = True
            self._say(": ".join(failure))
            self._finish()
        elif self._has_succeeded and self._order.output_uri:
            self._begin_upload(self._order.output_uri)
        else:
            self._finish()

    def _watch_deadline(self) -> None:
        if self._order.deadline_seconds is not None:
            self._loop.after(float(self._order.deadline_seconds), "deadline", self._deadline)

    def _deadline(self) -> None:
        seconds = float(self._order.deadline_seconds or 0)
        self._say(f"ran longer than {seconds:g} s, ending it")
        grace = self._order.grace_seconds
        self._stop("DeadlineExceeded", f"ran longer than {seconds:g} s", grace_seconds=grace)

    def _stop(self, reason: str, message: str, *, grace_seconds: float) -> None:
        """TERM to the whole tree, KILL after the grace; the first reason stays."""
        if self._waiting:
            self._leave()
            return
        if self._stop_reason:
            self._loop.sooner(grace_seconds, "kill")
            self._grace_seconds = min(self._grace_seconds, grace_seconds)
            return
        self._hangs.end()
        self._grace_seconds = grace_seconds
        self._stop_reason, self._message = reason, message or self._message
        self._loop.cancel("deadline", "early end")
        self._publisher.end()
        self._loop.after(grace_seconds, "kill", lambda: self._kill_after(self._grace_seconds))
        self._preparation.give_up()
        self._record("stopping")
        tree = self._tree.processes()
        proc.signal_processes(self._without_container(tree), signal.SIGTERM, signal.SIGCONT)
        companion = self._preparation.companion
        if self._child is None and companion is not None:
            companion.kill()
        if not tree:  # nothing was started yet: no event would come
            self._loop.after(0, "kill", self._tree.kill)

    def _without_container(self, tree: Mapping[int, int]) -> Mapping[int, int]:
        """Return the processes to ask to end: not what runs the container, which tells them again, nor serves its files."""
        if not self._order.container:
            return tree
        inside = {
            pid: start
            for pid, start in tree.items()
            if pid != self._child and not proc.command_of(pid).startswith(_SERVE_FILES)
        }
        return inside or tree

    # output --------------------------------------------------------------------------------------
    def _begin_upload(self, uri: str) -> None:
        self._record("uploading")
        self._publisher.upload(uri, then=self._uploaded)

    def _kept_output(self) -> str:
        """Return the folder in which the output outlives its instance; "" for none."""
        return ""

    def _uploaded(self, answer: Mapping[str, Any]) -> None:
        if self._stop_reason:
            return
        if "error" in answer:
            self._stop_reason = "OutputFailed"
            self._message = f"the output could not be uploaded: {answer['error']}"
            if self._kept_output():
                self._message += f"; it stays in {self._kept_output()}"
        else:
            self._output = dict(answer)
        self._tree.kill()
        self._finish()

    # the record ----------------------------------------------------------------------------------
    def _result(self) -> dict[str, Any]:
        """Return exit code, signal, reason, message and output, as records have them."""
        exit_code: int | None = None
        number: int | None = None
        reason, message = self._stop_reason, self._message
        if message == self._limit.warning:
            message = ""  # of how it ran, which its log tells: no reason why it ended
        if self._start_error is not None:
            exit_code, message = self._start_error
            reason = reason or "StartError"
        elif self._status is not None:
            exit_code = proc.exit_code(self._status)
            if os.WIFSIGNALED(self._status):
                number = os.WTERMSIG(self._status)
            if self._early.told and not (reason or self._passed_on):
                reason, message = "Completed", self._early.message(exit_code)
                exit_code, number = 0, None
            elif not reason:
                reason = "Completed" if exit_code == 0 else "Error"
                if self._limit.killed_it(exit_code, log=self._log):
                    reason, message = "OOMKilled", "the kernel ended it for want of memory"
        output = self._output if reason == "Completed" else None
        if output is not None and not output.get("files"):
            message = "the output folder is empty"
        if self._killed:
            message = "; ".join(filter(None, (message, self._killed)))
        return {
            "exit_code": exit_code,
            "signal": number,
            "reason": reason,
            "message": message,
            "output": output,
            "outlived_by": self._outlived_by if reason == "Completed" else "",
            "killed": bool(self._killed),
        }

    def _finished_at(self) -> float:
        """Return the time of day, or as late as it took where somebody has set the clock meanwhile."""
        if self._started_at is None:
            return time.time()
        return self._started_at + time.monotonic() - self._started_steady

    # the next attempt in its place ---------------------------------------------------------------
    def _may_be_followed(self, result: Mapping[str, Any]) -> bool:
        """Return whether another attempt may begin here; `result`: of this one."""
        return self._order.in_place_seconds > 0 and result["reason"] in _LEAVES_A_HEALTHY_PLACE

    def _wait(self) -> None:
        """Stay for the next attempt, but not for ever: whoever orders it may be gone."""
        self._waiting = True
        if self._preparation.environment is not None:
            self._preparation.environment.close()  # nothing runs on it: it may be removed, or repaired
        self._loop.cancel_all(but="deadline")
        self._loop.after(self._order.in_place_seconds, "wait", self._leave)
        self._poll()

    def _stay(self, *, seconds: float) -> None:
        """Stay for a look inside; the timer is our own, as nobody may be left to end it."""
        self._staying = True
        self._preparation.ports.release()
        self._loop.cancel("deadline")
        self._loop.after(seconds, "wait", self._leave)
        self._say(f"stays for a look inside, for {seconds:g} s")

    def _leave(self) -> None:
        """Go as the command ended; that is written down. What was started for a look goes with us."""
        if self._staying:
            self._tree.kill()
        self._finished = True
