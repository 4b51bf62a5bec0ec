"""Networks that users save: versions 1, 2, 3 of a name, never changed, read by everybody who uses the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, exc, func, insert, literal, select

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.state.database import StorePart, clean
from airflow_training.state.network_models import NetworkRow

__all__ = ["MOST_NETWORK_CHARACTERS", "SavedNetwork", "SavedNetworks"]

MOST_NETWORK_CHARACTERS = 1024 * 1024
"""Of one document."""
_MOST_VERSIONS = 2**31 - 1
_TRIES = 20
"""Of taking the next version, where others take it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedNetwork:
    """One version of a network."""

    name: str
    version: int
    user: str
    """Who saved it; the name is theirs."""
    description: str
    created: float
    """Epoch seconds."""
    digest: str
    document: str
    """YAML, as it was given; empty in lists, which would be as long as all documents together."""

    @property
    def title(self) -> str:
        """`lenet@3`."""
        return f"{self.name}@{self.version}"


class SavedNetworks(StorePart):
    """Saved networks."""

    def save(self, text: str, *, user: str) -> SavedNetwork:
        """Keep a document as the next version of its name; the content of the newest version answers that one.

        Raises InputError with every mistake of the document, or (`not_owner`) for the name of another user.
        """
        if len(text) > MOST_NETWORK_CHARACTERS:
            raise InputError.of(
                code="too_large",
                field="",
                message=f"has {len(text)} characters; at most {MOST_NETWORK_CHARACTERS} are kept",
            )
        # the documents of networks: whoever opens a store need not have read what they may say
        from airflow_training.networks.digest import network_digest
        from airflow_training.networks.reading import document_of

        data = document_of(text)
        digest, user = network_digest(data), clean(user)[:250]
        row = {
            "name": data["metadata"]["name"],
            "user": user,
            "description": clean(data["metadata"].get("description") or ""),
            "digest": digest,
            "document": clean(text),
        }
        for _ in range(_TRIES):
            if saved := self._added(row):
                return saved
        raise RuntimeUnavailable(f"others save network '{row['name']}' all the time")

    def _added(self, row: dict[str, Any]) -> SavedNetwork | None:
        """Return the version; None where another process took its number between reading and writing."""
        try:
            return self._add(row)
        except exc.IntegrityError:
            return None

    def _add(self, row: dict[str, Any]) -> SavedNetwork:
        with self._db.write() as connection:
            newest = _newest_of(connection, row["name"])
            if newest is not None and newest.user != row["user"]:
                raise _of_another(newest)
            if newest is not None and newest.digest == row["digest"]:
                return newest
            version = 1 if newest is None else newest.version + 1
            added = {**row, "version": version, "created_at": self._db.now(connection)}
            connection.execute(insert(NetworkRow), added)
            return SavedNetwork(created=added.pop("created_at"), **added)

    def find(self, name: str, version: int | None = None) -> SavedNetwork:
        """Return a version, the newest unless one is named.

        Raises InputError (`bad_reference`, field `name` or `version`) where there is none.
        """
        with self._db.read() as connection:
            if name != clean(name) or (version or 0) > _MOST_VERSIONS:
                found = None  # PostgreSQL refuses to compare with it
            elif version is None:
                found = _newest_of(connection, name)
            else:
                found = _first(connection, NetworkRow.name == name, NetworkRow.version == version)
            if found is not None:
                return found
            rows = connection.execute(
                select(NetworkRow.version)
                .where(NetworkRow.name == clean(name))
                .order_by(NetworkRow.version)
            )
            versions = [number for (number,) in rows]
            names = connection.execute(select(NetworkRow.name).distinct().order_by(NetworkRow.name))
            raise _unknown(name, version, versions, [known for (known,) in names])

    def newest(self) -> Sequence[SavedNetwork]:
        """Return the newest version of every name, by name, without documents."""
        last = (
            select(NetworkRow.name, func.max(NetworkRow.version).label("version"))
            .group_by(NetworkRow.name)
            .subquery()
        )
        with self._db.read() as connection:
            rows = connection.execute(
                _columns(_NO_DOCUMENT)
                .join(
                    last,
                    (NetworkRow.name == last.c.name) & (NetworkRow.version == last.c.version),
                )
                .order_by(NetworkRow.name)
            )
            return [_network(row) for row in rows]

    def versions(self, name: str = "") -> Sequence[SavedNetwork]:
        """Return all versions, of one name or of all, the newest first, without documents."""
        statement = _columns(_NO_DOCUMENT).order_by(NetworkRow.name, NetworkRow.version.desc())
        if name:
            statement = statement.where(NetworkRow.name == clean(name))
        with self._db.read() as connection:
            return [_network(row) for row in connection.execute(statement)]


_NO_DOCUMENT = literal("").label("document")


def _columns(document: Any = NetworkRow.document) -> Any:
    row = NetworkRow
    return select(
        row.name, row.version, row.user, row.description, row.created_at, row.digest, document
    )


def _newest_of(connection: Connection, name: str) -> SavedNetwork | None:
    return _first(connection, NetworkRow.name == name)


def _first(connection: Connection, *where: ColumnElement[bool]) -> SavedNetwork | None:
    statement = _columns().where(*where).order_by(NetworkRow.version.desc()).limit(1)
    row = connection.execute(statement).first()
    return None if row is None else _network(row)


def _network(row: Any) -> SavedNetwork:
    return SavedNetwork(
        name=row.name,
        version=row.version,
        user=row.user,
        description=row.description,
        created=row.created_at,
        digest=row.digest,
        document=row.document,
    )


def _of_another(newest: SavedNetwork) -> InputError:
    return InputError.of(
        code="not_owner",
        field="metadata.name",
        value=newest.name,
        message=f"is a network of {newest.user or 'another user'}: only they save its next version",
        hint="save it under a name of your own",
    )


def _unknown(
    name: str, version: int | None, versions: Sequence[int], names: Sequence[str]
) -> InputError:
    if versions:
        return InputError.of(
            code="bad_reference",
            field="version",
            value=version,
            message=f"network '{name}' has no such version",
            allowed=versions,
        )
    hint = did_you_mean(name, names) or "`airflow-training networks save FILE` saves one"
    return InputError.of(
        code="bad_reference",
        field="name",
        value=name,
        message="no network of this name is saved",
        allowed=names,
        hint=hint,
    )
