"""Brings a database to the tables this version needs, once, under a lock. Holds no table itself.

Alembic is imported only when there is something to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, exc, select, text
from sqlalchemy.engine import URL, Engine

from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.state.database import open_engine, parse_url, translated_errors

__all__ = ["HEAD", "VERSION_TABLE", "check", "ensure_current", "upgrade"]

HEAD = "0013"
"""Newest revision in `migrations/versions`."""
VERSION_TABLE = "training_alembic_version"
"""Its own name: the store may share a database with Airflow, which has an `alembic_version`."""

_version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32)))
_LOCK_KEY = 0x7472_6169_6E69_6E67  # "training"


def check(url: str) -> tuple[str | None, str]:
    """Return (revision of the database or None where it is empty, newest revision)."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        return None, HEAD
    engine = open_engine(parsed)
    try:
        with translated_errors(parsed):
            return _current(engine), HEAD
    finally:
        engine.dispose()


def upgrade(url: str) -> None:
    """Bring the database to the newest revision; waits while another process does it."""
    parsed = parse_url(url)
    engine = open_engine(parsed)
    try:
        with translated_errors(parsed):
            ensure_current(engine)
    finally:
        engine.dispose()


def ensure_current(engine: Engine) -> None:
    """Upgrade unless the database is at the newest revision already."""
    if _current(engine) == HEAD:
        return
    sqlite = engine.dialect.name == "sqlite"
    with _file_lock(engine.url) if sqlite else contextlib.nullcontext():
        # An engine of its own: what is set on its connection must not return to the pool.
        own = open_engine(engine.url)
        try:
            with own.connect() as connection:
                _upgrade_alone(connection)
        finally:
            own.dispose()
    engine.dispose()  # connections from before know neither the tables nor the journal mode


def _upgrade_alone(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        _prepare_sqlite(connection)
        connection = connection.execution_options(training_write=True)
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        found = _read_version(connection) if _has_version(connection) else None
        if found == HEAD:
            return  # another process was faster
        _run_migrations(connection, found)


def _prepare_sqlite(connection: Connection) -> None:
    """Set what cannot be set inside a transaction, on the driver's own connection."""
    driver: Any = connection.connection.driver_connection
    try:
        driver.execute("PRAGMA journal_mode=WAL")  # waits until nobody reads
        # A migration that rebuilds a table would otherwise delete what refers to it.
        driver.execute("PRAGMA foreign_keys=OFF")
    except sqlite3.OperationalError as error:
        raise RuntimeUnavailable(f"the store {connection.engine.url}: {error}") from error


def _run_migrations(connection: Connection, found: str | None) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    config.attributes["version_table"] = VERSION_TABLE
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise InputError.of(
            code="not_supported",
            field="[training] sql_alchemy_conn",
            message=f"the store is at revision {found}, which is newer than this version knows",
            allowed=sorted(known),
            hint="upgrade airflow-training here, too",
        )
    command.upgrade(config, "head")


def _has_version(connection: Connection) -> bool:
    return connection.dialect.has_table(connection, VERSION_TABLE)


def _read_version(connection: Connection) -> str | None:
    return connection.execute(select(_version.c.version_num)).scalar()


def _current(engine: Engine) -> str | None:
    try:
        with engine.begin() as connection:
            return _read_version(connection)
    except (exc.OperationalError, exc.ProgrammingError):
        # Most likely the table is missing; a database that is away fails here again, as itself.
        with engine.begin() as connection:
            return _read_version(connection) if _has_version(connection) else None


@contextlib.contextmanager
def _file_lock(url: URL) -> Iterator[None]:
    """Wait until no other process of this host upgrades the SQLite file."""
    path = f"{url.database}.upgrade-lock"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, also by a kill
        yield
