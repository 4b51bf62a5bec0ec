"""What launchers and container runtimes write before a line: the rank, the time, and where the line itself begins.

`2024-01-01T00:00:00.000000000Z stdout F [rank3]: text` has rank 3, a time and the line `text`. Shared by the
engine, the reading of logs and the metrics.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

LONGEST = 200
"""Bytes at the start of a line that are looked at."""

_PREFIX = re.compile(
    rb"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}(?:Z|[+-]\d\d:\d\d)):? (?:(?:stdout|stderr) [FP] )?"  # Kubernetes
    rb"|\[(?!(?i:epoch|step|iter|batch))(?:[A-Za-z][A-Za-z_.-]{0,30}|[Rr]ank:? )(?P<a>\d{1,6})\]: ?"  # torchrun: [rank3]: [default7]: [worker-0]:
    rb"|\[(?:rank[:=] ?|RANK )(?P<b>\d{1,6})\] "  # Lightning, Determined
    # Open MPI, as SageMaker with its hosts too: `[1,mpirank:7,algo-1]<stderr>:`
    # Horovod without it, which may be asked for the time: `Wed Nov 25 19:38:54 2020[0]<stderr>:`
    rb"|(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [\d ]\d \d\d:\d\d:\d\d \d{4})?\[(?:[\w.@-]{1,80},)?(?:mpirank:)?(?P<c>\d{1,6})(?:,[\w.-]{1,60})?\]<std(?:out|err|diag)>: ?"
    rb"| {0,5}(?P<d>\d{1,6}): "  # srun --label
    rb"|[Rr]ank[ _-]?(?P<e>\d{1,6}): "
    rb"|[A-Za-z][\w.-]{0,60}[-_](?P<f>\d{1,6}) {1,60}\| ?"  # docker compose
    rb"|\[pod/[\w.-]{1,200}?(?:-(?P<g>\d{1,6}))?(?:-[a-z0-9]{5})?/[\w.-]{1,60}\] "  # kubectl logs --prefix
    rb"|(?:worker|node|host|rank|trainer|launcher|master|chief|ps)[-_](?P<h>\d{1,6}): "  # pdsh and DeepSpeed
    rb"|(?:\d{1,3}\.){3}\d{1,3}: |(?:ip|node|host|gpu|worker)[\w.-]{0,60}\d[\w.-]{0,60}: "
    # Ray; where a worker tells its rank, the process is what the line is about
    rb"|\((?:[A-Za-z]\w{0,60} )?pid=\d+(?:, ip=[\w.:]{1,60})?\) (?!Setting up process group for: env:// \[rank=)"
    rb"|\([\w-]{1,60}, rank=(?P<i>\d{1,6}), pid=\d+(?:, ip=[\w.:]{1,60})?\) "  # SkyPilot
    rb"|(?:trainer|worker|node|task|main|replica)/(?P<j>\d{1,6}):? "  # TorchX, NeMo-Run
    rb"|[a-z0-9][a-z0-9-]{0,80}-(?:worker|master|launcher|chief|ps|node)-(?P<k>\d{1,6})(?:-[a-z0-9]{5})? "
    rb"(?:pytorch|tensorflow|xgboost|paddle|jax|mpi|trainer) "  # stern, of containers as Kubeflow calls them
    rb"|algo-\d{1,4}-[a-z0-9]{5} {1,60}\| ?"  # SageMaker's local mode
    # Determined: `[2024-01-05T10:11:12.000000Z] 1b2c3d4e [rank=3] || `
    rb"|\[(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)\] [0-9a-f]{8} (?:\[rank=(?P<l>\d{1,6})\] )?\|\| "
    # torch_xla of TPU pods: `2024-01-05 10:11:12 10.164.0.60 [2] `
    rb"|(?P<moment>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:\d{1,3}\.){3}\d{1,3} \[(?P<m>\d{1,6})\] "
)
_RANKS = tuple("abcdefghijklm")
_TIMES = ("time", "stamp", "moment")
DATE = rb"\d{4}[-/]\d\d[-/]\d\d(?:T|, | )\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?(?![\d:])"
"""A moment as programs write it."""

_TIME = re.compile(
    rb"[\[({]?(?P<y>\d{4})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)(?:T|, | )(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
    rb"(?:[.,](?P<f>\d{1,9}))?(?: ?(?:Z|UTC|(?P<zs>[+-])(?P<zh>\d\d):?(?P<zm>\d\d)))?(?![\d:])"
)


class LinePrefix(NamedTuple):
    """What stands before a line; spans are bytes of the line."""

    rank: int | None = None
    time: float | None = None
    """UTC seconds since 1970; a time without zone is taken for UTC."""
    length: int = 0
    """Where the line itself begins. A time that the program wrote itself is part of the line."""
    rank_span: tuple[int, int] | None = None
    time_span: tuple[int, int] | None = None


def prefix(line: bytes) -> LinePrefix:
    """The prefix of `line`, which holds neither ANSI sequences nor line ends.

    Of several ranks the innermost counts: `worker-1 | [rank11]:` is rank 11.
    """
    head = line[:LONGEST]
    position = 0
    rank = rank_span = time = time_span = None
    for _ in range(4):
        found = _PREFIX.match(head, position)
        if found is None or (found["d"] is not None and rank is not None):
            break  # behind a rank it is a list of ranks, as Horovod prints those that it misses: `3: [grads]`
        for name in _RANKS:
            if (digits := found[name]) is not None:
                rank, rank_span = int(digits), found.span(name)
        for name in _TIMES:
            if found[name] is None:
                continue
            written = _TIME.match(head, found.start(name))
            if written is not None and (seconds := _seconds(written)) is not None:
                time, time_span = seconds, (written.start("y"), written.end())
        position = found.end()
    if time is None:
        written = _TIME.match(head, position + (head[position : position + 1] == b" "))
        if written is not None and (seconds := _seconds(written)) is not None:
            time, time_span = seconds, (written.start("y"), written.end())
    return LinePrefix(rank, time, position, rank_span, time_span)


def time_of(text: bytes) -> float | None:
    """Return the time that `text` begins with, in UTC seconds since 1970."""
    written = _TIME.match(text)
    return None if written is None else _seconds(written)


def has_wrong_date(line: bytes) -> bool:
    """Return whether something at the start of `line` is written like a time but is none, as the 30th of February."""
    return any(_seconds(found) is None for found in _TIME.finditer(line[:LONGEST]))


def _seconds(written: re.Match[bytes]) -> float | None:
    try:
        moment = datetime(
            int(written["y"]),
            int(written["mo"]),
            int(written["d"]),
            int(written["h"]),
            int(written["mi"]),
            min(int(written["s"]), 59),  # a leap second
            tzinfo=timezone.utc,
        )
    except ValueError:
        return None
    fraction = written["f"]
    seconds = moment.timestamp() + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)
    if written["zs"] is not None:
        shift = timedelta(hours=int(written["zh"]), minutes=int(written["zm"])).total_seconds()
        seconds += -shift if written["zs"] == b"+" else shift
    return seconds
