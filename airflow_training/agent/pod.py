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

from airflow_training.agent.companion import LAST_LOOK_SECONDS, Companion
from airflow_training.agent.files import read_json, write_text
from airflow_training.agent.library import python_path
from airflow_training.agent.newest import NewestProgress
from airflow_training.agent.stalls import StallWatch
from airflow_training.agent.turns import Turns, expanded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["USAGE", "main"]

USAGE = """usage: agent hold --release FILE --answers FOLDER --addresses FILE
                  [--write | --write-executable SOURCE TARGET]...
       agent run [--output FOLDER --output-uri URI] [--progress FILE]
                 [--progress-url URL | --progress-uri URI] [--ready WANTED] [--stall LIMITS]
                 [--watch FOLDER] [--termination-log FILE]
                 [--orders FILE --in-place SECONDS]
                 -- COMMAND...
"""

_POLL_SECONDS = 0.2
_PROGRESS_SECONDS = 10.0
_FIRST_SECONDS = 1.0
"""Before the first report: a short command pays for one only."""
_PROGRESS_TIMEOUT_SECONDS = 5.0
_TERMINATION_LOG = "/dev/termination-log"
_MAX_RESULT_BYTES = 2000
"""Kubernetes keeps 4096 bytes of a termination message, and 12 KiB of those of all containers."""
_HANG_GRACE_SECONDS = 2.0
_HANG_STATUS = 1 << 8
"""Wait status of exit code 1: what hung and then ended well was still ended by us."""
_LONG_SECONDS = 3600.0
_ORDER_SECONDS = 1.0
"""How often to look for an order while the command runs."""
_TRIES = 5
"""How often to tell an end after which the pod waits: untold it would wait for nothing."""
_FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def main(arguments: Sequence[str]) -> int:
    """Run `hold` or `run`; returns the exit code."""
    verb, *rest = arguments
    try:
        return _hold(rest) if verb == "hold" else _Run(rest).live()
    except _UsageError as error:
        sys.stderr.write(f"agent {verb}: {error}\n{USAGE}")
        return 2


class _UsageError(Exception):
    pass


def _say(text: str) -> None:
    """Leave a line for people in the instance's own log."""
    with contextlib.suppress(OSError):
        os.write(2, f"airflow-training: {text}\n".encode())


# hold --------------------------------------------------------------------------------------------
def _hold(arguments: list[str]) -> int:
    """Wait for the answer that means this very pod, write what it makes possible."""
    options: dict[str, str] = {}
    writes: list[tuple[str, str, int]] = []
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if name in ("--write", "--write-executable") and len(rest) >= 2:
            mode = 0o755 if name == "--write-executable" else 0o644
            writes.append((rest.pop(0), rest.pop(0), mode))
        elif name in ("--release", "--answers", "--addresses") and rest:
            options[name] = rest.pop(0)
        else:
            raise _UsageError(f"what is {name!r}?")
    if len(options) != 3:
        raise _UsageError("--release, --answers and --addresses are needed")
    for number in _STOPPING:  # the first process of a container has no default for these
        signal.signal(number, lambda number, _: os._exit(128 + number))
    uid = os.environ.get("TRAINING_POD_UID", "")
    while True:
        answer = _answer(Path(options["--release"]), Path(options["--answers"]), uid)
        if answer is not None:
            break
        time.sleep(_POLL_SECONDS)
    if answer.get("kind") == "List":
        # whoever the training container runs as may read it
        write_text(
            Path(options["--addresses"]), json.dumps(answer.get("addresses", {})), mode=0o644
        )
    for source, target, mode in writes:
        write_text(Path(target), Path(source).read_text(encoding="utf-8"), mode=mode)
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
class _Run:
    """The parent of one command, as the first process of its container."""

    def __init__(self, arguments: list[str]) -> None:
        known = {
            "--output": "",
            "--output-uri": "",
            "--progress": "",
            "--progress-url": "",
            "--progress-uri": "",
            "--ready": "",
            "--stall": "",
            "--watch": "",
            "--termination-log": _TERMINATION_LOG,
            "--orders": "",
            "--in-place": "0",
        }
        rest = list(arguments)
        while rest and rest[0] != "--":
            name = rest.pop(0)
            if name not in known or not rest:
                raise _UsageError(f"what is {name!r}?")
            known[name] = rest.pop(0)
        self._command = rest[1:]
        if not self._command:
            raise _UsageError("no command")
        self._options = known
        self._token = os.environ.pop("TRAINING_CALLBACK_TOKEN", "")
        self._followed = False
        """The command has failed, and that another attempt may follow here was told."""
        self._stopped_by = 0
        self._devices: list[dict[str, Any]] = []
        """As they were before the start."""
        self._reporter: int | None = None
        self._last_word = -1
        """Tells the reporter how the command ended."""
        self._companion: Companion | None = None
        self._turns: Turns | None = None
        """Where other attempts may follow inside this pod."""
        if known["--orders"]:
            self._turns = Turns(known["--orders"], float(known["--in-place"]))

    def live(self) -> int:
        """Live through an attempt, and through those that follow in this pod; returns the exit code."""
        # blocked, so that they wait in a queue, also for the first process of a container
        signals = {signal.SIGCHLD, *_FORWARDED}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        while True:
            code = self._live_through_attempt()
            order = self._turns.await_next() if self._turns and self._followed else {}
            if not order:
                return code
            self._go_on_as(order)

    def _go_on_as(self, order: Mapping[str, Any]) -> None:
        options = self._options
        assert self._turns is not None  # noqa: S101  # it gave the order
        progress = Path(options["--progress"]) if options["--progress"] else None
        self._turns.begin(order, emptied=options["--output"], removed=progress)
        self._command = [expanded(str(word)) for word in order["command"]]
        self._companion = None
        with contextlib.suppress(OSError):  # what it said was about the attempt before
            Path(options["--termination-log"]).write_text("", encoding="utf-8")

    def _live_through_attempt(self) -> int:
        """Start the command, watch over it, bring its output away; returns the exit code."""
        self._followed = False
        unready = self._check_readiness()
        if unready:
            return unready
        self._start_reporter()
        reason, problem = self._start_companion()
        if problem:
            _say(f"no checkpoint can be restored or committed: {problem}")
            self._tell({"reason": reason, "message": problem})
            return 1
        command = os.fork()
        if command == 0:
            self._become_command()
        status = self._watch_over(command)
        self._end_companion(status)
        self._end_others(status)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        uri = self._options["--output-uri"]
        if code == 0 and uri:
            # told to end: what is there may be half of it, so it counts for nothing
            return 128 + self._stopped_by if self._stopped_by else self._bring_away(uri)
        return code

    def _check_readiness(self) -> int:
        """Return 0 once all is there that is wanted; the exit code where the command must not start."""
        if not self._options["--ready"]:
            return 0
        from airflow_training.agent.preflight import Preflight

        preflight = Preflight(
            json.loads(self._options["--ready"]),
            folder=Path(self._options["--progress"]).parent,
            cgroup=None,
            environment=os.environ,
            say=_say,
        )
        while True:
            verdict = preflight.look()
            if verdict is not None:
                break
            told = signal.sigtimedwait(_STOPPING, preflight.look_again_seconds)
            if told is not None:
                preflight.give_up()
                return 128 + told.si_signo
        _say(verdict.message)
        self._devices = verdict.devices
        if not verdict.ready:
            self._tell({"reason": verdict.reason, "message": verdict.message})
        return 0 if verdict.ready else 1

    def _start_companion(self) -> tuple[str, str]:
        """Have the watched folder put back; return reason and words where that is impossible."""
        folder = self._options["--watch"]
        if not folder:
            return "", ""
        self._companion = Companion(
            folder, environment=dict(os.environ), working_dir=str(Path.cwd()), log=2
        )
        return Companion.answer(self._companion.start())

    def _end_companion(self, status: int) -> None:
        """Let what the command wrote last be committed; `status`: how it ended."""
        companion = self._companion
        if companion is None or companion.pid is None:
            return
        companion.end(status)
        until = time.monotonic() + LAST_LOOK_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(companion.pid, os.WNOHANG)[0] == 0:
                    time.sleep(0.05)
                    continue
            break

    def _become_command(self) -> None:
        """Turn the forked child into the command; never returns."""
        code = _NOT_EXECUTABLE
        try:
            _default_signals()
            # the script may import our library, also where its job keeps no checkpoints
            os.environ["PYTHONPATH"] = python_path(os.environ)
            os.execvp(self._command[0], self._command)  # noqa: S606  # what we are for
        except OSError as error:
            code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
            message = f"cannot run {self._command[0]!r}: {error.strerror}"
            _say(message)
            reason = "CommandNotFound" if code == _NOT_FOUND else "StartError"
            self._tell({"reason": reason, "message": message})
        finally:
            os._exit(code)

    def _companion_ended(self, ended: Mapping[int, int]) -> None:
        """Start it again where it died beside a living command."""
        companion = self._companion
        status = None if companion is None or companion.pid is None else ended.get(companion.pid)
        if companion is None or status is None:
            return
        companion.pid = None
        pipe = companion.start_again() if status != 0 else None
        problem = "it died too often" if pipe is None else Companion.answer(pipe)[1]
        if status != 0 and problem:
            _say(f"checkpoints are not committed any more: {problem}")

    def _watch_over(self, command: int) -> int:
        """Return the wait status of the command; one that hangs is ended."""
        options = self._options
        stall: StallWatch | None = None
        if options["--stall"] and options["--progress"]:
            newest = NewestProgress(Path(options["--progress"]))
            stall = StallWatch(newest, json.loads(options["--stall"]))
        elif self._turns is None:
            return self._wait_for(command)
        look_at = time.monotonic()
        while True:
            pause = _LONG_SECONDS if stall is None else stall.every_seconds
            pause = pause if self._turns is None else min(pause, _ORDER_SECONDS)
            status = self._wait_a_while_for(command, pause)
            if status is not None:
                return status
            order = self._turns.is_to_stop() if self._turns is not None else {}
            if order:
                return self._end_tree(command, order)
            if stall is None or time.monotonic() < look_at:
                continue
            look_at = time.monotonic() + stall.every_seconds
            message = stall.look(now=time.monotonic())
            if message:
                return self._end_hanging(command, message)

    def _end_tree(self, command: int, order: Mapping[str, Any]) -> int:
        """End everything below as ordered; return the command's status."""
        from airflow_training.agent import proc, stacks

        tree = proc.descendants(os.getpid())
        tree.pop(self._reporter or 0, None)
        if order["dump_stacks"]:
            stacks.dump_stacks(tree, log=2, search_path=os.environ.get("PATH", os.defpath))
        for pid, start in tree.items():
            proc.kill_exactly(pid, start, signal.SIGTERM)
        status = self._wait_a_while_for(command, float(order["grace_seconds"]))
        if status is not None:
            return status
        for pid, start in tree.items():
            proc.kill_exactly(pid, start, signal.SIGKILL)
        return self._wait_for(command)

    def _end_hanging(self, command: int, message: str) -> int:
        """Leave the stacks in the log and end everything below; return the command's status."""
        from airflow_training.agent import proc, stacks

        _say(f"{message}; ending it, as it hangs")
        self._tell({"reason": "Hang", "message": message})
        if self._turns is not None:
            self._turns.why("Hang", message)
        tree = proc.descendants(os.getpid())
        tree.pop(self._reporter or 0, None)
        stacks.dump_stacks(tree, log=2, search_path=os.environ.get("PATH", os.defpath))
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid, start in tree.items():
                proc.kill_exactly(pid, start, number)
            status = self._wait_a_while_for(command, _HANG_GRACE_SECONDS)
            if status is not None:
                return status or _HANG_STATUS
        return self._wait_for(command)

    def _wait_for(self, pid: int) -> int:
        """Return the wait status of a child; meanwhile pass signals on and bury orphans."""
        while True:
            status = self._wait_a_while_for(pid, _LONG_SECONDS)
            if status is not None:
                return status

    def _wait_a_while_for(self, pid: int, seconds: float) -> int | None:
        """Do as `_wait_for`, but return None after `seconds` without a signal."""
        while True:
            told = signal.sigtimedwait({signal.SIGCHLD, *_FORWARDED}, seconds)
            if told is None:
                return None
            number = told.si_signo
            if number == signal.SIGCHLD:
                ended = dict(_reaped())
                if self._reporter in ended:
                    self._reporter = None
                if self._companion is not None:
                    self._companion_ended(ended)
                if pid in ended:
                    return ended[pid]
                continue
            if number in _STOPPING:
                self._stopped_by = number
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # output --------------------------------------------------------------------------------------
    def _bring_away(self, uri: str) -> int:
        """Upload in a child, so that the order to end still counts meanwhile."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _default_signals()
            _upload(self._options["--output"], uri, write)
        os.close(write)
        status = self._wait_for(pid)
        with os.fdopen(read, "rb") as pipe:
            answer = json.loads(pipe.read() or b"{}")
        if self._stopped_by:
            return 128 + self._stopped_by
        if status != 0 or "error" in answer:
            error = answer.get("error") or "the upload was killed"
            message = f"the output could not be uploaded: {error}"
            _say(message)
            self._tell({"reason": "OutputFailed", "message": message})
            return 1
        message = "" if answer.get("files") else "the output folder is empty"
        self._tell({"output": answer, "message": message})
        return 0

    def _tell(self, result: dict[str, Any]) -> None:
        """Leave the result where the kubelet takes the container's last words from."""
        message = str(result.get("message", ""))
        text = _result(result, message)
        while len(text) > _MAX_RESULT_BYTES and message:  # a cut document would say nothing
            message = message[: len(message) // 2]
            text = _result(result, message)
        try:
            with Path(self._options["--termination-log"]).open("w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            _say(f"cannot leave the result: {error}")

    # progress ------------------------------------------------------------------------------------
    def _start_reporter(self) -> None:
        """Start the child that reports progress, if anybody wants it."""
        options = self._options
        if not options["--progress"] or not (
            options["--progress-url"] or options["--progress-uri"]
        ):
            return
        last_word, self._last_word = os.pipe()
        self._reporter = os.fork()
        if self._reporter:
            os.close(last_word)
            return
        os.close(self._last_word)
        turn = {} if self._turns is None else self._turns.running()
        code = 1
        try:
            reporter = _Reporter(
                Path(options["--progress"]), options, self._token, last_word, self._devices, turn
            )
            code = 0 if reporter.live() else 1
        finally:
            os._exit(code)

    def _end_others(self, status: int) -> None:
        """Let the reporter say its last word, and end what the command left behind."""
        turn: dict[str, Any] = {}
        if self._turns is not None and not self._stopped_by:
            turn = self._turns.ended(status)
            if turn["waits"]:  # what is told to wait has nothing alive any more
                self._turns.kill_rest(besides=self._reporter)
        if self._reporter is not None:
            with contextlib.suppress(OSError):  # it may have died just now
                os.write(self._last_word, json.dumps({"status": status, "turn": turn}).encode())
            os.close(self._last_word)
            os.kill(self._reporter, signal.SIGTERM)
            until = time.monotonic() + 2 * _PROGRESS_TIMEOUT_SECONDS
            told = (0, 0)
            while told[0] == 0:
                told = os.waitpid(self._reporter, os.WNOHANG)
                if time.monotonic() > until:
                    os.kill(self._reporter, signal.SIGKILL)
                    until += _PROGRESS_TIMEOUT_SECONDS
                time.sleep(0.01)
            self._reporter = None
            self._followed = bool(turn) and turn["waits"] and told[1] == 0
            if self._followed:
                return
        if os.getpid() == 1:  # anywhere else -1 would mean processes of others
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)


def _result(result: dict[str, Any], message: str) -> str:
    return json.dumps({"airflow-training": {**result, "message": message}})


class _Reporter:
    """Brings progress and environment away: the newest every ten seconds, and once at the end."""

    def __init__(
        self,
        file: Path,
        options: dict[str, str],
        token: str,
        last_word: int,
        devices: list[dict[str, Any]],
        turn: dict[str, Any],
    ) -> None:
        """`last_word`: a pipe with how the command ended, once it has.

        `devices`: as they were before the start. `turn`: of the pod.
        """
        from airflow_training.agent.devices import device_watch
        from airflow_training.agent.environment import Recorder

        self._newest = NewestProgress(file)
        self._recorder = Recorder(
            file.with_name("environment.jsonl"),
            progress=file,
            root=os.getppid(),
            devices=device_watch(os.environ, devices),
        )
        self._last_word = last_word
        self._url = options["--progress-url"]
        self._uri = options["--progress-uri"]
        self._token = token
        self._turn = turn
        self._complained = False

    def live(self) -> bool:
        """Report until SIGTERM, and then what came last; return whether that was taken."""
        on, pause = "start", _FIRST_SECONDS
        if self._turn.get("number"):
            pause = 0.0  # somebody waits to hear that the turn has begun
        while True:
            if signal.sigtimedwait({signal.SIGTERM}, pause) is not None:
                on = "exit"
            told = _told(self._last_word) if on == "exit" else {}
            turn = told.pop("turn", None) or self._turn
            line = self._recorder.record(on, **told, **({"turn": turn} if turn else {}))
            said = {"progress": self._newest.look(), "environment": line}
            if on == "exit":
                return self._insist(said) if turn.get("waits") else self._report(said)
            self._report(said)
            on, pause = "interval", _PROGRESS_SECONDS

    def _insist(self, said: dict[str, Any]) -> bool:
        for _ in range(_TRIES):
            if self._report(said):
                return True
            time.sleep(1.0)
        return False

    def _report(self, said: dict[str, Any]) -> bool:
        try:
            document = json.dumps({**_identity(), **said}).encode()
            if self._url:
                _post(self._url, document, self._token)
            else:
                from airflow_training.agent.upload import put

                put(document, self._uri)
        except Exception as error:  # noqa: BLE001  # training goes on whatever becomes of its reports
            if not self._complained:
                _say(f"cannot report progress: {error}")
            self._complained = True
            return False
        return True


def _told(last_word: int) -> dict[str, Any]:
    """Return how the command ended, for the last record."""
    os.set_blocking(last_word, False)
    try:
        word = json.loads(os.read(last_word, 4096))
    except (OSError, ValueError):  # told to end by somebody else
        return {}
    status = word["status"]
    signalled = os.WIFSIGNALED(status)
    return {
        "turn": word["turn"],
        "exit": {
            "exit_code": None if signalled else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if signalled else None,
        },
    }


def _identity() -> dict[str, Any]:
    names = ("role", "index", "attempt", "job_attempt")
    return {name: os.environ.get(f"TRAINING_{name.upper()}", "") for name in names}


def _post(url: str, document: bytes, token: str) -> None:
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = Request(url, data=document, headers=headers, method="POST")  # noqa: S310  # as configured
    with urlopen(request, timeout=_PROGRESS_TIMEOUT_SECONDS):  # noqa: S310  # as configured
        pass


def _upload(folder: str, uri: str, answers: int) -> None:
    """Be the child that uploads; never returns."""
    try:
        from airflow_training.agent.upload import upload

        answer = upload(Path(folder), uri)
    except BaseException as error:  # noqa: BLE001  # whatever a storage client raises
        answer = {"error": f"{uri}: {error!r}"}
    try:
        with os.fdopen(answers, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
    finally:
        os._exit(0)


# processes ---------------------------------------------------------------------------------------
def _default_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, *_FORWARDED):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *_FORWARDED})


def _reaped() -> list[tuple[int, int]]:
    """Return (pid, wait status) of every child that has ended."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))
