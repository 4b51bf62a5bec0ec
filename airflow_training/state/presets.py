"""Documents that users keep to begin trainings with. A version is only ever added, never changed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, exc, func, insert, select

from airflow_training.errors import RuntimeUnavailable
from airflow_training.state.database import StorePart, clean
from airflow_training.state.models import PresetRow

__all__ = ["PresetVersion", "Presets"]

_MOST_LISTED = 500
_ATTEMPTS = 20
"""Of saving: two who save under one name at the same moment are given one number after the other."""
_COLUMNS = (
    PresetRow.user,
    PresetRow.name,
    PresetRow.version,
    PresetRow.description,
    PresetRow.created_at,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetVersion:
    """A saved preset without its document."""

    user: str
    name: str
    version: int
    """From 1, per user and name."""
    description: str
    created_at: float
    """Epoch seconds."""


class Presets(StorePart):
    """The presets that users have saved."""

    def save(self, user: str, name: str, document: str, *, description: str) -> PresetVersion:
        """Add a version; a document that is the newest one already adds none."""
        document, description = clean(document), clean(description)
        for _ in range(_ATTEMPTS):
            # somebody may take the number in between
            with contextlib.suppress(exc.IntegrityError), self._db.write() as connection:
                return self._add(connection, user, name, document, description)
        raise RuntimeUnavailable("too many save presets under this name at once")

    def _add(
        self, connection: Connection, user: str, name: str, document: str, description: str
    ) -> PresetVersion:
        newest = connection.execute(
            select(*_COLUMNS, PresetRow.document)
            .where(PresetRow.user == user, PresetRow.name == name)
            .order_by(PresetRow.version.desc())
            .limit(1)
        ).first()
        if newest is not None and (newest.document, newest.description) == (document, description):
            return _version(newest[:-1])
        made = PresetVersion(
            user=user,
            name=name,
            version=1 if newest is None else newest.version + 1,
            description=description,
            created_at=self._db.now(connection),
        )
        connection.execute(
            insert(PresetRow).values(
                user=made.user,
                name=made.name,
                version=made.version,
                description=made.description,
                created_at=made.created_at,
                document=document,
            )
        )
        return made

    def newest(self, user: str | None = None) -> Sequence[PresetVersion]:
        """Return the newest version of each preset, the newest first, 500 at most; `user`: only theirs."""
        last = (
            select(PresetRow.user, PresetRow.name, func.max(PresetRow.version).label("version"))
            .group_by(PresetRow.user, PresetRow.name)
            .subquery()
        )
        found = select(*_COLUMNS).join(
            last,
            (PresetRow.user == last.c.user)
            & (PresetRow.name == last.c.name)
            & (PresetRow.version == last.c.version),
        )
        if user is not None:
            found = found.where(PresetRow.user == user)
        with self._db.read() as connection:
            rows = connection.execute(
                found.order_by(PresetRow.created_at.desc(), PresetRow.name).limit(_MOST_LISTED)
            )
            return [_version(row) for row in rows]

    def document(self, user: str, name: str, version: int) -> str | None:
        """Return the document as it was saved, or None where there is no such version."""
        with self._db.read() as connection:
            found: str | None = connection.execute(
                select(PresetRow.document).where(
                    PresetRow.user == user, PresetRow.name == name, PresetRow.version == version
                )
            ).scalar_one_or_none()
            return found


def _version(row: Sequence[object]) -> PresetVersion:
    names = ("user", "name", "version", "description", "created_at")
    return PresetVersion(**dict(zip(names, row, strict=True)))  # type: ignore[arg-type]  # the columns' types
