"""`logs diagnose`: why a run failed, as an answer that can be acted on. Decides nothing itself."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.context import settings
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.log_targets import (
    TargetsArgument,
    check_whole,
    is_file,
    open_targets,
    patterns_of_runs,
)
from airflow_training.cli.output import OutputFormat, fail, hanging, print_json, terminal_width

if TYPE_CHECKING:
    from airflow_training.logs.diagnosis.catalogue import Catalogue
    from airflow_training.logs.model import Diagnosis, FileScan, FoundCause, InstanceFact
    from airflow_training.supervise.instance_logs import RunLogs

__all__ = ["diagnose"]


def diagnose(
    targets: TargetsArgument,
    facts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What the runtime saw, as JSON: instances with exit_code, signal, reason, message."
            " Of a run, the store tells.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Say why a run failed: the root cause, the line that proves it, and what to do.

    Exits with 0 whatever the answer is, with 1 where a log could not be kept as a whole.
    """
    from airflow_training.cli.run_logs import find_logs
    from airflow_training.cli.running_instances import running_instances
    from airflow_training.logs.diagnosis.catalogue import load
    from airflow_training.logs.diagnosis.diagnose import diagnose as explain
    from airflow_training.logs.diagnosis.facts import read_facts
    from airflow_training.logs.diagnosis.scanning import scan_logs, with_ranks
    from airflow_training.logs.health import assess
    from airflow_training.logs.metrics import formats
    from airflow_training.runtimes.registry import every_reason
    from airflow_training.supervise.followers.diagnosing import facts_of, facts_with_ranks

    catalogue = load(settings().causes_folder)
    told = None if facts is None else read_facts(facts)
    with ExitStack() as stack:
        logs = open_targets(targets)
        for each in logs:
            stack.callback(each.source.close)
        # what the user tells goes before what the store knows
        runs = [find_logs(name) for name in targets if told is None and not is_file(name)]
        ended = told or [
            fact
            for run in runs
            for state in run.store.read([run.record.uid]).values()
            for fact in facts_with_ranks(facts_of(state.ledger, every_reason()), state.job)
        ]
        if not (logs or ended):
            raise fail("RUN", "nothing of it was ever started", value=targets[0])
        origins = with_ranks([each.origin for each in logs])
        sources = [each.source for each in logs]
        wanted = formats(patterns_of_runs(targets))
        read = scan_logs(zip(origins, sources, strict=True), catalogue, formats=wanted)
        # a log of which nothing could be kept is not one in which nothing was printed
        scans = [
            scan for scan, log in zip(read, logs, strict=True) if scan.lines or not log.missing
        ]
        running = [running_instances(run, scans) for run in runs]
        stopped = _stopped(runs)
    seen = [*ended, *(fact for each in running for fact in each.facts)]
    series = [each for scan in scans for each in scan.series]
    health = [
        *assess(series, until=_until(scans, ended)),
        *(finding for each in running for finding in each.hangs),
    ]
    found = explain(scans, seen, health, catalogue=catalogue)
    if output is OutputFormat.json:
        document = dataclasses.asdict(found)
        if not found.gaps:
            del document["gaps"]
        if stopped:
            document["stopped"] = stopped
        print_json(document)
    else:
        heads = [line for each in stopped for line in _lines("stopped", each)]
        print("\n".join([*heads, *_described(found, catalogue), *_incomplete(found)]))
    check_whole({each.source.name: each.missing for each in logs})


def _stopped(runs: Sequence[RunLogs]) -> list[str]:
    """Return of the runs that somebody has stopped who it was: they did not fail."""
    jobs = {run.record.key.run_id: run.store.ledger(run.record.uid).job for run in runs}
    return [
        f"run {run_id} did not fail: {job.message or job.reason}"
        for run_id, job in jobs.items()
        if job.state == "Stopped"
    ]


def _until(scans: Sequence[FileScan], facts: Sequence[InstanceFact]) -> Mapping[str, float]:
    """Return until when each log could have told of progress, of runs that somebody saw failing or running.

    That is the last time in any of them: a rank that stopped long before the others hangs.
    """
    from airflow_training.logs.diagnosis.facts import failed
    from airflow_training.logs.diagnosis.stalled import is_running

    times = [scan.last_time for scan in scans if scan.last_time is not None]
    if not times or not any(failed(fact) or is_running(fact) for fact in facts):
        return {}
    return {scan.origin.file: max(times) for scan in scans}


def _described(found: Diagnosis, catalogue: Catalogue) -> Iterator[str]:
    """Yield the answer for people, what matters most first."""
    if found.healthy:
        yield "healthy: nothing in these logs says that the run failed"
        return
    if not found.causes:
        yield "failed, and no cause is known"
        return
    root, *others = found.causes
    yield from _lines("cause", f"{root.id} ({root.category}), {_percent(root)} sure")
    yield from _lines("", catalogue.causes[root.id].meaning)
    yield from _lines("proof", _where(root))
    yield from _lines("", root.evidence)
    yield from _lines("what to do", root.advice)
    yield from _lines("retry", _RETRY[root.retryable])
    followed = Counter(each.id for each in found.consequences if each.id != _UNKNOWN)
    for number, (cause, times) in enumerate(followed.most_common()):
        first = next(each for each in found.consequences if each.id == cause)
        places = f"{times} times, first " if times > 1 else ""
        yield from _lines("" if number else "followed by", f"{cause}: {places}{_where(first)}")
    for number, each in enumerate(each for each in others if each.id != _UNKNOWN):
        yield from _lines(
            "" if number else "or else", f"{each.id}, {_percent(each)} sure: {_where(each)}"
        )


def _incomplete(found: Diagnosis) -> Iterator[str]:
    """Say where lines could not be read: the cause may have been among them."""
    if found.gaps:
        more = f", and {len(found.gaps) - 1} more" if len(found.gaps) > 1 else ""
        yield from _lines("incomplete", f"lines may be missing before {found.gaps[0]}{more}")


def _lines(head: str, text: str) -> list[str]:
    return hanging(f"{head:<13}", text, width=terminal_width())


_UNKNOWN = "unknown"
"""Says beside a cause nothing more than that something failed."""
_RETRY = {
    "yes": "can be tried again as it is",
    "once": "one more try may help",
    "no": "no: it needs a change first",
    "unknown": "not known: nothing says whether another try helps",
}


def _percent(cause: FoundCause) -> str:
    return f"{100 * cause.confidence:.0f} %"


def _where(cause: FoundCause) -> str:
    rank = "" if cause.rank is None else f" (rank {cause.rank})"
    if cause.file is None:
        return f"seen by the runtime{rank}"
    return f"{cause.file}:{cause.line}{rank}" if cause.line is not None else f"{cause.file}{rank}"
