"""What the reasons say that instances on this machine end with."""

from __future__ import annotations

from airflow_training.control.reason_facts import NODE_LOST, ReasonFacts, Reasons
from airflow_training.runtimes.agent_reasons import AGENT_REASONS

__all__ = ["FOLDER_DELETED", "REASONS"]

FOLDER_DELETED = "FolderDeleted"
"""Somebody deleted or moved the folder of an instance that ran."""

REASONS: Reasons = {
    **AGENT_REASONS,
    FOLDER_DELETED: ReasonFacts("infrastructure", "pod", "instance-deleted"),
    # it was started again since
    "NodeLost": ReasonFacts("infrastructure", "node", NODE_LOST),
}
