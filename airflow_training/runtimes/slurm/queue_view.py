"""What `squeue` and `sbatch` say, in our words. Pure.

`squeue --json` is not asked for: before Slurm 23.11 it answers with the jobs of all users whatever filter is
given, and its form is another one in every second version. The fields of `--format` are the same in all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_training.control import reasons

__all__ = [
    "QUEUE_COMMAND",
    "SLURM_AWAY",
    "QueuedJob",
    "SubmitAnswer",
    "end_reason",
    "is_near_end",
    "parse_queue",
    "read_job_id",
    "read_refusal",
    "wait_reason",
]

QUEUE_COMMAND = ("squeue", "--array", "--states=all", "--noheader", "--format=%i|%T|%S|%e|%N|%j|%r")
"""Id, state, start and end (epoch seconds, as `SLURM_TIME_FORMAT` asks for), nodes, name, reason.

The two that people can write are the last: a `|` in them must not hide a job, which would be taken for one that is gone.
"""
SLURM_AWAY = "SlurmAway"
_OVER = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
    "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
})  # fmt: skip
_NEVER = re.compile(
    r"(?:BadConstraints|PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|InvalidAccount|InvalidQOS"
    r"|AccountNotAllowed|QOSNotAllowed|(?:QOS|Assoc)Max\w*(?:PerJob|PerNode)\w*|(?:QOS|Assoc)MaxWallDuration\w*"
    r"|QOSMin\w+)$"
)
"""Reasons of what waits although no node and no limit will ever let it go."""
_ENDS: Mapping[str, str] = {
    "TIMEOUT": "SlurmTimeLimit",
    "DEADLINE": "SlurmTimeLimit",
    "PREEMPTED": "SlurmPreempted",
    "NODE_FAIL": "SlurmNodeFail",
    "BOOT_FAIL": "SlurmNodeFail",
    "LAUNCH_FAILED": "SlurmLaunchFailed",
    "RECONFIG_FAIL": "SlurmLaunchFailed",
    "OUT_OF_MEMORY": reasons.OUT_OF_MEMORY,
    "CANCELLED": "SlurmCancelled",
    "REVOKED": "SlurmCancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One job, component (`+N`) or array element (`_N`) as the queue lists it. Times: epoch seconds."""

    id: str
    name: str
    state: str
    reason: str = ""
    starts_at: float | None = None
    """Of one that waits, when it is expected to start."""
    ends_at: float | None = None
    nodes: str = ""

    @property
    def over(self) -> bool:
        """Return whether nothing of it runs, and nothing will."""
        return self.state in _OVER

    @property
    def waits(self) -> bool:
        return self.state in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def parse_queue(text: str) -> dict[str, QueuedJob]:
    """Id -> job, from the output of `QUEUE_COMMAND`."""
    found = {}
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) != 7:
            continue
        job, state, starts, ends, nodes, name, reason = (each.strip() for each in fields)
        found[job] = QueuedJob(
            id=job,
            name=name,
            state=state,
            reason="" if reason == "None" else reason.strip("()"),
            starts_at=_time(starts),
            ends_at=_time(ends),
            nodes=nodes,
        )
    return found


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() and text != "0" else None


def wait_reason(job: QueuedJob) -> tuple[str, str]:
    """Return (reason, message) of what waits in the queue, with the start that Slurm expects."""
    why = job.reason or job.state
    if _NEVER.match(why):
        return reasons.NEVER_FITS, f"Slurm will never start it: {why} (job {job.id})"
    words = _WAITS.get(why, "waits in the queue")
    return reasons.UNSCHEDULABLE, f"{words} ({why}, job {job.id})"


_WAITS: Mapping[str, str] = {
    "Resources": "waits in the queue for resources",
    "Priority": "waits in the queue behind jobs of higher priority",
    "Dependency": "waits in the queue for another job",
    "Reservation": "waits in the queue for its reservation",
    "BeginTime": "waits in the queue for its begin time",
    "JobHeldAdmin": "is held by an administrator",
    "JobHeldUser": "is held by its user",
    "PartitionDown": "waits as its partition is down",
    "PartitionInactive": "waits as its partition is inactive",
    "ReqNodeNotAvail": "waits for nodes that are not available now",
    "Licenses": "waits in the queue for licenses",
}


def end_reason(jobs: Iterable[QueuedJob], *, asked_to_end: bool) -> tuple[str, str]:
    """Return (reason, message) why an allocation with these jobs (components) ended under its steps.

    `asked_to_end`: a step got SIGTERM; where its job still runs, the end of its time is near.
    """
    known = list(jobs)
    for job in known:
        if job.state in _ENDS:
            return _ENDS[job.state], f"Slurm job {job.id}: {job.state}" + (
                f" ({job.reason})" if job.reason else ""
            )
    if asked_to_end and known:
        return "Terminated", f"Slurm job {known[0].id} was asked to end (SIGTERM)"
    states = ", ".join(f"{job.id} {job.state}" for job in known) or "the queue has it no more"
    return "SlurmJobLost", f"the allocation is gone: {states}"


_EARLY_SECONDS = 65.0
"""Slurm sends the signal that announces the end up to a minute early."""


def is_near_end(job: QueuedJob, *, at: float, warned: int) -> bool:
    """Return whether its steps were told of the end of its time by then, `warned` seconds ahead of it."""
    return job.ends_at is not None and at >= job.ends_at - warned - _EARLY_SECONDS


def read_job_id(text: str) -> str:
    """Return the job id from what `sbatch --parsable` prints; "" where there is none.

    Sites wrap sbatch, and let it greet: the id is a line of its own, the last one.
    """
    found = re.findall(r"^\s*(\d+)(?:;\S*)?\s*$", text, re.M)
    return found[-1] if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitAnswer:
    """What became of one `sbatch`."""

    kind: Literal["refused", "impossible", "away"]
    reason: str
    message: str


_SUBMIT: tuple[tuple[re.Pattern[str], Literal["refused", "impossible", "away"], str], ...] = (
    (
        re.compile(
            r"(?i)unable to contact|socket timed out|connection refused|zero bytes were transmitted"
            r"|slurm_persist_conn|could not establish|unexpected message received|controller .*(?:down|standby)"
            r"|protocol authentication|invalid authentication|munge \w+ failed|cannot be contacted|is disabled in configuration"
            r"|rate limit exceeded|incompatible versions|communication connection|message (?:send|receive) failure|connection timed out|transport endpoint"
        ),
        "away",
        SLURM_AWAY,
    ),
    (  # Slurm's last line is the same for what will be allowed later
        re.compile(r"(?:QOS|Assoc)(?:Max\w*(?:PerJob|PerNode)|MaxWall|Min)"),
        "impossible",
        reasons.CANNOT_BE_CREATED,
    ),
    (
        re.compile(r"(?i)partition not available|partition .*not available now|PartitionDown|PartitionInactive"),
        "refused",
        "SlurmPartitionUnavailable",
    ),
    (
        re.compile(r"(?i)MaxSubmit|submit limit|too many (?:jobs|pending)|temporarily|MaxJobCount|resource temporar"),
        "refused",
        "SlurmSubmitLimit",
    ),
)  # fmt: skip


def read_refusal(text: str) -> SubmitAnswer:
    """Classify the error output of `sbatch`: whether another try may help, and the reason that is shown."""
    words = " ".join(text.split()) or "sbatch failed and said nothing"
    message = re.sub(r"sbatch: (?:error|fatal): ", "", words)[-500:]
    for pattern, kind, reason in _SUBMIT:
        if pattern.search(message):
            return SubmitAnswer(kind=kind, reason=reason, message=message)
    return SubmitAnswer(kind="impossible", reason=reasons.CANNOT_BE_CREATED, message=message)
