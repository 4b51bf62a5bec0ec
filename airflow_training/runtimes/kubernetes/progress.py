"""What instances leave in object storage, where no address to report it to is configured."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from airflow_training.control.reports import ProgressReport
from airflow_training.runtimes.progress import progress_of

__all__ = ["Report", "stored_report"]

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an instance last said about itself."""

    progress: ProgressReport | None = None
    environment: tuple[str, ...] = ()
    """The newest record of what it has around it, as its agent wrote it, behind that of its software."""


def stored_report(uri: str) -> Report | None:
    """The report at `uri`; None where there is none, or where it cannot be read. Blocks."""
    fsspec: Any = import_module("fsspec")  # without types, and slow to import
    try:
        with fsspec.open(uri, "rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
            records = (document.get("software"), document.get("environment"))
            return Report(
                progress=progress_of(document.get("progress") or None),
                environment=tuple(line for line in records if line and isinstance(line, str)),
            )
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - any file system, any mistake: training goes on
        log.debug("progress at %s could not be read: %r", uri, error)
        return None
