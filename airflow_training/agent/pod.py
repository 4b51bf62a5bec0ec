"""The agent inside a pod: `hold` waits for the release, `run` is the parent of a command.

Python 3.8 and newer, standard library only, as it runs in images of others. Both talk to nobody
but, where asked, one address for progress and the object storage of the output.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from airflow_training.agent.attempt import Attempt
from airflow_training.agent.files import read_json, write_files, write_text
from airflow_training.agent.library import python_path
from airflow_training.agent.limits import MemoryLimit
from airflow_training.agent.order import ORDER_VARIABLE, Order, OrderError, replace
from airflow_training.agent.pod_attempts import prepare_next_attempt, replace_files
from airflow_training.agent.reporter import LONGEST_SECONDS, Reporter

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

__all__ = ["USAGE", "main"]

USAGE = f"""usage: agent hold
       agent run -- COMMAND...
Both are ordered what to do in {ORDER_VARIABLE}, see `order`.
"""

_POLL_SECONDS = 0.2
_MAX_RESULT_BYTES = 2000
"""Kubernetes keeps 4096 bytes of a termination message, and 12 KiB of those of all containers."""
_LOOK_SECONDS = 1.0
"""How often to look for an order while the command runs."""
_WAITING_LOOK_SECONDS = 0.25
_NOT_FOUND = 127
_NEVER_STARTED = (126, _NOT_FOUND)
"""Exit codes of a shell, too, that found no command."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_KNOWN_TO_OTHERS = ("Stopped", "Terminated")
"""Reasons that need no words of ours: whoever ordered the end knows them."""


def main(arguments: Sequence[str]) -> int:
    """Run `hold` or `run`; returns the exit code."""
    verb, *rest = arguments
    try:
        # taken away: the command gets our environment
        order = Order.of_text(os.environ.pop(ORDER_VARIABLE, "{}"))
    except OrderError as error:
        return _refuse(f"{verb}: {error}")
    if verb == "hold":
        return _hold(order) if order.held else _refuse("hold: nothing is to be held")
    if rest[:1] != ["--"] or not rest[1:]:
        return _refuse("run: no command")
    token = os.environ.pop("TRAINING_CALLBACK_TOKEN", "")
    number, following = 0, replace(order, command=rest[1:])
    while True:
        attempt = PodAttempt(following, number=number, token=token)
        code = attempt.run()
        if attempt.following is None:
            return code
        number, following = number + 1, attempt.following


def _refuse(why: str) -> int:
    sys.stderr.write(f"agent {why}\n{USAGE}")
    return 2


# hold --------------------------------------------------------------------------------------------
def _hold(order: Order) -> int:
    """Wait for the answer that means this very pod, write what it makes possible."""
    for number in _STOPPING:  # the first process of a container has no default for these
        signal.signal(number, lambda number, _: os._exit(128 + number))
    uid = os.environ.get("TRAINING_POD_UID", "")
    while True:
        answer = _answer(Path(order.release_file), Path(order.answers_dir), uid)
        if answer is not None:
            break
        time.sleep(_POLL_SECONDS)
    if answer.get("kind") == "List":
        # whoever the training container runs as may read it
        write_text(Path(order.addresses_file), json.dumps(answer.get("addresses", {})), mode=0o644)
    write_files(order.live_files, below=Path("/"), mode=0o644)
    return 0


def _answer(release: Path, folder: Path, uid: str) -> dict[str, Any] | None:
    """Return the whole answer for the pod `uid`; None while it, or a part of it, is not there."""
    told = read_json(release)
    if told is None or told.get("uid") != uid:
        return None
    count = told.get("shards")
    if not count:
        return told
    try:
        parts = [
            (folder / f"{uid}-{number}").read_text(encoding="utf-8") for number in range(count)
        ]
        return {**told, "addresses": json.loads("".join(parts))}
    except (OSError, ValueError):
        return None


# run ---------------------------------------------------------------------------------------------
class PodAttempt(Attempt):
    """An attempt whose agent is the first process of its container: exit code and last words tell."""

    def __init__(self, order: Order, *, number: int, token: str) -> None:
        """`number`: how many attempts this pod has had before. `token`: to report progress with."""
        super().__init__(
            order,
            # the script may import our library, also where its job keeps no checkpoints
            environment={**os.environ, "PYTHONPATH": python_path(os.environ)},
            log=2,
            limit=MemoryLimit(None, name="", parent=None, alone=True),
        )
        self._number = number
        self._token = token
        self._begun_at = time.time()
        self._reporter: int | None = None
        self._last_word = -1
        """Tells the reporter how the command ended."""
        self._code: int | None = None
        self._waits = False
        """It was said that another attempt may follow."""
        self._complaint = ""
        """What was last said of files that could not be replaced."""
        self.following: Order | None = None
        """What begins in this pod after it."""

    def run(self) -> int:
        """Live through the attempt; return the exit code."""
        self._watch_deadline()
        self._live()
        if self.following is None and os.getpid() == 1:  # else -1 would mean processes of others
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        return 1 if self._code is None else self._code

    # signals and orders --------------------------------------------------------------------------
    def _signalled(self, number: int) -> None:
        if number in _STOPPING:
            self._on_termination(number)
        else:
            self._pass_on(number)

    def _on_termination(self, number: int) -> None:
        """Let the command end as it likes: the kubelet knows how long that may take."""
        self._passed_on = number
        if self._child is None or self._waiting or self._phase == "uploading":
            self._stop("Terminated", "", grace_seconds=0)
        else:
            self._pass_on(number)

    def _poll(self) -> None:
        if not self._order.orders_file:
            return
        soon = self._waiting and not self._staying
        again = _WAITING_LOOK_SECONDS if soon else _LOOK_SECONDS
        self._loop.after(again, "look", self._poll)
        self._replace_files()
        order = read_json(Path(self._order.orders_file)) or {}
        if order.get("turn") == self._number:
            self._follow(order)

    def _replace_files(self) -> None:
        """Replace what was given anew; a full disk is tried again at the next look."""
        try:
            replace_files(Path(self._order.orders_file).parent)
        except OSError as error:
            if str(error) != self._complaint:
                self._say(f"cannot replace a file: {error}")
            self._complaint = str(error)

    def _restart(self, order: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # what it said was about this attempt
            Path(self._order.termination_log).write_text("", encoding="utf-8")
        self.following = prepare_next_attempt(order, after=self._order)
        self._finished = True

    # the command ---------------------------------------------------------------------------------
    def _is_fit(self) -> None:
        super()._is_fit()
        self._start_reporter()

    def _steps_before_command(self) -> Sequence[tuple[str, Callable[[], object]]]:
        folder = self._order.working_dir
        if not folder:
            return ()
        return ((f"cannot enter the working directory {folder!r}", lambda: os.chdir(folder)),)

    def _record(self, phase: str | None = None) -> None:
        super()._record(phase)
        if phase == "stopping" and self._stop_reason not in _KNOWN_TO_OTHERS:
            self._publish_result({"reason": self._stop_reason, "message": self._message})

    # the end -------------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Tell how it ended: the kubelet, and whoever gets the reports."""
        if self._code is not None:  # the reporter has not told it yet
            return
        result = self._result()
        self._code = self._exit_code(result)
        if self._start_error is not None:
            reason = "CommandNotFound" if self._code == _NOT_FOUND else "StartError"
            self._publish_result({"reason": reason, "message": result["message"]})
        elif result["reason"] == "OutputFailed" or self._is_data_wrong:
            self._publish_result({"reason": result["reason"], "message": result["message"]})
        elif result["output"] is not None or result["outlived_by"]:
            told = {"output": result["output"]} if result["output"] is not None else {}
            if result["outlived_by"]:
                told["outlived_by"] = result["outlived_by"]
            self._publish_result({**told, "message": result["message"]})
        self._end_reporter(result)

    def _result(self) -> dict[str, Any]:
        result = super()._result()
        if result["reason"] == "Hang":  # what then ended well was still ended by us
            result["exit_code"] = result["exit_code"] or 1
        return result

    def _exit_code(self, result: Mapping[str, Any]) -> int:
        """Return it as the command would have; 1 where something else has failed."""
        half_an_output = self._order.output_uri and self._status == 0 and self._passed_on
        if half_an_output or result["reason"] == "Terminated":
            return 128 + self._passed_on
        code: int | None = result["exit_code"]
        if result["reason"] == "Stopped":  # where nothing follows, that is no success of the pod
            return code or 128 + signal.SIGTERM
        return code or int(result["reason"] != "Completed")

    def _may_be_followed(self, result: Mapping[str, Any]) -> bool:
        if result["reason"] != "Stopped" and (
            self._limit.oom_killed or result["exit_code"] in _NEVER_STARTED
        ):
            return False
        return not self._passed_on and super()._may_be_followed(result)

    def _publish_result(self, result: dict[str, Any]) -> None:
        """Leave the result where the kubelet takes the container's last words from."""
        message = str(result.get("message", ""))
        text = _last_log_lines(result, message)
        while len(text) > _MAX_RESULT_BYTES and message:  # a cut document would say nothing
            message = message[: len(message) // 2]
            text = _last_log_lines(result, message)
        try:
            with Path(self._order.termination_log).open("w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self._say(f"cannot leave the result: {error}")

    # reports -------------------------------------------------------------------------------------
    def _attempt_report(self) -> dict[str, Any]:
        """Return what to report of an attempt that others may follow in this pod."""
        if not self._order.orders_file:
            return {}
        pod = os.environ.get("TRAINING_POD_UID", "")
        return {"number": self._number, "pod": pod, "started_at": self._begun_at}

    def _start_reporter(self) -> None:
        """Start the child that reports progress, if anybody wants it."""
        order = self._order
        if not order.progress_file or not (order.progress_url or order.progress_uri):
            return
        words, self._last_word = os.pipe()
        devices = self._preparation.devices

        def report() -> None:
            for number in _STOPPING:  # it ends after the command
                signal.signal(number, signal.SIG_IGN)
            os.close(self._last_word)
            reporter = Reporter(
                order,
                self._token,
                words,
                devices,
                self._attempt_report(),
                root=agent,
                say=self._say,
            )
            os._exit(0 if reporter.live() else 1)

        agent = os.getpid()
        self._reporter = self._loop.fork(report, ended=self._reporter_ended)
        self._tree.spared.add(self._reporter)
        os.close(words)

    def _end_reporter(self, result: Mapping[str, Any]) -> None:
        """Have it say its last word; only what was told is waited after."""
        if self._reporter is None and self._may_be_followed(result):
            self._start_reporter()  # stopped before there was anything to report
        if self._reporter is None:
            self._finished = True
            return
        word: dict[str, Any] = {}
        signalled, code = result["signal"], result["exit_code"]
        if self._status is not None:
            word["exit"] = {"exit_code": None if signalled else code, "signal": signalled}
        turn = self._attempt_report()
        if turn and not self._passed_on:
            word["turn"] = {
                **turn,
                "waits": self._may_be_followed(result),
                "finished_at": time.time(),
                "exit_code": code,
                "signal": signalled,
                "reason": result["reason"],
                "message": result["message"][:1000],
            }
        with contextlib.suppress(OSError):  # it may have died just now
            os.write(self._last_word, json.dumps(word).encode())
        os.close(self._last_word)
        self._waits = bool(word.get("turn", {}).get("waits"))
        reporter = self._reporter
        self._loop.after(LONGEST_SECONDS, "reporter", lambda: os.kill(reporter, signal.SIGKILL))

    def _reporter_ended(self, wait_status: int) -> None:
        self._tree.spared.clear()
        self._reporter = None
        self._loop.cancel("reporter")
        if self._code is None:  # it died while the command runs
            return
        if self._waits and wait_status == 0 and not self._passed_on:
            self._wait()
        else:
            self._finished = True


def _last_log_lines(result: dict[str, Any], message: str) -> str:
    return json.dumps({"airflow-training": {**result, "message": message}})
