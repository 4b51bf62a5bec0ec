"""Progress that instances leave in object storage, where no address to report it to is configured."""

from __future__ import annotations

import json
import logging
from importlib import import_module
from typing import Any

from airflow_training.control.model import Progress
from airflow_training.runtimes.progress import progress_of

__all__ = ["stored_progress"]

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 16


def stored_progress(uri: str) -> Progress | None:
    """Return what lies at `uri`; None where nothing does, or where it cannot be read. Blocks."""
    fsspec: Any = import_module("fsspec")  # without types, and slow to import
    try:
        with fsspec.open(uri, "rb") as file:
            return progress_of(json.loads(file.read(_MOST_BYTES)))
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - any file system, any mistake: training goes on
        log.debug("progress at %s could not be read: %r", uri, error)
        return None
