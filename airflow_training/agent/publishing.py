"""What a command wrote is brought away: predictions while it runs, the output at its end. Python 3.8 and newer.

In children, so that orders, the deadline and the end of the command still count meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

from airflow_training.agent.early_output import EarlyOutput
from airflow_training.agent.predictions import NewPredictions

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_training.agent.loop import Loop
    from airflow_training.agent.order import Order

__all__ = ["Publisher"]

_EVERY_SECONDS = 2.0
"""Between two looks for new predictions."""
_REST_SECONDS = 60.0
"""How long the last ones may take, after which the attempt ends without them."""


class Publisher:
    """Publishes predictions and output of one attempt where its order says."""

    def __init__(
        self,
        order: Order,
        *,
        loop: Loop,
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        """`environment`: has the credentials of the object storage. `say` leaves a line in the log."""
        self._order = order
        self._loop = loop
        self._environment = environment
        self._say = say
        self._predictions: NewPredictions | None = None
        self._child: int | None = None
        """It brings predictions away."""
        self._has_complained = False
        self._early = EarlyOutput(order, loop=loop, environment=environment, say=say)

    def prepare(self) -> None:
        """Make the folder in which predictions are looked for, where there are to be any."""
        if self._order.predictions_dir and self._order.predictions_uri:
            with contextlib.suppress(OSError):  # then there is nothing to publish
                Path(self._order.predictions_dir).mkdir(parents=True, exist_ok=True)
            self._predictions = NewPredictions(self._order.predictions_dir, say=self._say)

    def begin(self) -> None:
        """Bring away what is complete from now on, until `end`."""
        self._early.begin()
        self.follow()

    def follow(self) -> None:
        """Bring away what is complete, one child at a time, now and until `end`."""
        if self._predictions is None:
            return
        files = self._predictions.complete(at_end=False)
        if files and self._child is None:
            self._publish(files, then=lambda: None)
        self._loop.after(_EVERY_SECONDS, "predictions", self.follow)

    def end(self) -> None:
        """Look for no more predictions; those that are on their way go on."""
        self._early.end()
        self._loop.cancel("predictions")

    def publish_rest(self, *, then: Callable[[], None]) -> None:
        """Bring the last predictions away, as far as time allows, and go on with `then`."""
        files = {} if self._predictions is None else self._predictions.complete(at_end=True)
        if not files:
            then()
            return

        def published() -> None:
            self._loop.cancel("publisher")
            then()

        self._publish(files, then=published)
        child = self._child or 0
        self._loop.after(_REST_SECONDS, "publisher", lambda: os.kill(child, signal.SIGKILL))

    def _publish(self, files: Mapping[str, Any], *, then: Callable[[], None]) -> None:
        predictions, order = self._predictions, self._order
        if predictions is None:
            return
        read, write = os.pipe()

        def publish_all() -> None:
            os.environ.update(self._environment)
            from airflow_training.agent.predictions import publish

            try:
                for done in publish(order.predictions_dir, files, order.predictions_uri):
                    os.write(write, b"+" if done else b"-")
            except BaseException as error:  # noqa: BLE001  # whatever a storage client raises
                os.write(write, f" {error!r}"[:500].encode(errors="replace"))

        def published(_: int) -> None:
            self._child = None
            with os.fdopen(read, "rb") as pipe:
                told, _space, problem = pipe.read().decode(errors="replace").partition(" ")
            there = zip(files, told)  # noqa: B905  # it may have been ended half-way
            predictions.published({name: files[name] for name, done in there if done == "+"})
            if problem and not self._has_complained:
                self._has_complained = True
                self._say(f"cannot publish predictions to {order.predictions_uri}: {problem}")
            then()

        self._child = self._loop.fork(publish_all, ended=published)
        os.close(write)

    def upload(self, uri: str, *, then: Callable[[Mapping[str, Any]], None]) -> None:
        """Upload the output and go on with `then`, which is given what there is now, or an `error`."""
        read, write = os.pipe()

        def upload() -> None:
            os.environ.update(self._environment)
            try:
                from airflow_training.agent.upload import fetch_output, upload_patiently

                fetch_output()
                self._early.clean()
                changes = {}
                if self._order.code is not None:
                    from airflow_training.agent.code_setup import changes_to_upload

                    changes = changes_to_upload(Path(self._order.code_dir))
                folder = Path(self._order.output_dir)
                answer = upload_patiently(folder, uri, say=self._say, beside=changes)
            except BaseException as error:  # noqa: BLE001  # whatever the program that fetches it does
                answer = {"error": f"{uri}: {error!r}"}
            if "error" in answer:
                self._say(f"cannot upload the output to {answer['error']}")
            os.write(write, json.dumps(answer).encode())

        def uploaded(_: int) -> None:
            with os.fdopen(read, "rb") as pipe:
                then(json.loads(pipe.read() or b'{"error": "it was killed"}'))

        self._loop.fork(upload, ended=uploaded)
        os.close(write)
