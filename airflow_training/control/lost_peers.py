"""Failures that only follow from another's: a program that lost its peers explains nothing. Pure."""

from __future__ import annotations

from typing import Literal

from airflow_training.control.model import RestartRecord
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.peer_causes import LOST_PEERS

__all__ = ["LIKELY", "explained_by", "follows", "lost_peers", "was_killed"]

LIKELY = 0.5
"""Confidence from which on a diagnosis says more than an exit code."""
_LOST = 0.2
"""The same of the loss of a peer: as an explanation of the end it is never more than half as sure as it
was seen."""
_KILLED = frozenset({9, 15, 128 + 9, 128 + 15})
"""Signals, and exit codes that show them: nothing that a lost connection does to a program."""
_FOLLOWS_SECONDS = 60.0
"""How much later the end of the first to fail may be seen than that of who lost it: it still prints,
dumps and closes."""


def lost_peers(told: InstanceDiagnosis | None) -> bool:
    """Return whether a program ended itself over its peers, as its log says."""
    if told is None or was_killed(signal=told.signal, exit_code=told.exit_code):
        return False
    return told.cause.id in LOST_PEERS and told.cause.confidence >= _LOST


def was_killed(*, signal: int | None, exit_code: int | None) -> bool:
    """Return whether somebody ended a program: no connection that is lost does."""
    return bool(_KILLED & {signal, exit_code})


def explained_by(told: InstanceDiagnosis | None) -> Literal["", "itself", "peers"]:
    """Whether a log blames its own program or its peers; empty where it does neither."""
    if told is None or told.cause.id == "unknown":
        return ""
    if lost_peers(told):
        return "peers"
    return "" if told.cause.id in LOST_PEERS else "itself"


def follows(record: RestartRecord, later: RestartRecord) -> bool:
    """Return whether what was charged first only lost the one whose failure was seen later.

    `later` has failed by itself, soon after, in an attempt that ran when the first one ended.
    """
    if record.explained_by != "peers" or record.scope != "Instance" or not record.counted:
        return False
    failed = later.explained_by == "itself" and (
        later.counted or later.failure_class == "preemption"
    )
    beside = later.started_at is not None and later.started_at <= record.at <= later.at
    other = later.key != record.key and later.epoch == record.epoch
    # who fell silent is given up long after those who lost it may have ended
    failed_at = later.at if later.silent_since is None else later.silent_since
    return failed and beside and other and failed_at - record.at <= _FOLLOWS_SECONDS
