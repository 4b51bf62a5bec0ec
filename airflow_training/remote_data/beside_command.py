"""Data on demand beside one command, as its agent starts it: lays the data out, fetches, and says how that went.

    python -m airflow_training.remote_data.beside_command CODE STATE

`CODE` is the folder of a tree with `on-demand/data.json`, where the data is laid out too; the variable
TRAINING_DATA_ON_DEMAND says whom to ask. On standard output, a line each: `{"variables": {...}}` of the command, or
`{"error": REASON, "message": TEXT}`; and, once standard input has a line or has ended, `{"failure": null}` or `{"failure": [REASON, TEXT]}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.errors import InputError
from airflow_training.interception.protocol import hook_environment
from airflow_training.remote_data.chunks import open_chunk_store
from airflow_training.remote_data.errors import DataError
from airflow_training.remote_data.mailbox import LetterBox
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.remote_data.starting import RunningFetcher, start_fetcher

__all__ = ["LIST_FILE", "PROGRAM_FOLDER", "VARIABLE", "main"]

PROGRAM_FOLDER = "on-demand"
LIST_FILE = "data.json"
VARIABLE = "TRAINING_DATA_ON_DEMAND"
"""All three as `agent.data_fetcher` has them, which is packed without this room."""
_LOOK_SECONDS = 1.0
_FOREVER = 1e9
"""How long data may not come is judged where the run is driven, by pausing it; no open fails for it."""
_LONGEST_SOCKET = 100
"""Bytes of the path of a socket, of 108 that the kernel takes."""
_LONGEST_MESSAGE = 1500


class _FetchSidecar:
    def __init__(self, code: Path, state: Path, order: Mapping[str, Any]) -> None:
        document = (code / PROGRAM_FOLDER / LIST_FILE).read_bytes()
        self._manifest = DataManifest.from_bytes(document, source=str(order["run"]))
        self._code = code
        self._state = state
        self._order = order

    def start(self) -> RunningFetcher:
        socket = str(self._state / "socket")
        return start_fetcher(
            self._manifest,
            places={root.name: self._code / root.name for root in self._manifest.roots},
            state=self._state,
            source=self._order["source"],
            cache=str(self._order["cache"]),
            patience_seconds=_FOREVER,
            socket=socket if len(os.fsencode(socket)) < _LONGEST_SOCKET else "",
        )

    def variables(self, fetcher: RunningFetcher) -> Mapping[str, str]:
        tops = {self._code / root.name.split("/")[0] for root in self._manifest.roots}
        return hook_environment(
            socket=fetcher.socket,
            data_roots=sorted(map(str, tops)),
            guard="leases" if fetcher.guard.leases else "",
            code_roots=[str(self._code / each) for each in ("project", "imports")],
            ranges_from=fetcher.ranged_from,
        )

    def follow(self, fetcher: RunningFetcher) -> tuple[str, str] | None:
        """Keep it alive until it is told to end; returns reason and message of what went wrong."""
        while not select.select([0], [], [], _LOOK_SECONDS)[0]:
            fetcher = self._kept_alive(fetcher)
        try:
            counts = fetcher.finish()
        except DataError as error:
            return error.reason, str(error)
        with contextlib.suppress(OSError, CheckpointError):  # for the run's story only
            letters = LetterBox(open_chunk_store(str(self._order["cache"])), self._manifest.source)
            letters.keep_counts(counts)
        return None

    def _kept_alive(self, fetcher: RunningFetcher) -> RunningFetcher:
        try:
            fetcher.ask({"counts": True})
        except (OSError, ValueError):  # it was killed: what was read meanwhile is found by times
            with contextlib.suppress(DataError):
                fetcher.finish()
            return self.start()
        return fetcher


def main(code: str, state: str) -> int:
    """Serve until it is told to end; returns 2 where the data cannot be laid out."""
    try:
        sidecar = _FetchSidecar(Path(code), Path(state), json.loads(os.environ[VARIABLE]))
        fetcher = sidecar.start()
    except (DataError, InputError, OSError) as error:
        reason = error.reason if isinstance(error, DataError) else DataError.reason
        _say({"error": reason, "message": str(error)[:_LONGEST_MESSAGE]})
        return 2
    _say({"variables": sidecar.variables(fetcher)})
    try:
        failure = sidecar.follow(fetcher)
    except (DataError, InputError) as error:  # it could not be started again
        failure = (DataError.reason, str(error))
    _say({"failure": failure and [failure[0], failure[1][:_LONGEST_MESSAGE]]})
    return 0


def _say(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
