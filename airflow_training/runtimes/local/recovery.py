"""Bring attempts to a known end: leftovers of a dead agent, and an agent that does not follow its order."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from airflow_training.agent import proc
from airflow_training.agent.files import AttemptFolder, write_json
from airflow_training.agent.instance import RECORD_SECONDS
from airflow_training.agent.stacks import DUMP_SECONDS
from airflow_training.runtimes.clock import steady_now
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.local.liveness import read_attempt_state

__all__ = ["kill_leftovers", "settle_attempt"]

_LEFTOVER_SECONDS = 5.0
_IMPATIENCE_SECONDS = 10.0
"""How long after the grace an agent may still need before it is killed itself."""


def kill_leftovers(standings: Iterable[AttemptState]) -> list[int]:
    """Kill whatever outlived the agents of these attempts; return what would not die."""
    until = time.monotonic() + _LEFTOVER_SECONDS
    lost = list(standings)
    pause = 0.002
    while True:
        left = proc.marked_processes({f"TRAINING_INSTANCE_UID={each.uid}" for each in lost})
        for each in lost:
            child = each.state.get("child") or {}
            # a session is the command's only while its first process is that very process
            if (
                each.pids_mean_here
                and child.get("pid")
                and proc.start_time(child["pid"]) == child["start_time"]
            ):
                left.update(proc.session_members(child["pid"]))
        if not left:
            return []
        proc.signal_processes(left, signal.SIGKILL)
        if time.monotonic() > until:
            return sorted(left)
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def _ended_by(folder: AttemptFolder, standing: AttemptState) -> float:
    """Return when a dead agent cannot have lived any more: beside a command it writes now and again."""
    if standing.state["started_at"] is None:
        return time.time()
    signs = (folder.state, folder.environment, folder.progress, folder.log)
    written = [path.stat().st_mtime for path in signs if path.exists()]
    return min(time.time(), max(written, default=0.0) + RECORD_SECONDS)


def settle_attempt(folder: AttemptFolder, standing: AttemptState) -> AttemptState:
    """Return how the attempt stands after everything was done that this host can do."""
    if (
        standing.life in (AgentLiveness.ALIVE, AgentLiveness.WAITING, AgentLiveness.STAYING)
        and standing.deleted
    ):
        patience = float(standing.deletion["grace_seconds"]) + _IMPATIENCE_SECONDS
        if standing.deletion["dump_stacks"]:
            patience += DUMP_SECONDS
        if steady_now() > float(standing.deletion["ordered_at"]) + patience:
            agent = standing.agent  # stuck, or stopped by somebody
            proc.kill_exactly(agent["pid"], agent["start_time"], signal.SIGKILL)
        return standing
    if standing.life is not AgentLiveness.LOST or kill_leftovers([standing]):
        return standing
    rebooted = standing.rebooted
    write_json(
        folder.exit,
        {
            "uid": standing.uid,
            "started_at": standing.state["started_at"],
            "finished_at": _ended_by(folder, standing),
            "exit_code": None,
            "signal": None,
            "reason": "NodeLost" if rebooted else "AgentLost",
            "message": f"host {standing.agent['host']} was restarted"
            if rebooted
            else "its agent was killed; what it had left behind was ended",
            "output": None,
        },
        durable=True,
    )
    return read_attempt_state(folder) or standing
