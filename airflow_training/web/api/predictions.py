"""Reads what scripts have predicted during a run. Of no file more than a bounded part is ever in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import StreamingResponse

from airflow_training.agent.predictions import MOST_BYTES, NAME
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError
from airflow_training.state.store import open_store
from airflow_training.web import parquet_rows
from airflow_training.web.prediction_files import PredictionStore, newest_first, place_of
from airflow_training.web.predictions import (
    PredictionPage,
    PredictionTable,
    csv_rows,
    json_rows,
    prediction_file,
    table_of,
)
from airflow_training.web.rights import RunDep, read, rights_of

__all__ = ["router"]

_MOST_FILES = 1000
_MOST_ROWS = 200
_PART_BYTES = 2 << 20
"""Of a table: of its rows only those of a page are kept, the others are counted."""
_BLOCK_BYTES = 1 << 18
_PARQUET_SECONDS = 30.0
_PNG = b"\x89PNG\r\n\x1a\n"

_parquet = threading.BoundedSemaphore(2)
"""Each reader may take some memory, though none of this process."""

router = APIRouter(dependencies=[Depends(read)])

NameQuery = Annotated[str, Query(max_length=200)]
RoleQuery = Annotated[str, Query(max_length=63)]
IndexQuery = Annotated[int, Query(ge=0)]


@dataclass(frozen=True)
class _PredictionPath:
    """A file of an instance that the run has; whether it exists is not known yet."""

    place: PredictionStore
    key: InstanceKey
    name: str

    def read(self, start: int, size: int) -> bytes:
        try:
            return self.place.read(self.key, self.name, start=start, size=size)
        except FileNotFoundError:
            raise _absent(self.name) from None

    def blocks(self) -> Iterator[bytes]:
        for start in range(0, MOST_BYTES, _BLOCK_BYTES):
            block = self.read(start, _BLOCK_BYTES)
            yield block
            if len(block) < _BLOCK_BYTES:
                return


@router.get("/dags/{dag}/trainings/{uid}/predictions")
def predictions(
    request: Request,
    run: RunDep,
    limit: Annotated[int, Query(ge=1, le=_MOST_FILES)] = 500,
) -> PredictionPage:
    """Return the files that the run's scripts have published, the newest first."""
    place, instances = _place(request, run.uid)
    if place is None:
        return PredictionPage(files=[], more=False)
    found = newest_first([*place.files(instances)])
    return PredictionPage(
        files=[prediction_file(each) for each in found[:limit]], more=len(found) > limit
    )


def _chosen(
    request: Request, run: RunDep, role: RoleQuery, index: IndexQuery, name: NameQuery
) -> _PredictionPath:
    place, instances = _place(request, run.uid)
    key = InstanceKey(role, index)
    if place is None or key not in instances or not NAME.fullmatch(name):
        raise _absent(name)
    return _PredictionPath(place, key, name)


ChosenDep = Annotated[_PredictionPath, Depends(_chosen)]


@router.get("/dags/{dag}/trainings/{uid}/predictions/table")
def table(
    chosen: ChosenDep,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=_MOST_ROWS)] = 50,
) -> PredictionTable:
    """Return a page of rows, and what labels and predictions say together, of a file's first 2 MiB."""
    if chosen.name.endswith(".png"):
        raise HTTPException(422, "name: it is a picture")
    if chosen.name.endswith(".parquet"):
        content, cut = _parquet_lines(chosen)
    else:
        content = chosen.read(0, _PART_BYTES + 1)
        cut = len(content) > _PART_BYTES
        content = content[:_PART_BYTES]
    rows = csv_rows if chosen.name.endswith(".csv") else json_rows
    return table_of(rows(content, cut=cut), offset=offset, limit=limit, cut=cut)


@router.get("/dags/{dag}/trainings/{uid}/predictions/picture")
def picture(chosen: ChosenDep) -> StreamingResponse:
    """Return a PNG, which a browser takes for nothing else."""
    blocks = chosen.blocks()
    first = next(blocks)
    if not chosen.name.endswith(".png") or not first.startswith(_PNG):
        raise HTTPException(422, f"name: {chosen.name} is no PNG")

    def all_blocks() -> Iterator[bytes]:
        yield first
        yield from blocks

    return StreamingResponse(
        all_blocks(),
        media_type="image/png",
        headers={
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _place(request: Request, uid: str) -> tuple[PredictionStore | None, list[InstanceKey]]:
    state = open_store().read([uid]).get(uid)
    if state is None:
        raise HTTPException(404, f"there is no training {uid} here")
    try:
        place = place_of(state, in_airflow=not rights_of(request).standalone)
    except InputError as error:  # this server may not reach it, whatever is asked
        raise HTTPException(409, str(error)) from error
    roles = {each.name: each.replicas for each in state.job.roles}
    instances = {*state.ledger.instances}
    instances |= {InstanceKey(role, index) for role, size in roles.items() for index in range(size)}
    return place, sorted(instances)


def _parquet_lines(chosen: _PredictionPath) -> tuple[bytes, bool]:
    """Return a Parquet file's first rows as JSON lines, and whether there are more."""
    with tempfile.TemporaryFile() as file, _parquet:
        for block in chosen.blocks():
            file.write(block)
        file.seek(0)
        known = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "TZ")
        try:
            done = subprocess.run(
                [sys.executable, parquet_rows.__file__],
                stdin=file,
                capture_output=True,
                timeout=_PARQUET_SECONDS,
                check=False,
                env={name: os.environ[name] for name in known if name in os.environ},
            )
        except subprocess.TimeoutExpired:
            raise HTTPException(422, f"{chosen.name} takes too long to read") from None
    if done.returncode == parquet_rows.MISSING:
        raise HTTPException(
            501, "Parquet is read with pyarrow, which is not installed here: pip install pyarrow"
        )
    if done.returncode not in (0, parquet_rows.CUT):
        why = done.stderr.decode(errors="replace").strip().splitlines()
        told = why[-1][:300] if why else "it needs too much time or memory"
        raise HTTPException(422, f"{chosen.name} is no Parquet that can be read: {told}")
    return done.stdout, done.returncode == parquet_rows.CUT


def _absent(name: str) -> HTTPException:
    return HTTPException(404, f"there are no predictions {name[:200]!r}")
