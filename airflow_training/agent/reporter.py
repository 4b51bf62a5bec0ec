"""The child of a pod's agent that brings progress and records away. Python 3.8 and newer."""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path

from airflow_training.agent.progress_tail import MOST_POINTS, NewestProgress, merge_points

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from airflow_training.agent.order import Order

__all__ = ["LONGEST_SECONDS", "Reporter"]

_PROGRESS_SECONDS = 10.0
_FIRST_SECONDS = 1.0
"""Before the first report: a short command pays for one only."""
_TIMEOUT_SECONDS = 5.0
LONGEST_SECONDS = 2 * _TIMEOUT_SECONDS
"""How long the last report may take, after which the reporter is killed."""
_MOST_BYTES = 1 << 16
"""Of one report: nobody reads more."""
_TRIES = 5
"""How often to tell an end after which the pod waits: untold it would wait for nothing."""


class Reporter:
    """Brings progress and environment away: the newest every ten seconds, and once at the end."""

    def __init__(
        self,
        order: Order,
        token: str,
        words: int,
        devices: list[dict[str, Any]],
        turn: dict[str, Any],
        *,
        root: int,
        say: Callable[[str], None],
    ) -> None:
        """`words`: a pipe with how the command ended, once it has. `root`: the agent's pid.

        `devices`: as they were before the start. `turn`: of the pod.
        """
        from airflow_training.agent.devices import device_watch
        from airflow_training.agent.environment import Recorder
        from airflow_training.agent.plan_use import PlanUse

        file = Path(order.progress_file)
        self._newest = NewestProgress(file)
        self._recorder = Recorder(
            file.with_name("environment.jsonl"),
            progress=file,
            own_cgroup=True,  # the container's
            root=root,
            devices=device_watch(os.environ, devices),
            plan=PlanUse(
                order.command,
                working_dir=order.working_dir,
                environment=os.environ,
                progress=file,
            ),
        )
        self._words = words
        self._url = order.progress_url
        self._uri = order.progress_uri
        self._token = token
        self._turn = turn
        self._say = say
        self._complained = False
        self._told_software = ""
        self._document: dict[str, Any] = {}
        self._points: dict[str, list[Any]] = {}
        """What the next report tells of them."""
        self._new_points: dict[str, list[Any]] = {}
        """Those that no report has told."""

    def live(self) -> bool:
        """Report until the command has ended, and then what came last; return whether that was taken."""
        on, pause = "start", _FIRST_SECONDS
        if self._turn.get("number"):
            pause = 0.0  # somebody waits to hear that the turn has begun
        while True:
            word = self._await_end(pause)
            if word is not None:
                on = "exit"
            told: dict[str, Any] = dict(word or {})
            turn = told.pop("turn", None) or self._turn
            if turn:
                told["turn"] = turn
            line = self._recorder.record(on, **told)
            said = {"progress": self._poll(), "environment": line, **self._news_of_software()}
            if on == "exit":
                return self._insist(said) if turn.get("waits") else self._report(said)
            self._report(said)
            on, pause = "interval", _PROGRESS_SECONDS

    def _news_of_software(self) -> dict[str, str]:
        """Return what was not told of it, or lies where the next report takes its place."""
        line = self._recorder.software
        return {} if line == self._told_software and self._url else {"software": line}

    def _poll(self) -> dict[str, Any]:
        document = self._newest.poll()
        if document is not self._document:
            self._document = document
            points = document.get("points", {})
            self._points = merge_points(self._points, points)
            self._new_points = merge_points(self._new_points, points)
        return {name: value for name, value in document.items() if name != "points"}

    def _await_end(self, seconds: float) -> dict[str, Any] | None:
        """Return how the command ended; None where it has not after so long."""
        if not select.select([self._words], [], [], seconds)[0]:
            return None
        try:
            word: dict[str, Any] = json.loads(os.read(self._words, 1 << 16))
        except ValueError:  # the agent has died
            return {}
        return word

    def _insist(self, said: dict[str, Any]) -> bool:
        for _ in range(_TRIES):
            if self._report(said):
                return True
            time.sleep(1.0)
        return False

    def _report(self, said: dict[str, Any]) -> bool:
        try:
            document = self._body(said)
            if self._url:
                _post(self._url, document, self._token)
            else:
                from airflow_training.agent.upload import put

                put(document, self._uri)
        except Exception as error:  # noqa: BLE001  # training goes on whatever becomes of its reports
            if not self._complained:
                self._say(f"cannot report progress: {error}")
            self._complained = True
            return False
        self._told_software = said.get("software", self._told_software)
        # nobody answers for what lies in storage: the next report repeats it
        self._points, self._new_points = {} if self._url else self._new_points, {}
        return True

    def _body(self, said: dict[str, Any]) -> bytes:
        """Return the report, with as many points as there is room for."""
        most = MOST_POINTS
        while self._points and most:
            points = merge_points(self._points, {}, most=most)
            progress = {**said["progress"], "points": points}
            body = json.dumps({**_identity(), **said, "progress": progress}).encode()
            if len(body) <= _MOST_BYTES:
                return body
            most //= 2
        return json.dumps({**_identity(), **said}).encode()


def _identity() -> dict[str, Any]:
    names = ("role", "index", "attempt", "job_attempt")
    return {name: os.environ.get(f"TRAINING_{name.upper()}", "") for name in names}


def _post(url: str, document: bytes, token: str) -> None:
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = Request(url, data=document, headers=headers, method="POST")  # noqa: S310  # as configured
    with urlopen(request, timeout=_TIMEOUT_SECONDS):  # noqa: S310  # as configured
        pass
