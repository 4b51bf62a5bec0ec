"""One database: engine, transactions, clock, upsert. Knows no table of ours and no rule."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, create_engine, event, exc, insert, text
from sqlalchemy.engine import URL, Engine, make_url

from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.state.outage import Outage

__all__ = [
    "BUSY_SECONDS",
    "Database",
    "clean",
    "open_engine",
    "parse_url",
    "translated_errors",
    "upsert",
]

BUSY_SECONDS = 30.0
"""How long a write waits for other writers of the same SQLite file."""

_CLOCKS = {
    "postgresql": text("SELECT extract(epoch FROM clock_timestamp())"),
    "mysql": text("SELECT UNIX_TIMESTAMP(NOW(6))"),
    "mariadb": text("SELECT UNIX_TIMESTAMP(NOW(6))"),
}


_PACKAGES = {"MySQLdb": "mysqlclient"}
"""Module -> what to install, where the names differ."""


class Database:
    """Gives out read and write transactions; safe for threads, processes and forks."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        self.url = parse_url(url)
        self.engine = open_engine(self.url)
        self.outage = Outage()
        self._clock = clock
        self._file: os.stat_result | None = None
        self._prepare()
        _open_databases.add(self)

    def _prepare(self) -> None:
        sqlite_file = self.url.get_backend_name() == "sqlite"
        # SQLite lets one writer in at a time and the others poll. Threads of one process queue
        # here instead, which is fair and does not sleep.
        self._one_writer = threading.Lock() if sqlite_file else contextlib.nullcontext()
        self._writing = self.engine.execution_options(training_write=True)
        self._reading = (
            self.engine
            if sqlite_file
            else self.engine.execution_options(isolation_level="REPEATABLE READ")
        )

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction in which all reads see the same moment."""
        self._same_file()
        with translated_errors(self.url), self._reading.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that is committed at the end, or not at all."""
        self._same_file()
        with translated_errors(self.url), self._one_writer, self._writing.begin() as connection:
            yield connection
        self.outage.wrote()

    def _same_file(self) -> None:
        """Raise RuntimeUnavailable where SQLite's file is not the one that was opened.

        SQLite would go on in a file that was removed, which nobody else can see, or make a new one.
        """
        problem, _ = self._problem_of_file()
        if problem:
            raise RuntimeUnavailable(f"the store {self.url} does not answer: {problem}")

    def is_gone(self) -> bool:
        """Whether SQLite's file was deleted or moved while it was open: nothing else brings its content back."""
        _, gone = self._problem_of_file()
        return gone

    def _problem_of_file(self) -> tuple[str, bool]:
        """Return why SQLite's file cannot be used, "" where it can, and whether it is gone."""
        if self.url.get_backend_name() != "sqlite":
            return "", False
        try:
            file = Path(self.url.database or "").stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            return f"its file was deleted or moved ({error.strerror})", self._file is not None
        except OSError as error:
            return error.strerror or str(error), False
        self._file = self._file or file
        if os.path.samestat(file, self._file):
            return "", False
        return "another file is in its place; only what starts from now on uses that", True

    def now(self, connection: Connection | None = None) -> float:
        """Return epoch seconds: a server's own clock, else this host's."""
        if self._clock is not None:
            return self._clock()
        question = _CLOCKS.get(self.url.get_backend_name())
        if question is None:
            return time.time()
        if connection is not None:
            return float(connection.execute(question).scalar_one())
        with self.read() as fresh:
            return float(fresh.execute(question).scalar_one())

    def close(self) -> None:
        """Close pooled connections; a later call opens new ones."""
        self.engine.dispose()
        self._file = None

    def after_fork(self) -> None:
        """Leave the parent's connections alone and start with none, in the child."""
        # Kept, never closed: closing them here would end the parent's sessions.
        _inherited.append(self.engine.pool)
        self.engine.dispose(close=False)
        self._prepare()


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[Any] = []


def _forget_parents_connections() -> None:
    for database in [*_open_databases]:
        database.after_fork()


os.register_at_fork(after_in_child=_forget_parents_connections)


def parse_url(url: str) -> URL:
    """Return the parsed URL of the store; raises InputError for one that cannot work."""
    try:
        parsed = make_url(url)
        asynchronous = parsed.get_dialect().is_async
    except (exc.ArgumentError, exc.NoSuchModuleError) as error:
        raise _bad_url("no SQLAlchemy URL that can be used", hint=str(error)) from None
    if asynchronous:
        raise _bad_url(
            f"{parsed.drivername} is an asynchronous driver", hint="for example postgresql+psycopg2"
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise _bad_url("SQLite in memory is seen by one connection only", hint="name a file")
    return parsed


def _bad_url(message: str, *, hint: str) -> InputError:
    return InputError.of(
        code="not_supported", field="[training] sql_alchemy_conn", message=message, hint=hint
    )


def open_engine(url: URL) -> Engine:
    """Return an engine whose transactions are real ones, on SQLite too."""
    try:
        if url.get_backend_name() != "sqlite":
            # psycopg2 would send row after row; batches make a large ledger several times faster
            options = (
                {"executemany_mode": "values_plus_batch"}
                if url.get_driver_name() == "psycopg2"
                else {}
            )
            # The ping costs a round trip and saves every caller a failure after a server restart.
            return create_engine(url, pool_pre_ping=True, max_overflow=20, **options)
        _make_private(url)
        engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, max_overflow=20)
    except ImportError as error:
        raise _bad_url(
            f"the driver of {url.drivername} is not installed",
            hint=f"pip install {_PACKAGES.get(error.name or '', error.name)}",
        ) from None
    event.listen(engine, "connect", _sqlite_connected)
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _make_private(url: URL) -> None:
    """Make file and folder for this user alone, or take the file from others who may only read it.

    The store holds environments of jobs and a secret. SQLite gives its other files the same mode.
    Others cannot work with a store that they may not write: one is so because an earlier version made it.
    """
    file = Path(url.database or "")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _bad_url(
            f"{file.parent} cannot be made: {error.strerror}", hint="another folder"
        ) from None
    with contextlib.suppress(OSError):  # one that is there; or SQLite says what is wrong
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for path in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        with contextlib.suppress(OSError):  # not there, or somebody else's
            mode = path.stat().st_mode
            if mode & 0o044 and not mode & 0o022:
                path.chmod(0o600)


def _sqlite_connected(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the module's own implicit BEGIN would come too late
    connection.execute("PRAGMA foreign_keys=ON")
    # With a write-ahead log, NORMAL loses nothing when processes are killed: what was committed
    # is in the system's cache. A power cut may lose the last commits (never the file's
    # consistency), but it ends the machine's training processes too. FULL would add a disk flush,
    # several milliseconds, to every decision. Whoever needs more uses a server.
    connection.execute("PRAGMA synchronous=NORMAL")


def _sqlite_begin(connection: Connection) -> None:
    # A transaction that reads first and writes later can be refused half-way (SQLITE_BUSY without
    # any waiting); one that says at once that it will write just waits for its turn.
    writes = connection.get_execution_options().get("training_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextlib.contextmanager
def translated_errors(url: URL) -> Iterator[None]:
    """Turn "cannot be reached now" of any driver into RuntimeUnavailable."""
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
        reason = getattr(error, "orig", None) or error
        where = url.render_as_string(hide_password=True)
        raise RuntimeUnavailable(f"the store {where} does not answer: {reason}") from error
    except exc.DBAPIError as error:
        if not error.connection_invalidated:
            if (
                type(error) is exc.DatabaseError
            ):  # not one of its kinds: the file itself is at fault
                where = url.render_as_string(hide_password=True)
                raise RuntimeUnavailable(
                    f"the store {where} does not answer: {error.orig}"
                ) from error
            raise
        where = url.render_as_string(hide_password=True)
        raise RuntimeUnavailable(f"the store {where} went away: {error.orig}") from error


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    update: tuple[str, ...] = (),
) -> None:
    """Insert rows, or where their key exists set the columns `update` (empty: all given)."""
    if not rows:
        return
    keys = tuple(column.name for column in table.primary_key)
    changing = update or tuple(name for name in rows[0] if name not in keys)
    statement = _upsert_statement(connection.dialect.name, table, keys, changing)
    if statement is not None:
        connection.execute(statement, rows)
        return
    for row in rows:  # a database without a known upsert: slower, the same result
        where = [table.c[key] == row[key] for key in keys]
        known = connection.execute(
            table.update().where(*where).values({name: row[name] for name in changing})
        )
        if known.rowcount == 0:
            connection.execute(insert(table), row)


@functools.cache
def _upsert_statement(
    dialect: str, table: Table, keys: tuple[str, ...], changing: tuple[str, ...]
) -> Any:
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        statement: Any = sqlite_insert(table)
    elif dialect == "postgresql":  # only where it is used: it takes 40 ms to import
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        statement = postgresql_insert(table)
    else:
        return None
    return statement.on_conflict_do_update(
        index_elements=list(keys),
        set_={name: statement.excluded[name] for name in changing},
    )


class StorePart:
    """What a store keeps about one subject. Each method is one transaction, and raises as the store's do."""

    def __init__(self, database: Database) -> None:
        self._db = database


def clean(words: str) -> str:
    """Return text that every database takes: no NUL, no lone surrogate."""
    return words.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
