"""The process that scans logs: takes pieces on stdin, writes their values to the store, answers on stdout.

One per event loop that drives runs (`log_following` starts it). It is nice, has a limit of memory,
keeps nothing between two pieces, and ends when its stdin does: it may be killed at any moment.

A request is a line of JSON and the bytes it announces, an answer is a line of JSON. The first
request names the store.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from airflow_training.control.attempts import InstanceRecord
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved_blocks import ResolvedLogPattern
from airflow_training.errors import TrainingError
from airflow_training.state.store import LogPosition, LogValue, Store

__all__ = ["LogPieceResult", "PieceOfLog", "decode_answer", "encode_piece", "encode_store", "serve"]

_NICE = 10
_MEMORY_BYTES = 2 << 30
"""Of addresses: what is really used is a tenth of it, but libraries reserve generously."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceOfLog(InstanceRecord):
    """What is to be scanned: the bytes from `offset` on, of which those before `before.done` are known."""

    uid: str
    key: InstanceKey
    before: LogPosition | None
    """What the store holds."""
    after: LogPosition
    """The same attempt or the next; what `done`, `carry`, `held` and `last_at` say is moved by the worker."""
    offset: int
    begun: float
    """When the newest attempt started."""
    patterns: Sequence[ResolvedLogPattern]
    """Formats of the job's own lines."""
    complete: bool
    """The last line needs no end: nothing follows, or it is too long to wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPieceResult:
    """What became of a piece."""

    position: LogPosition | None = None
    """What the store holds now; None: somebody else has read on, or the store did not answer."""
    progress: Mapping[str, Any] | None = None
    error: str = ""


def encode_store(url: str) -> bytes:
    """Return the first request."""
    return json.dumps({"store": url}).encode() + b"\n"


def encode_piece(piece: PieceOfLog, text: bytes) -> bytes:
    """Return a request."""
    header = {**dataclasses.asdict(piece), "size": len(text)}
    return json.dumps(header).encode() + b"\n" + text


def decode_answer(line: bytes) -> LogPieceResult:
    """Decode an answer of the worker; raises ValueError for half a line."""
    found = json.loads(line)
    return LogPieceResult(
        position=_position(found["position"]), progress=found["progress"], error=found["error"]
    )


def _position(values: Mapping[str, Any] | None) -> LogPosition | None:
    return None if values is None else LogPosition(**values)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until they end."""
    store = Store(json.loads(requests.readline())["store"])
    while header := requests.readline():
        values = json.loads(header)
        text = requests.read(values.pop("size"))
        values["before"], values["after"] = _position(values["before"]), _position(values["after"])
        values["key"] = InstanceKey(*values["key"])
        values["patterns"] = [ResolvedLogPattern.from_document(each) for each in values["patterns"]]
        answer = _scan(store, PieceOfLog(**values), text)
        answers.write(json.dumps(dataclasses.asdict(answer)).encode() + b"\n")
        answers.flush()


def _scan(store: Store, piece: PieceOfLog, text: bytes) -> LogPieceResult:
    from airflow_training.admission.log_patterns import formats_of
    from airflow_training.logs.live.pieces import scan_piece
    from airflow_training.logs.metrics import formats
    from airflow_training.logs.model import Origin

    name = str(piece.key)
    found = scan_piece(
        text,
        offset=piece.offset,
        done=piece.after.done,
        complete=piece.complete,
        over=piece.after.ended,
        carry=piece.after.carry,
        held=piece.after.held,
        last_at=piece.after.last_at,
        begun=piece.begun,
        now=time.time(),
        formats=formats(formats_of(piece.patterns)),
        origin=Origin(file=name, role=piece.role, index=piece.index),
    )
    after = dataclasses.replace(
        piece.after, done=found.done, carry=found.carry, held=found.held, last_at=found.last_at
    )
    try:
        moved = store.log_values.save(
            piece.uid,
            piece.key,
            before=piece.before,
            after=after,
            values=[LogValue(**dataclasses.asdict(each)) for each in found.values],
            progress=ProgressReport(**found.progress) if found.progress else None,
        )
    except TrainingError as error:
        return LogPieceResult(error=str(error))
    return LogPieceResult(position=after if moved else None, progress=found.progress or None)


def main() -> None:
    """Serve whoever started us."""
    os.nice(_NICE)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY_BYTES if most == resource.RLIM_INFINITY else min(_MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that anybody prints may pass for an answer
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
