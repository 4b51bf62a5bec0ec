"""Jobs say whether their gang keeps its size, which was read off its kind before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_FIELD = "keeps_size"
_KIND = "kueue"
"""The only kind of that time with groups of a fixed size."""
_JOBS = sa.table(
    "training_jobs",
    sa.column("run", sa.String()),
    sa.column("revision", sa.Integer()),
    sa.column("body", sa.Text()),
)


def upgrade() -> None:
    """Say it of the jobs that are there."""

    def told(scheduling: dict[str, Any]) -> dict[str, Any]:
        return {**scheduling, _FIELD: scheduling.get("gang") == _KIND}

    _rewrite(told)


def downgrade() -> None:
    """Leave it out again."""

    def untold(scheduling: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in scheduling.items() if key != _FIELD}

    _rewrite(untold)


def _rewrite(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change what the jobs with such a gang say of their scheduling, one after the other."""
    connection = op.get_bind()
    for run, number in list(_affected(connection)):
        here = (_JOBS.c.run == run) & (_JOBS.c.revision == number)
        job = json.loads(connection.execute(sa.select(_JOBS.c.body).where(here)).scalar_one())
        job["scheduling"] = change(job.get("scheduling") or {})
        connection.execute(sa.update(_JOBS).where(here).values(body=json.dumps(job)))


def _affected(connection: sa.Connection) -> Iterator[tuple[str, int]]:
    rows = sa.select(_JOBS.c.run, _JOBS.c.revision).where(_JOBS.c.body.contains(f'"{_KIND}"'))
    for row in connection.execute(rows):
        yield row[0], row[1]
