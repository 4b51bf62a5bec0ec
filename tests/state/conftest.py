"""Every store test runs on SQLite and, where a server is installed, on a real PostgreSQL."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from airflow_training.state.models import Base
from airflow_training.state.store import Store, upgrade
from tests.state.samples import Clock

Url = str
_OF_ACCOUNTS = [
    table
    for table in Base.metadata.tables
    if table.startswith(("training_account", "training_price", "training_payment"))
    or table in ("training_charges", "training_networks", "training_reservations")
]
"""What does not go with the runs."""


class PostgresCluster:
    """A PostgreSQL of its own in a folder of its own, reached through a socket in it."""

    def __init__(self, bin_dir: Path, driver: str) -> None:
        self._bin = bin_dir
        self._driver = driver
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        # PostgreSQL refuses to run as root
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._numbers = itertools.count()

    def start(self) -> None:
        data = self.folder / "data"
        self._run("initdb", "-D", str(data), "-U", "training", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses= -k {self.folder} -c fsync=off -c max_connections=200"
        log = self.folder / "log"
        self._run("pg_ctl", "-D", str(data), "-o", options, "-l", str(log), "-w", "start")
        self.shared = self.empty("shared")
        upgrade(self.shared)

    def stop(self) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")
        shutil.rmtree(self.folder)

    def restart(self) -> None:
        data = str(self.folder / "data")
        self._run(
            "pg_ctl", "-D", data, "-m", "fast", "-w", "restart", "-l", str(self.folder / "log")
        )

    def url(self, name: str) -> Url:
        return f"postgresql+{self._driver}://training@/{name}?host={self.folder}"

    def empty(self, name: str = "") -> Url:
        """Return the URL of a new database without tables."""
        name = name or f"t{next(self._numbers)}"
        self._sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def clear(self) -> None:
        """Empty the tables of the shared database, which is much faster than a new one."""
        engine = create_engine(self.shared)
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM training_runs"))
            for table in (*_OF_ACCOUNTS, "training_node_exclusions", "training_presets"):
                connection.execute(text(f"DELETE FROM {table}"))
            connection.execute(text("DELETE FROM training_meta WHERE name <> 'queue'"))
        engine.dispose()

    def drop(self, url: Url) -> None:
        self._sql(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    def _sql(self, statement: str) -> None:
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            check=False,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self._as,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}"


def _postgres_programs() -> Path | None:
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).parent
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return newest[-1].parent if newest else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresCluster]:
    programs = _postgres_programs()
    drivers = [name for name in ("psycopg2", "psycopg") if importlib.util.find_spec(name)]
    if programs is None or not drivers:
        pytest.skip("no PostgreSQL server or driver is installed")
    cluster = PostgresCluster(programs, drivers[0])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.e2e)])
def server(request: pytest.FixtureRequest) -> str:
    """Return the kind of database; tests that use it run once on each."""
    kind: str = request.param
    return kind


@pytest.fixture
def empty_url(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Url]:
    """Return the URL of a database without tables."""
    if server == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    cluster: PostgresCluster = request.getfixturevalue("postgres")
    url = cluster.empty()
    yield url
    cluster.drop(url)


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Url]:
    """Return the URL of a database with all tables."""
    if server == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "store.db")
        yield f"sqlite:///{tmp_path}/store.db"
        return
    cluster: PostgresCluster = request.getfixturevalue("postgres")
    yield cluster.shared
    cluster.clear()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_another(url: Url, clock: Clock) -> Iterator[Callable[[], Store]]:
    """Return a function that opens the same database once more, as another process would."""
    opened: list[Store] = []

    def open_it() -> Store:
        opened.append(Store(url, clock=clock))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(open_another: Callable[[], Store]) -> Store:
    return open_another()
