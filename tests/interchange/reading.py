"""What tests of imports ask of one document."""

from __future__ import annotations

from typing import Any

import yaml

from airflow_training.admission.check import check_text
from airflow_training.interchange.importing import ImportedDocument, import_text
from airflow_training.interchange.report import FieldFate

__all__ = ["fates", "mistakes", "only", "ours", "refused"]


def only(text: str) -> ImportedDocument:
    """Return the one document of a text, which has no mistakes and became a valid one."""
    (imported,) = import_text(text)
    assert list(imported.problems) == []
    if imported.text:
        (checked,) = check_text(imported.text)
        assert list(checked.problems) == []
    return imported


def ours(text: str) -> dict[str, Any]:
    """Return the `spec` that a document became."""
    found: dict[str, Any] = yaml.safe_load(only(text).text)["spec"]
    return found


def fates(text: str) -> dict[str, FieldFate]:
    """Return what became of each field."""
    return {each.field: each for each in only(text).report.fields}


def refused(text: str) -> dict[str, int | None]:
    """Return the fields that were refused, with their lines."""
    return {each.field: each.line for each in only(text).report.of("refused")}


def mistakes(text: str) -> list[tuple[str, int | None]]:
    """Return field and line of each mistake of the source."""
    return [(each.field, each.line) for each in import_text(text)[0].problems]
