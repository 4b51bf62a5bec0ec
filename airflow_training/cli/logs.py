"""`logs show`, `logs search`: what instances and files hold, also while they grow. Interprets nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.documents import OutputOption
from airflow_training.cli.log_targets import (
    OpenLog,
    TargetsArgument,
    check_whole,
    is_file,
    open_targets,
)
from airflow_training.cli.logs_diagnose import diagnose
from airflow_training.cli.logs_metrics import metrics
from airflow_training.cli.output import OutputFormat, fail, note, print_json
from airflow_training.cli.program import command_group
from airflow_training.cli.run_logs import find_logs
from airflow_training.cli.times import parse_moment
from airflow_training.control.attempts import AttemptId
from airflow_training.supervise.instance_logs import InstanceLogs, RunLogs
from airflow_training.supervise.waiting import alongside

if TYPE_CHECKING:
    from airflow_training.logs.reading.search import LineMatch, Searcher
    from airflow_training.logs.reading.source import Line, Source
    from airflow_training.logs.reading.tail import LogTail
    from airflow_training.logs.reading.times import TimedLine
    from airflow_training.runtimes.port import Cursor, Runtime

__all__ = ["app"]

app = command_group("logs", "Logs of instances and files.")
_CHUNK_BYTES = 1 << 20
_FOLLOW_SECONDS = 0.3
_MOST_SHOWN = 8 << 10
"""Bytes of a line that a search prints."""

RoleOption = Annotated[str | None, typer.Option(help="Of a run: only this role.")]
IndexOption = Annotated[
    int | None, typer.Option(min=0, help="Of a run: which of the role's instances.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only lines from then on: 15m (ago), 2026-01-31T08:30:00Z."),
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Only lines up to then.")]


app.command()(diagnose)
app.command()(metrics)


@app.callback()
def logs() -> None:
    """Logs of instances and files."""


@app.command()
def show(
    targets: TargetsArgument,
    role: RoleOption = None,
    index: IndexOption = None,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="An earlier attempt; the newest by default.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Go on, into later attempts too; with --attempt in that one."
        ),
    ] = False,
    last: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only so many lines of the end.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Only what begins at this byte of the log.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=0, help="Only so many bytes.")] = None,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="All instances or files as one log, by time."),
    ] = False,
) -> None:
    """Print logs to stdout, byte for byte: one instance of a run (--role), files, or all of them merged."""
    now = time.time()
    after = None if since is None else parse_moment(since, option="--since", now=now)
    before = None if until is None else parse_moment(until, option="--until", now=now)
    by_time = after is not None or before is not None
    if (follow or last is not None) and (merge or by_time):
        option = "--follow" if follow else "--tail"
        raise fail(option, f"{option} goes with neither --merge nor a stretch of time")
    by_byte = offset is not None or size is not None
    stretch = "--size" if offset is None else "--offset"
    if by_byte and (merge or by_time or follow or last is not None):
        raise fail(stretch, "--offset and --size go with no other choice of what to show")
    if len(targets) == 1 and not is_file(targets[0]) and not merge:
        if role is None:
            only = find_logs(targets[0]).only_instance()
            if only is None or index not in (None, only.index):
                hint = "name one with --role, or take them all with --merge"
                raise fail("--role", "the run has several logs", code="missing", hint=hint)
            role = only.role
        index = index or 0
        if not by_time and not by_byte:
            _show_instance(targets[0], role, index, attempt=attempt, follow=follow, last=last)
            return
    with _opened(targets, role=role, index=index, attempt=attempt) as opened:
        if merge:
            _print_merged(opened, after, before)
        elif by_time:
            for each in opened:
                _print_lines(_between(each.source, after, before))
        elif (follow or by_byte) and len(opened) > 1:
            option, what = ("--follow", "followed") if follow else (stretch, "shown by bytes")
            raise fail(option, f"only one file can be {what}", value=len(opened))
        elif by_byte:
            for each in opened:
                _copy_bytes(each.source, offset or 0, size)
        else:
            for each in opened:
                _copy_file(each.source, follow=follow, last=last)


@app.command()
def search(
    targets: TargetsArgument,
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="Regular expression (RE2), for each line.")
    ],
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, help="Lines to show before and after.")
    ] = 0,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Take a and A for the same.")
    ] = False,
    fixed: Annotated[
        bool, typer.Option("--fixed-strings", "-F", help="PATTERN is plain text.")
    ] = False,
    role: RoleOption = None,
    index: IndexOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print the lines that match, with their numbers: of every instance of a run, or of files."""
    from airflow_training.logs.reading.search import BadPattern, Searcher

    try:
        searcher = Searcher(pattern, ignore_case=ignore_case, literal=fixed)
    except BadPattern as error:
        hint = "-F takes it as plain text"
        raise fail("PATTERN", str(error), code="wrong_type", value=pattern, hint=hint) from error
    with _opened(targets, role=role, index=index) as opened:
        if output is OutputFormat.json:
            matches = [
                _match_json(each, found)
                for each in opened
                for found in searcher.search(each.source, context=context)
            ]
            print_json({"matches": matches})
        elif not _print_matches(opened, searcher, context):
            note("no line matches")


@contextmanager
def _opened(
    targets: Sequence[str],
    *,
    role: str | None,
    index: int | None,
    attempt: int | None = None,
) -> Iterator[list[OpenLog]]:
    """Open the targets, tell what cannot be read as such, and close them."""
    with ExitStack() as stack:
        opened = open_targets(targets, role=role, index=index, attempt=attempt)
        for each in opened:
            stack.callback(each.source.close)
        if not opened:
            note("nothing of it was ever started")
        yield opened
        check_whole({each.source.name: each.missing for each in opened})


# files, and logs as sources ----------------------------------------------------------------------
def _copy_file(source: Source, *, follow: bool, last: int | None) -> None:
    from airflow_training.logs.reading.follow import follow as followed
    from airflow_training.logs.reading.tail import tail

    offset = 0
    if last is not None:
        end = tail(source, last)
        _print_end(end, source.name)
        if not follow:
            return
        offset = end.next_offset
    for part in followed(source, offset=offset, wait=_pause if follow else lambda: False):
        if offset and part.next_offset == len(part.data):
            note(f"{source.name} was rotated or truncated: from its beginning")
        _write(part.data)
        offset = part.next_offset


def _print_end(part: LogTail, name: str) -> None:
    """Print the end of a log; say where its lines are too long to be shown whole."""
    if part.cut:
        start = part.next_offset - len(part.data)
        note(
            f"{name}: its last lines are very long, so they are shown from byte {start} on;"
            f" --offset BYTE instead of --tail begins elsewhere, and without both all is shown"
        )
    _write(part.data)


def _copy_bytes(source: Source, offset: int, size: int | None) -> None:
    """Print `size` bytes from `offset` on, all that there are now for None."""
    left = sys.maxsize if size is None else size
    while left:
        part = source.read(offset, min(left, _CHUNK_BYTES))
        first = part.next_offset - len(part.data)
        if first > offset:
            note(f"{source.name} was kept from byte {first} on")
        _write(part.data)
        if not part.data:
            return
        left -= len(part.data)
        offset = part.next_offset


def _pause() -> bool:
    time.sleep(_FOLLOW_SECONDS)
    return True


def _between(source: Source, since: float | None, until: float | None) -> Iterator[TimedLine]:
    """Yield the lines of a stretch of time; say afterwards where a log cannot be cut by time."""
    from airflow_training.logs.reading.times import between, has_times

    timed = False
    for each in between(source, since=since, until=until):
        timed = timed or each.time is not None
        yield each
    bounds = [f"--{name}" for name, at in (("since", since), ("until", until)) if at is not None]
    if bounds and not timed and source.size() != 0 and not has_times(source):
        note(
            f"{source.name}: no line tells its time, so {' and '.join(bounds)} cannot choose any:"
            f" {'none is' if since is not None else 'all are'} shown; --tail N shows the last ones"
        )


def _print_lines(lines: Iterable[TimedLine]) -> None:
    for each in lines:
        _write(each.line.data)


def _print_merged(opened: Sequence[OpenLog], since: float | None, until: float | None) -> None:
    from airflow_training.logs.reading.merge import clock_skews, merge

    sources = [each.source for each in opened]
    skews = clock_skews(sources)
    for source, ahead in zip(sources, skews, strict=True):
        if abs(ahead) >= 1:
            note(
                f"the clock of {source.name} is taken to be {ahead:+.1f} s off that of {sources[0].name}"
            )
    width = max((len(source.name) for source in sources), default=0)
    names = [f"{source.name:<{width}} | ".encode() for source in sources]
    streams = [
        _between(source, _shifted(since, ahead), _shifted(until, ahead))
        for source, ahead in zip(sources, skews, strict=True)
    ]
    for each in merge(streams, skews=skews):
        text = each.line.line.data
        _write(names[each.source] + text + b"\n" * (not text.endswith(b"\n")))


def _shifted(at: float | None, seconds: float) -> float | None:
    return None if at is None else at + seconds


def _print_matches(opened: Sequence[OpenLog], searcher: Searcher, context: int) -> bool:
    """Print what `grep -n -C` would; return whether there was anything."""
    found_any = False
    for each in opened:
        name = f"{each.source.name}:" if len(opened) > 1 else ""
        printed = 0
        """Number of the last line that was printed of this log."""
        for found in searcher.search(each.source, context=context):
            first = found.number - len(found.before)
            if context and found_any and first > printed + 1:
                _write(b"--\n")
            found_any = True
            numbered = enumerate((*found.before, found.line, *found.after), start=first)
            for number, line in numbered:
                sign = ":" if number == found.number else "-"
                if number > printed:
                    text = _around(line, found.at if number == found.number else 0)
                    _write(f"{name}{number}{sign}".encode() + text + b"\n")
            printed = max(printed, found.number + len(found.after))
    return found_any


def _around(line: Line, at: int) -> bytes:
    """Return a line as a search prints it: of a very long one what is around a place, and how much is left out."""
    text = line.data.rstrip(b"\n")
    if len(text) <= _MOST_SHOWN:
        return text
    start = max(0, min(at - _MOST_SHOWN // 2, len(text) - _MOST_SHOWN))
    after = len(text) - start - _MOST_SHOWN
    before = f"[{start} bytes, from {line.offset} on] ".encode() if start else b""
    more = f" [{after} bytes more]".encode() if after else b""
    return before + text[start : start + _MOST_SHOWN] + more


def _match_json(log: OpenLog, found: LineMatch) -> dict[str, object]:
    return {
        "file": log.source.name,
        "role": log.origin.role or None,
        "index": log.origin.index,
        "attempt": log.origin.attempt,
        "rank": log.origin.rank,
        "line": found.number,
        "offset": found.line.offset,
        "text": _text(found.line),
        "before": [_text(line) for line in found.before],
        "after": [_text(line) for line in found.after],
    }


def _text(line: Line) -> str:
    return line.data.rstrip(b"\r\n").decode(errors="replace")


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)


# one instance, through its attempts --------------------------------------------------------------
def _show_instance(
    name: str, role: str, index: int, *, attempt: int | None, follow: bool, last: int | None
) -> None:
    run = find_logs(name)
    instance = run.instance(role, index)
    chosen = instance.chosen(attempt)
    if chosen is None and instance.final():
        note(f"{instance.name} was {instance.never_started()}")
        return
    if chosen is None and not follow:
        why = f" ({waits})" if (waits := instance.waits_for()) else ""
        note(f"{instance.name} has not been started yet{why}; --follow waits for it")
        return
    start = (0, "")
    if chosen is not None and last is not None:
        start, missing = _print_tail(run, instance, chosen, last)
        if not follow:
            _tell_silence(instance, chosen, printed=start[0], missing=missing)
            _check_whole(instance, chosen, missing)
            return
    showing = _show(instance, run.runtime, chosen, start, follow=follow, only=attempt is not None)
    printed, missing = asyncio.run(_collecting(run, instance, showing) if follow else showing)
    if chosen is not None:
        _tell_silence(instance, chosen, printed=printed, missing=missing)
    if not printed and run.record.tombstone_reason:
        reason = run.record.tombstone_reason
        raise fail("RUN", f"there is no log of it any more: {reason}", value=name)
    _check_whole(instance, chosen, missing)


def _tell_silence(
    instance: InstanceLogs, attempt_id: AttemptId, *, printed: int, missing: str
) -> None:
    """Say of an attempt with an empty log why: it is never left to guess whether that is all. `printed`: bytes."""
    if not printed and (not missing or not instance.has_begun(attempt_id)):
        note(f"{instance.name} {instance.silence()}")


def _check_whole(instance: InstanceLogs, attempt_id: AttemptId | None, missing: str) -> None:
    """Say what is missing of an attempt's log; of one that nobody saw yet nothing is."""
    if attempt_id is None or instance.has_begun(attempt_id):
        check_whole({instance.name: missing})


def _print_tail(
    run: RunLogs, instance: InstanceLogs, attempt_id: AttemptId, lines: int
) -> tuple[tuple[int, str], str]:
    """Print the end of an attempt's log; return the cursor after it, and what of it is missing."""
    from airflow_training.logs.reading.tail import tail

    source = run.open(instance, attempt_id)
    try:
        _print_end(tail(source, lines), instance.name)
    finally:
        source.close()
    return source.cursor, source.missing


async def _collecting(
    run: RunLogs, instance: InstanceLogs, showing: Coroutine[Any, Any, tuple[int, str]]
) -> tuple[int, str]:
    """Show a log while the runtime keeps what is printed: none is lost between two looks."""
    key = instance.key
    async with alongside(run.runtime.collect_logs(run.record.ref(), only={key})):
        return await showing


async def _show(
    instance: InstanceLogs,
    runtime: Runtime,
    attempt_id: AttemptId | None,
    start: tuple[int, str],
    *,
    follow: bool,
    only: bool,
) -> tuple[int, str]:
    """Copy an attempt (None: none was started yet), and unless it is the `only` one those after.

    `start`: offset and token in the first one. Returns how many bytes there were, and what is missing.
    """
    from airflow_training.runtimes.port import Cursor

    shown = None
    printed, missing = 0, ""
    cursor = Cursor(offset=start[0], token=start[1])
    while True:
        if attempt_id is not None:
            if shown is not None:
                note(f"{instance.name} was restarted: attempt {attempt_id.attempt}")
            size, why = await _copy(instance, runtime, attempt_id, cursor, follow=follow)
            printed, missing = printed + size, missing or why
            shown, cursor = attempt_id, Cursor()
        if only or not follow:
            return printed, missing
        # in this order: an attempt that began meanwhile is not missed
        final = await asyncio.to_thread(instance.final)
        attempt_id = await asyncio.to_thread(instance.after, shown)
        if attempt_id is None:
            if final:
                return printed, missing
            await asyncio.sleep(_FOLLOW_SECONDS)


async def _copy(
    instance: InstanceLogs, runtime: Runtime, attempt_id: AttemptId, cursor: Cursor, *, follow: bool
) -> tuple[int, str]:
    """Print the log of one attempt, with `follow` until it is over.

    Returns how many bytes it had, and what of it is missing.
    """
    ref = await asyncio.to_thread(instance.ref, attempt_id)
    last = False
    while True:
        chunk = await runtime.read_log(ref, cursor, limit=_CHUNK_BYTES)
        cursor = chunk.next
        if chunk.data:
            sys.stdout.buffer.write(chunk.data)
            sys.stdout.buffer.flush()
            continue
        if chunk.end or not follow or last:
            return cursor.offset, chunk.missing
        # nobody writes any more, though the runtime does not know its end: its folder is gone
        last = await asyncio.to_thread(_superseded, instance, attempt_id)
        if not last:
            await asyncio.sleep(_FOLLOW_SECONDS)


def _superseded(instance: InstanceLogs, attempt_id: AttemptId) -> bool:
    """Return whether a later attempt has begun, or the run is over."""
    return instance.drained() or instance.after(attempt_id) is not None
