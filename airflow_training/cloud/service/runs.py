"""What a run says: its state, what its ranks print, what it wrote. Blocks; knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.accounts.bills import Bill
from airflow_training.accounts.run_bills import bill
from airflow_training.cloud.outputs import model_files
from airflow_training.cloud.protocol import (
    CloudRunState,
    SubmissionRequest,
    returned_path,
    returns_early,
)
from airflow_training.cloud.service.launching import RunLauncher
from airflow_training.cloud.service.layout import changed_files
from airflow_training.cloud.service.run_files import RunFiles
from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.state.store import open_store
from airflow_training.supervise.instance_logs import RunLogs
from airflow_training.supervise.status import run_status

__all__ = [
    "LogStretch",
    "chosen_files",
    "is_over",
    "read_log",
    "run_bill",
    "run_result",
    "run_state",
]

_LOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStretch:
    data: bytes
    next_offset: int
    attempt: int
    """-1: it has not begun."""
    end: bool
    """Nothing follows in this attempt."""
    next_attempt: int
    """-1: there is none yet."""
    name: str = ""


def run_state(launcher: RunLauncher, run_id: str) -> CloudRunState:
    """How a run stands; raises KeyError for one that is not there any more."""
    store = open_store()
    record = store.run(launcher.key(run_id).uid)
    if record is None:
        if (before := launcher.before_start(run_id)) is None:
            raise KeyError(run_id)
        return before
    status = run_status(store, record.uid)
    job = store.job(record.uid)
    over = status["state"] in TERMINAL_JOB_STATES
    instances = [
        {
            "rank": _rank(job, each["role"], each["index"]),
            "name": f"{each['role']}-{each['index']}",
            "state": each["state"],
            "exit_code": each["exit_code"],
            "signal": each["signal"],
            "progress": each["progress"],
        }
        for each in status["instances"]
    ]
    return CloudRunState(
        run_id=run_id,
        uid=record.uid,
        state=status["state"],
        over=over,
        exit_code=_exit_code(status["state"], instances) if over else None,
        message=status["message"] or "",
        instances=instances,
    )


def is_over(launcher: RunLauncher, run_id: str) -> bool:
    """Whether a run has ended; raises KeyError for one that is not there any more."""
    record = open_store().run(launcher.key(run_id).uid)
    if record is None:
        return run_state(launcher, run_id).over
    return record.state in TERMINAL_JOB_STATES


def _exit_code(state: str, instances: Sequence[Mapping[str, Any]]) -> int:
    """As the program would have ended here: rank 0's where it failed, else the first that did."""
    if state == "Succeeded":
        return 0
    ranked = sorted(instances, key=lambda each: (each["rank"] is None, each["rank"] or 0))
    for each in ranked:
        if each["state"] != "failed":
            continue
        if each["signal"]:
            return 128 + int(each["signal"])
        if each["exit_code"]:
            return int(each["exit_code"])
    return 1


def read_log(
    launcher: RunLauncher, run_id: str, *, rank: int, attempt: int, offset: int
) -> LogStretch:
    """What a rank has printed from a byte on; `attempt` -1: the first. Raises KeyError for no such rank."""
    store = open_store()
    record = store.run(launcher.key(run_id).uid)
    if record is None:
        over = run_state(launcher, run_id).over
        return LogStretch(data=b"", next_offset=offset, attempt=-1, end=over, next_attempt=-1)
    job = store.job(record.uid)
    place = _place(job, rank)
    logs = RunLogs(store=store, record=record, runtime=launcher.runtime(job))
    instance = logs.instance(*place)
    known = instance.attempts(instance.state())
    chosen = known.get(min(known, default=-1) if attempt < 0 else attempt)
    if chosen is None or not instance.has_begun(chosen):
        return LogStretch(
            data=b"", next_offset=offset, attempt=-1, end=instance.final(), next_attempt=-1
        )
    later = instance.after(chosen)
    over = later is not None or instance.final()
    source = logs.open(instance, chosen)
    try:
        if offset:
            source.read(0, 1)  # whether offsets are what its cursors are
        part = source.read(offset, _LOG_BYTES)
    finally:
        source.close()
    return LogStretch(
        data=part.data,
        next_offset=part.next_offset,
        attempt=chosen.attempt,
        end=part.end or (over and not part.data),
        next_attempt=-1 if later is None else later.attempt,
        name=instance.name,
    )


def run_bill(launcher: RunLauncher, run_id: str) -> Bill:
    """What a run has used and cost so far, from the ledger of its instances. Raises InputError, KeyError."""
    store, key = open_store(), launcher.key(run_id)
    if store.run(key.uid) is None:
        raise InputError.of(
            code="not_found",
            field="run",
            value=run_id,
            message=f"has not begun ({run_state(launcher, run_id).message}): it has used nothing",
        )
    return bill(store, key.uid)


def chosen_files(request: SubmissionRequest, written: Sequence[str]) -> Sequence[str]:
    """Which of the files that a run wrote below its project come back."""
    named = returned_path(request.returns)
    below = request.command.working_dir.removeprefix("project").strip("/")
    return model_files(written, path=f"{below}/{named}" if named and below else named)


def run_result(request: SubmissionRequest, folder: Path, known: RunFiles) -> Mapping[str, Any]:
    """What a run wrote below its project: what comes back with size and digest, and the names of the rest."""
    written = [each.removeprefix("project/") for each in changed_files(folder)]
    chosen = chosen_files(request, written)
    early = returns_early(request.returns)
    return {
        "returns": request.returns,
        "address": str(folder / "project"),
        "files": known.rows(folder / "project", chosen, whole=early) if chosen else [],
        "others": [each for each in written if each not in {*chosen}][:1000],
    }


def _rank(job: ResolvedJob, role: str, index: int) -> int | None:
    known = next((each for each in job.roles if each.name == role), None)
    return None if known is None else known.rank_of(index)


def _place(job: ResolvedJob, rank: int) -> tuple[str, int]:
    for role in job.roles:
        if role.rank_offset is not None and 0 <= rank - role.rank_offset < role.replicas:
            return role.name, rank - role.rank_offset
    raise KeyError(str(rank))
