"""`logs metrics`: the numbers that logs hold, as a table, JSON, Parquet or picture. Decides nothing itself."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.log_targets import (
    TargetsArgument,
    is_file,
    open_targets,
    patterns_of_runs,
)
from airflow_training.cli.output import command_line, fail, note, print_json, print_table
from airflow_training.cli.run_logs import find_logs

if TYPE_CHECKING:
    from airflow_training.logs.metrics.formats import Format
    from airflow_training.logs.model import Finding, Series

__all__ = ["metrics"]

_NOT_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class MetricsOutput(str, Enum):
    """How metrics are printed."""

    table = "table"
    json = "json"
    parquet = "parquet"


def metrics(
    targets: TargetsArgument,
    output: Annotated[
        MetricsOutput,
        typer.Option("--output", "-o", help="parquet goes to stdout too: redirect it into a file."),
    ] = MetricsOutput.table,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the series: .png, .svg or .pdf."),
    ] = None,
    patterns: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Formats of your own lines (YAML), before those of the run's job and ours.",
        ),
    ] = None,
) -> None:
    """Print every metric that the logs hold, and what is wrong with it."""
    if output is MetricsOutput.parquet and sys.stdout.isatty():
        hint = (
            command_line("logs", "metrics", *targets, "--output", "parquet") + " > metrics.parquet"
        )
        raise fail(
            "--output", "a Parquet file is nothing for a terminal", value="parquet", hint=hint
        )
    series, findings = _scan(targets, patterns)
    spreads, uneven = _spreads(targets)
    findings = [*findings, *uneven]
    if plot is not None:
        from airflow_training.cli.metric_pictures import draw

        draw(series, plot)
    if output is MetricsOutput.parquet:
        from airflow_training.logs.metrics.tables import write_parquet

        write_parquet(series, sys.stdout.buffer)
        return
    if output is MetricsOutput.json:
        print_json(
            {
                "series": [_series_json(each) for each in series],
                "findings": [_finding_json(each) for each in findings],
                **({"distributions": spreads} if spreads else {}),
            }
        )
        return
    _print_table(series)
    for name, spread in spreads.items():
        note(
            f"{name}: {spread['total']:g} over {spread['places']},"
            f" from {spread['least']:g} to {spread['most']:g}, the middle one {spread['median']:g}"
        )
    for finding in findings:
        note(f"{finding.severity}: {finding.message}{_place(finding)}")


def _scan(
    targets: Sequence[str], patterns: Path | None
) -> tuple[Sequence[Series], Sequence[Finding]]:
    """Return the series of all logs and files of rows, and what is wrong with those of the logs.

    Of runs, also those that the store alone has.
    """
    from airflow_training.cli.stored_series import unlogged_series
    from airflow_training.logs.engine import scan_files
    from airflow_training.logs.health import assess
    from airflow_training.logs.metrics import formats
    from airflow_training.logs.reading.source import LogUnreadable
    from airflow_training.logs.reading.tables import as_series, is_table, read_table

    user: tuple[Format, ...] = ()
    if patterns is not None:
        from airflow_training.logs.metrics.patterns import read_patterns

        user = read_patterns(patterns)
    user += patterns_of_runs(targets)
    with ExitStack() as stack:
        opened = open_targets(targets)
        for log in opened:
            stack.callback(log.source.close)
        tables = [log.origin for log in opened if is_table(log.origin.file)]
        logs = [log for log in opened if log.origin not in tables]
        try:
            scans = scan_files(
                [(log.origin, log.source) for log in logs],
                signatures=(),
                formats=formats(user),
                remember=True,
            )
            rows = [
                each for origin in tables for each in as_series(read_table(origin.file), origin)
            ]
        except LogUnreadable as error:
            raise fail("RUN|FILE", str(error), code="bad_reference") from error
    series = [each for scan in scans for each in scan.series]
    for name in (name for name in targets if not is_file(name)):
        series += unlogged_series(find_logs(name), series)
    until = {log.origin.file: log.until for log in logs if log.until is not None}
    tails = {scan.origin.file: scan.tail for scan in scans}
    return [*series, *rows], assess(series, until=until, last_lines=tails)


def _spreads(targets: Sequence[str]) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[Finding]]:
    """Return how samples and files are spread over the instances of runs, and what is uneven."""
    from airflow_training.logs.health.balance import distribution, imbalance
    from airflow_training.supervise.status import run_status

    spreads, findings = {}, []
    for target in targets:
        if is_file(target):
            continue
        run = find_logs(target)
        instances = run_status(run.store, run.record.uid)["instances"]
        samples = {
            f"{each['role']}-{each['index']}": each["progress"]["samples"]
            for each in instances
            if (each["progress"] or {}).get("samples") is not None
        }
        files = {
            f"{each['role']}-{each['index']}": len(each["data_files"])
            for each in instances
            if each["data_files"]
        }
        for of, counts, fewest in (("samples", samples, 100), ("files", files, 0)):
            if len(counts) < 2:
                continue
            spreads[f"{of} per instance of {target}"] = asdict(distribution(counts))
            finding = imbalance(counts, of=of, per="instance", fewest=fewest)
            if finding is not None:
                findings.append(finding)
    return spreads, findings


def _number(value: float) -> float | str:
    """Return a number as strict JSON has it: what is none becomes a text that `float` takes."""
    return value if math.isfinite(value) else _NOT_NUMBERS[str(value)]


def _series_json(series: Series) -> Mapping[str, Any]:
    points = zip(
        series.steps.tolist(), series.values.tolist(), series.offsets.tolist(), strict=True
    )
    return {
        "metric": series.metric,
        "role": series.role or None,
        "index": series.index,
        "rank": series.rank,
        "scope": series.scope or None,
        "file": series.file,
        "total": series.total,
        "points": [
            [
                None if math.isnan(step) else _number(step),
                _number(value),
                offset if offset >= 0 else None,
            ]
            for step, value, offset in points
        ],
    }


def _place(finding: Finding) -> str:
    """Return where a finding is, as far as that is known and not said: ` (rank 0, step 51, ...)`."""
    at = None if finding.time is None else datetime.fromtimestamp(finding.time, UTC)
    known = {
        "rank": None if finding.rank is None else str(finding.rank),
        "step": None if finding.step is None else f"{finding.step:g}",
        "time": None if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ"),
        "line": None if finding.line is None else f"{finding.file}:{finding.line}",
    }
    said = [
        text if name in ("time", "line") else f"{name} {text}"
        for name, text in known.items()
        if text is not None and not re.search(rf"\b{name} {text}\b", finding.message)
    ]
    return f" ({', '.join(said)})" if said else ""


def _finding_json(finding: Finding) -> Mapping[str, Any]:
    return {
        name: _number(value) if isinstance(value, float) else value
        for name, value in asdict(finding).items()
    }


def _print_table(series: Sequence[Series]) -> None:
    """Print a line per series; what is the same for all has no column."""
    import numpy as np

    several = {
        name: len({getattr(each, name) for each in series}) > 1
        for name in ("file", "role", "index", "rank")
    }
    shown = [name for name, differs in several.items() if differs]
    rows = []
    for each in series:
        finite = each.values[np.isfinite(each.values)]
        extremes = (finite.min(), finite.max()) if finite.size else (math.nan, math.nan)
        last_step = each.steps[-1]
        rows.append(
            [
                *(getattr(each, name) for name in shown),
                f"{each.metric} ({each.scope})" if each.scope else each.metric,
                each.total,
                "" if math.isnan(last_step) else f"{last_step:g}",
                *(f"{value:.6g}" for value in (each.values[-1], *extremes)),
            ]
        )
    print_table([*shown, "metric", "points", "step", "last", "least", "most"], rows)
