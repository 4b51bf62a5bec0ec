"""Formats of log lines that jobs and frameworks add: what is wrong with them, and what metrics they give."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_training.documents.loading import load_documents, read_file
from airflow_training.documents.logs import LogPattern
from airflow_training.documents.problems import with_lines
from airflow_training.documents.resolved_blocks import ResolvedLogPattern
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.registry import LoadedFramework, check_file, parse_framework

if TYPE_CHECKING:
    from airflow_training.logs.metrics.formats import Format

__all__ = ["check_framework", "check_framework_file", "check_log_patterns", "formats_of"]

_FIELD = "spec.logs.patterns"


def check_log_patterns(patterns: Sequence[LogPattern]) -> list[Problem]:
    """Return why patterns of a document's `spec.logs.patterns` would be slow or never match."""
    if not patterns:
        return []
    from airflow_training.logs.metrics.patterns import make_formats

    try:
        make_formats(
            [each.model_dump(exclude_unset=True, warnings=False) for each in patterns], field=_FIELD
        )
    except InputError as error:
        return list(error.problems)
    return []


def check_framework(loaded: LoadedFramework) -> None:
    """Raise InputError, with the file, for patterns of a framework that are no good."""
    problems = check_log_patterns(loaded.framework.spec.logs.patterns)
    if problems:
        raise InputError(problems=problems, path=loaded.location)


def check_framework_file(path: Path) -> Sequence[Problem]:
    """Return every mistake of a framework file, also those in its patterns; empty: jobs can use it."""
    found = check_file(path)
    if found:
        return found
    text = read_file(path)
    framework, _ = parse_framework(text, path=str(path))
    if framework is None:
        return found
    (document,) = load_documents(text, str(path))
    return with_lines(check_log_patterns(framework.spec.logs.patterns), document.lines)


def formats_of(patterns: Sequence[ResolvedLogPattern]) -> tuple[Format, ...]:
    """Return the formats of a resolved job's patterns, the same objects each time."""
    return _formats(json.dumps([each.to_document() for each in patterns])) if patterns else ()


@lru_cache(maxsize=32)
def _formats(patterns: str) -> tuple[Format, ...]:
    from airflow_training.logs.metrics.patterns import make_formats

    return make_formats(json.loads(patterns))
