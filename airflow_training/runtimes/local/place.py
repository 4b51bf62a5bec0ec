"""Which processes see each other's instances on this machine and would start them alike."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from airflow_training.agent.proc import boot_id, pid_namespace
from airflow_training.runtimes.folders.environment import inherited

__all__ = ["place_here"]


def place_here(local_dir: Path, *, inherit: Sequence[str], python: str) -> str:
    """Return the same text in all of them: host, boot, pid namespace and user, and what they use.

    What an instance inherits of its creator's environment counts too: whoever is asked to start
    it, it finds the same there.
    """
    used = [str(local_dir), python, inherited(os.environ, inherit)]
    digest = hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:16]
    where = (socket.gethostname(), boot_id(), pid_namespace(), os.getuid(), digest)
    return "/".join(map(str, where))
