"""The process that lives as long as a run whose data comes on demand: lays it out, fetches, and tells how that goes.

    python -m airflow_training.cloud.service.data_host STATE

It says one line on standard output: `{"ready": true}`, or `{"refused": WHY}`. Whoever starts it may end; one that is
killed is started again by the next question of the sharing machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow_training.cloud.locks import take_lock
from airflow_training.cloud.service.data_waits import DataFacts, DataWait, judge_data_wait
from airflow_training.cloud.service.run_data import DataPlace, RunData
from airflow_training.control.model import TERMINAL_JOB_STATES, Event
from airflow_training.errors import InputError
from airflow_training.interception.protocol import hook_environment
from airflow_training.remote_data.errors import DataError, error_of
from airflow_training.remote_data.guard import Guard, probe_guard
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.remote_data.source_address import mailbox_address
from airflow_training.remote_data.starting import RunningFetcher, start_fetcher
from airflow_training.state.store import Store, open_store

__all__ = ["main"]

_LOOK_SECONDS = 0.5
_LOOK_AFAR_SECONDS = 2.0
"""A storage that others reach too may charge for each look."""
_NO_RUN_SECONDS = 300.0
"""A run that does not begin within this time was refused."""
_FOREVER = 1e9
"""How long data may not come is judged here, by pausing the run; no open fails for it."""


class DataHost:
    """One run's data, from its beginning to its end."""

    def __init__(self, data: RunData, config: Mapping[str, Any]) -> None:
        self._data = data
        self._manifest = DataManifest.from_json(config["manifest"])
        self._patience = float(config["wait_seconds"])
        self._places = {root.name: str(data.folder / root.name) for root in self._manifest.roots}
        self._began = time.time()
        status = data.status()
        kept = status.get("wait")
        self._wait = DataWait(**kept) if kept else DataWait()
        self._failure = _failure_of(status)
        """The first: what came later does not undo what was read before."""

    def start(self) -> RunningFetcher | None:
        """Lay it out and let it be fetched; None where instances do that themselves.

        Raises InputError where nothing would tell of an early read.
        """
        return self._start_fetcher() if self._data.place.is_here else None

    def _start_fetcher(self) -> RunningFetcher:
        files = sum(len(root.files) for root in self._manifest.roots)
        guard = self._guard(files)
        if not guard.is_any:
            raise InputError.of(
                code="not_supported",
                field="data",
                message="the file system of the service keeps nobody from data that has not come",
            )
        fetcher = start_fetcher(
            self._manifest,
            places=self._places,
            state=self._data.state / "fetcher",
            source=mailbox_address(self._data.place.storage),
            cache=self._data.place.storage,
            patience_seconds=_FOREVER,
            guard=guard,
        )
        tops = {self._data.folder / name.split("/")[0] for name in self._places}
        variables = hook_environment(
            socket=fetcher.socket,
            data_roots=sorted(map(str, tops)),
            guard="leases" if guard.leases else "",
            code_roots=[str(self._data.folder / each) for each in ("project", "imports")],
            ranges_from=fetcher.ranged_from,
        )
        draft = self._data.state / "variables.draft"
        draft.write_text(json.dumps(variables), encoding="utf-8")
        draft.replace(self._data.state / "variables.json")
        return fetcher

    def _guard(self, files: int) -> Guard:
        found = [probe_guard(Path(each), files=files) for each in self._places.values()]
        return Guard(
            leases=all(each.leases for each in found),
            modes=all(each.modes for each in found),
            times=all(each.times for each in found),
        )

    def follow(self, fetcher: RunningFetcher | None) -> None:
        """Tell and ask what is to be told and asked until the run is over."""
        store = open_store()
        counts: Mapping[str, Any] = {}
        while True:
            try:
                counts, is_wanted = self._look(fetcher)
            except (OSError, ValueError):
                if fetcher is not None:  # it was killed, and nobody is held back meanwhile
                    fetcher = self._start_again(fetcher)
                    continue
                is_wanted = False  # the storage is away, and so it is for who asks there
            record = store.run(self._data.uid)
            if record is not None and record.state in TERMINAL_JOB_STATES:
                break
            is_late = time.time() - self._began > _NO_RUN_SECONDS
            if record is None and (is_late or self._data.is_abandoned):
                if fetcher is not None:
                    fetcher.finish()  # who starts the run later starts this again
                return
            if self._failure is None and fetcher is not None:
                self._failure = fetcher.failure()
            failure = self._failure
            facts = DataFacts(
                now=time.time(),
                seen_at=self._data.seen_at() or self._began,
                is_wanted=is_wanted,
                run_state="" if record is None else record.state,
                failure=None if failure is None else (failure.reason, str(failure)),
            )
            if record is not None:
                self._judge(store, facts)
            self._tell(counts=counts, failure=failure)
            time.sleep(_LOOK_SECONDS if fetcher is not None else _LOOK_AFAR_SECONDS)
        self._finish(store, fetcher, counts)

    def _look(self, fetcher: RunningFetcher | None) -> tuple[Mapping[str, Any], bool]:
        """What was fetched so far, as far as that is known here, and whether something is waited for."""
        if fetcher is None:
            return {}, bool(self._data.letters.requests())
        answer = fetcher.ask({"counts": True})
        return answer["counts"], bool(answer["waiting_for"])

    def _start_again(self, fetcher: RunningFetcher) -> RunningFetcher:
        """Have it look for what was read without it, and go on."""
        with contextlib.suppress(DataError):
            fetcher.finish()
        return self._start_fetcher()

    def _judge(self, store: Store, facts: DataFacts) -> None:
        before = self._wait
        self._wait, events, asked = judge_data_wait(facts, before, patience_seconds=self._patience)
        self._record(store, events)
        if asked is not None:
            store.add_request(
                self._data.uid,
                asked.kind,
                reason=asked.reason,
                by="data on demand",
                key=f"data-{asked.kind}-{facts.now:.3f}",
            )

    def _record(self, store: Store, events: Sequence[Event]) -> None:
        if events:
            store.add_events(self._data.uid, events)

    def _tell(
        self, *, counts: Mapping[str, Any], failure: DataError | None, ended: bool = False
    ) -> None:
        since = self._wait.since
        status = {
            "waiting": ""
            if since is None
            else f"since {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(since))} nobody shares the run's data;"
            f" next, where it was sent from: airflow-training cloud share {self._data.run_id}",
            "failure": None
            if failure is None
            else {"reason": failure.reason, "message": str(failure)},
            "counts": counts,
            "wait": asdict(self._wait),
            "ended": ended,
        }
        if status != self._data.status():
            self._data.tell_status(status)

    def _finish(
        self, store: Store, fetcher: RunningFetcher | None, counts: Mapping[str, Any]
    ) -> None:
        failure = self._failure
        if fetcher is None:
            with contextlib.suppress(OSError):
                counts = self._data.letters.counts()
        else:
            try:
                counts = fetcher.finish()
            except DataError as error:
                failure = failure or error
        told = Event(
            at=time.time(),
            reason="DataFetched",
            message=_what_was_read(counts),
            data=dict(counts),
        )
        if failure is not None and self._wait.failed_at is None:
            told = Event(at=time.time(), reason=failure.reason, message=str(failure), level="error")
        try:
            self._record(store, [told])
        finally:  # how it ended counts more than its story
            self._wait = DataWait(failed_at=self._wait.failed_at)
            self._tell(counts=counts, failure=failure, ended=True)
        with contextlib.suppress(OSError):  # a storage that is away: what is left there asks nobody
            self._data.letters.clear()


def _what_was_read(counts: Mapping[str, Any]) -> str:
    ranges = counts.get("ranges", 0)
    more = f", and {ranges} ranges of larger files" if ranges else ""
    return f"{counts.get('files', 0)} files of {counts.get('bytes', 0)} bytes were read on demand{more}"


def _failure_of(status: Mapping[str, Any]) -> DataError | None:
    told = status.get("failure")
    return error_of(told["reason"], told["message"]) if told else None


def main(state: str) -> int:
    """Host the data of the run whose configuration lies in a folder, unless another process does."""
    folder = Path(state)
    with (folder / "host.lock").open("a") as lock:
        if not take_lock(lock):
            return _say({"ready": True})
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        data = RunData(
            run_id=config["run_id"],
            uid=config["uid"],
            folder=Path(config["folder"]),
            state=folder,
            place=DataPlace(**config["place"]),
        )
        host = DataHost(data, config)
        try:
            fetcher = host.start()
        except InputError as error:
            _say({"refused": "; ".join(each.message for each in error.problems)})
            return 2
        _say({"ready": True})
        host.follow(fetcher)
    return 0


def _say(document: Mapping[str, Any]) -> int:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
