"""The local runtime: every instance is a process tree of this machine, with an agent around it.

Nothing here decides anything, and nothing of an instance depends on the process that created it.
"""

from airflow_training.runtimes.local.runtime import LocalRuntime
from airflow_training.runtimes.local.sweep import Orphan, find_orphans

__all__ = ["LocalRuntime", "Orphan", "find_orphans"]
