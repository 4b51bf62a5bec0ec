"""The finer condition beside the job's state: one table, used by decisions and by `status`.

| state | condition |
|---|---|
| Pending | Received |
| Queued | Queued |
| Starting, Restarting | Submitting until every ordered instance was seen, then Submitted |
| Running | Running |
| Paused | Paused |
| any that is not over, while the runtime does not answer | RuntimeUnknown |
| any that is over, while something is still alive | StopRequested |
| Succeeded | Finished |
| Failed | Failed, or SubmitFailed when nothing was ever created |
| Stopped | Stopped |
"""

from __future__ import annotations

from airflow_training.control.model import TERMINAL_JOB_STATES, JobEntry, JobState

__all__ = ["condition_of", "reported_state"]


def condition_of(job: JobEntry, *, reachable: bool, all_seen: bool, any_created: bool) -> str:
    """Return the condition of a job.

    `all_seen`: every instance whose creation was ordered has been seen. `any_created`: at least
    one ever was.
    """
    if job.state in TERMINAL_JOB_STATES:
        if not job.drained:
            return "StopRequested"
        if job.state == "Failed":
            return "Failed" if any_created else "SubmitFailed"
        return "Finished" if job.state == "Succeeded" else "Stopped"
    if not reachable:
        return "RuntimeUnknown"
    if job.state in ("Starting", "Restarting"):
        return "Submitted" if all_seen else "Submitting"
    return {"Pending": "Received"}.get(job.state, job.state)


def reported_state(job: JobEntry) -> JobState:
    """Return the state to tell others: a job counts as over only when nothing of it is alive."""
    if job.state not in TERMINAL_JOB_STATES or job.drained:
        return job.state
    if job.running_at is not None:
        return "Running"
    return "Starting" if job.started_at is not None else "Pending"
