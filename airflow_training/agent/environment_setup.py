"""Has the environment of a job ready in a child of the agent, and keeps it from being removed while the job runs on it.

Python 3.8 and newer, standard library only; the program that is started for it may need a newer one.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from pathlib import Path

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_training.agent.loop import Loop

__all__ = ["EnvironmentSetup", "activated"]

_MAY_PASS = 75
"""What the program exits with where another try may succeed."""
_WAITS_SECONDS = (1.0, 5.0, 20.0, 60.0, 60.0)
"""Before each further try of a storage that is away."""
_AGAIN_SECONDS = 0.1
"""After somebody was about to remove it."""
_LONGEST_WORDS = 1500
_KILLED = "it was killed while the environment was made ready"


class EnvironmentSetup:
    """Has the environment of one attempt ready, and holds it."""

    def __init__(
        self,
        environment: Mapping[str, Any],
        *,
        loop: Loop,
        variables: Mapping[str, str],
        log: int,
        say: Callable[[str], None],
    ) -> None:
        """`environment`: of the order. `variables`: of the command; they have the credentials of the storage."""
        self._environment = environment
        self._loop = loop
        self._variables = variables
        self._log = log
        self._say = say
        self._held: int | None = None
        self.folder = ""
        """Of the environment, once it is ready."""

    def start(self, done: Callable[[str, str], None]) -> None:
        """Have it ready; `done` gets reason and message of a failure, two empty texts for none."""
        there = self._environment.get("folder")
        if there:  # an init container has made it
            self.folder = there
            missing = not os.access(Path(there, "bin", "python"), os.X_OK)
            message = f"there is no environment in {there}" if missing else ""
            done("EnvironmentFailed" if missing else "", message)
            return

        def work() -> dict[str, Any]:
            os.environ.update(self._variables)
            return self._have()

        def told(answer: dict[str, Any] | None) -> None:
            answer = answer or {"problem": _KILLED, "code": 0}
            if "problem" in answer:
                refused = answer["code"] not in (0, _MAY_PASS)
                reason = "EnvironmentRefused" if refused else "EnvironmentFailed"
                done(reason, f"{self._environment['title']}: {answer['problem']}")
                return
            try:
                held = self._hold(answer["digest"])
            except OSError as error:  # somebody has removed the whole cache, or it is read-only now
                done("EnvironmentFailed", f"{self._environment['title']}: {error}")
                return
            if held:
                self._tell(answer)
                done("", "")
            else:
                self._loop.after(_AGAIN_SECONDS, "environment setup", lambda: self.start(done))

        self._loop.ask(work, then=told)

    def close(self) -> None:
        """Let it go: nothing of the job runs any more."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _have(self) -> dict[str, Any]:
        """Return the answer of the program; asks again where what it needs may only be away for a moment."""
        for wait in _WAITS_SECONDS:
            answer = self._ask()
            if answer.get("code") != _MAY_PASS:
                return answer
            self._say(f"{answer['problem'][:_LONGEST_WORDS]}; next try in {wait:g} s")
            time.sleep(wait)
        return self._ask()

    def _ask(self) -> dict[str, Any]:
        each = self._environment
        document = {"environment": each["order"], "cache": each["cache"]}
        command = [each["interpreter"], "-I", "-S", each["program"], json.dumps(document)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._log,
                check=False,
            )
        except OSError as error:
            return {"problem": f"{command[0]}: {error.strerror}", "code": _MAY_PASS}
        try:
            answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return {
                "problem": f"the program for it exits with {done.returncode}",
                "code": _MAY_PASS,
            }
        if "problem" in answer:
            return {"problem": answer["problem"][:_LONGEST_WORDS], "code": done.returncode}
        return answer

    def _hold(self, digest: str) -> bool:
        """Share the lock by which others see that it is used; False where it was removed meanwhile."""
        cache = Path(self._environment["cache"])
        held = os.open(cache / f"{digest}.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # somebody is about to remove it
            os.close(held)
            return False
        if not (cache / digest / "environment.json").exists():
            os.close(held)
            return False
        self._held, self.folder = held, str(cache / digest)
        return True

    def _tell(self, answer: Mapping[str, Any]) -> None:
        if not answer["cached"]:
            self._say(
                f"the environment {self._environment['title']} was made in {answer['seconds']:.1f} s"
            )


def activated(variables: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables that differ, so that `python` and programs are those of an environment."""
    path = variables.get("PATH") or os.defpath
    return {"PATH": f"{folder}/bin{os.pathsep}{path}", "VIRTUAL_ENV": folder}
