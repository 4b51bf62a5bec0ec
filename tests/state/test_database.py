"""Addresses that work and do not, clocks, forks, and databases that are away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, text

from airflow_training.control.run_output import RunOutput
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.state import database
from airflow_training.state.store import Store, deployment_id, open_store
from tests.state.conftest import PostgresCluster
from tests.state.samples import START, add_run, an_event, take


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("sqlite://", "in memory", id="memory"),
        pytest.param("nothing at all", "no SQLAlchemy URL", id="no-url"),
        pytest.param("cobol://host/db", "no SQLAlchemy URL", id="unknown-database"),
        pytest.param("sqlite+aiosqlite:///x.db", "asynchronous driver", id="asynchronous"),
    ],
)
def test_an_address_that_cannot_work_is_refused(url: str, message: str):
    with pytest.raises(InputError, match=message) as error:
        Store(url)
    assert error.value.problems[0].field == "[training] sql_alchemy_conn"


def test_the_folder_of_the_file_is_made(tmp_path: Path):
    Store(f"sqlite:///{tmp_path}/new/folder/store.db").close()
    assert (tmp_path / "new/folder/store.db").exists()


def test_nobody_else_reads_what_was_made(tmp_path: Path):
    """It holds environments of jobs, and the secret of the callbacks."""
    before = os.umask(0o022)
    try:
        store = Store(f"sqlite:///{tmp_path}/home/store.db")
        add_run(store)
        files = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "home").iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert {"store.db", "store.db-wal", "store.db-shm"} <= files.keys()
    assert set(files.values()) == {0o600}
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o600), (0o660, 0o660), (0o600, 0o600)])
def test_nobody_else_goes_on_reading_a_store_unless_they_share_it(
    tmp_path: Path, before: int, after: int
):
    store = Store(f"sqlite:///{tmp_path}/store.db")
    add_run(store)
    files = [tmp_path / name for name in ("store.db", "store.db-wal", "store.db-shm")]
    for each in files:
        each.chmod(before)
    Store(f"sqlite:///{tmp_path}/store.db").close()
    assert {each.stat().st_mode & 0o777 for each in files} == {after}
    store.close()


@pytest.mark.parametrize("trouble", ["removed", "replaced", "truncated"])
def test_a_file_that_is_not_the_store_any_more_does_not_answer(tmp_path: Path, trouble: str):
    """SQLite by itself would go on in what nobody else can see, or begin anew."""
    store = Store(f"sqlite:///{tmp_path}/store.db")
    uid = add_run(store).uid
    if trouble == "truncated":
        store.close()  # what its log holds is in the file then
        os.truncate(tmp_path / "store.db", 100)
    else:
        for each in tmp_path.glob("store.db*"):
            each.unlink()
    if trouble == "replaced":
        Store(f"sqlite:///{tmp_path}/store.db").close()
    with pytest.raises(RuntimeUnavailable, match="does not answer"):
        store.read([uid])
    with pytest.raises(RuntimeUnavailable, match="does not answer"):
        store.set_output(uid, RunOutput(uri="s3://out"))
    assert (tmp_path / "store.db").exists() == (trouble != "removed")
    store.close()


def test_a_database_that_is_away_is_told_without_its_password():
    url = "postgresql+psycopg2://ann:secret@/db?host=/nowhere"
    pytest.importorskip("psycopg2")
    with pytest.raises(RuntimeUnavailable) as error:
        Store(url)
    assert "secret" not in str(error.value)
    assert "ann:***" in str(error.value)


@pytest.mark.e2e
def test_a_server_that_restarts_is_found_again(postgres: PostgresCluster):
    store = Store(postgres.shared)
    uid = add_run(store).uid
    postgres.restart()
    assert store.add_request(uid, "pause") == 1
    store.close()
    postgres.clear()


def test_the_clock_is_the_hosts_or_the_servers(
    url: str, server: str, monkeypatch: pytest.MonkeyPatch
):
    """The host's says START for ever."""
    monkeypatch.setattr(database, "time", SimpleNamespace(time=lambda: START))
    store = Store(url)
    uid = add_run(store).uid
    if server == "sqlite":
        assert store.now() == START
        assert take(store, uid).expires_at == START + 15
    else:
        with create_engine(url).connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            question = text("SELECT CAST(extract(epoch FROM clock_timestamp()) AS float)")
            before = connection.scalar(question)
            now, lease = store.now(), take(store, uid)
            after = connection.scalar(question)
        assert START < before < now < lease.expires_at - 15 < after
    store.close()


def test_a_sqlite_store_keeps_a_write_ahead_log(tmp_path: Path):
    store = Store(f"sqlite:///{tmp_path}/store.db")
    with store._db.read() as connection:
        answers = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    store.close()
    assert answers == {
        "journal_mode": "wal",
        "foreign_keys": 1,
        "synchronous": 1,
        "busy_timeout": 30_000,
    }


def in_child(check: object) -> bool:
    """Return whether `check()` is true in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)  # type: ignore[operator] # a function
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def id_of_connection(store: Store) -> int:
    with store._db.read() as connection:
        return id(connection.connection.driver_connection)


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is what is tested
def test_a_forked_child_opens_connections_of_its_own(store: Store):
    uid = add_run(store).uid
    parents = id_of_connection(store)
    assert in_child(lambda: id_of_connection(store) != parents)
    assert id_of_connection(store) == parents
    with store._db.write() as connection:  # the parent is in the middle of a transaction
        connection.exec_driver_sql("SELECT 1")
        assert in_child(lambda: store.run(uid) is not None)
    assert in_child(lambda: store.add_request(uid, "pause") == 1)
    store.add_events(uid, [an_event()])
    assert store.requests(uid)[0].id == 1


def test_the_settings_store_is_opened_once(airflow_home: Path, sqlite_template: Path):
    shutil.copy(sqlite_template, airflow_home / "airflow_training.db")
    store = open_store()
    assert store is open_store()
    assert store.url == f"sqlite:///{airflow_home}/airflow_training.db"
    store.close()


def test_the_deployment_id_is_made_once_unless_configured(
    airflow_home: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copy(sqlite_template, airflow_home / "airflow_training.db")
    made = deployment_id()
    assert len(made) == 12
    assert made.isalnum()
    again = Store(open_store().url)
    assert again.deployment.id() == made == deployment_id()
    again.close()
    monkeypatch.setenv("AIRFLOW__TRAINING__DEPLOYMENT_ID", "production")
    assert deployment_id() == "production"
    open_store().close()
