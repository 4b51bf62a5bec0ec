"""The tables appear by themselves, once, whoever comes first."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, event, inspect, text
from sqlalchemy.engine import Engine

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import Scheduling
from airflow_training.errors import InputError
from airflow_training.state import migrations
from airflow_training.state.models import Base
from airflow_training.state.store import Store, check, upgrade
from airflow_training.state.upgrade import HEAD, VERSION_TABLE
from tests.state.samples import a_job, a_key, a_ledger, add_run
from tests.waiting import PATIENCE

OPEN_AND_CREATE = """
import sys, time
from airflow_training.state.store import Store
from tests.state.samples import a_job, a_key, a_ledger, add_run
print("ready", flush=True)
sys.stdin.readline()
store = Store(sys.argv[1])
print(add_run(store, sys.argv[2]).uid, store.deployment.id(), "alembic" in sys.modules)
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate("go\n", timeout=PATIENCE)
    assert process.returncode == 0
    return out.split("\n")[1]


@pytest.mark.e2e
def test_four_processes_starting_at_once_make_one_store(empty_url: str):
    processes = [start(OPEN_AND_CREATE, empty_url, f"run-{number}") for number in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all have imported everything: now they race
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=PATIENCE)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert len({uid for uid, _, _ in answers}) == 4
    assert len({deployment for _, deployment, _ in answers}) == 1
    store = Store(empty_url)
    assert {record.uid for record in store.runs()} == {uid for uid, _, _ in answers}
    store.close()


@pytest.mark.e2e
def test_an_up_to_date_store_opens_without_alembic(url: str):
    assert finish(start(OPEN_AND_CREATE, url, "first")).split()[2] == "False"


def test_opening_and_reading_asks_two_questions_however_many_runs_there_are(url: str):
    store = Store(url)
    for number in range(5):
        add_run(store, f"run-{number}")
    store.close()
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        store = Store(url)
        assert len(store.runs()) == 5
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    store.close()
    assert ["FROM training_alembic_version" in each for each in asked] == [True, False]


def test_check_tells_where_the_database_is(empty_url: str):
    assert check(empty_url) == (None, HEAD)
    upgrade(empty_url)
    assert check(empty_url) == (HEAD, HEAD)
    upgrade(empty_url)
    assert check(empty_url) == (HEAD, HEAD)


def test_checking_makes_no_file(tmp_path: Path):
    assert check(f"sqlite:///{tmp_path}/none.db") == (None, HEAD)
    assert [*tmp_path.iterdir()] == []


def test_migrations_make_exactly_the_tables_of_the_models(url: str):
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []
        names = inspect(connection).get_table_names()
    engine.dispose()
    assert all(name.startswith("training_") for name in names)


def test_migrations_make_the_keys_of_the_models(url: str):
    engine = create_engine(url)
    found = inspect(engine)
    for table in Base.metadata.tables.values():
        key = found.get_pk_constraint(table.name)["constrained_columns"]
        assert sorted(key) == sorted(column.name for column in table.primary_key), table.name
    engine.dispose()


def test_values_from_before_ranks_were_kept_are_those_of_the_instance(empty_url: str):
    store = Store(empty_url)
    uid = add_run(store).uid
    store.progress.save(
        uid, {InstanceKey("worker", 0): ProgressReport(step=7, time=8.0, metrics={"loss": 0.5})}
    )
    store.close()
    migrate(empty_url, to="0004")
    store = Store(empty_url)
    (kept,) = store.metrics.series(uid)
    assert (kept.step, kept.at, kept.value, kept.rank) == (7, 8.0, 0.5, None)
    store.progress.save(
        uid, {InstanceKey("worker", 0): ProgressReport(step=7, time=8.0, metrics={"loss": 0.5})}
    )
    assert store.metrics.series(uid) == [kept]
    store.close()


def test_runs_from_before_names_were_kept_go_on_without(empty_url: str):
    store = Store(empty_url)
    uid = add_run(store).uid
    store.progress.save(uid, {InstanceKey("worker", 0): ProgressReport(step=7)})
    store.close()
    migrate(empty_url, to="0005")
    store = Store(empty_url)
    assert store.find_run(uid).submitted_by == ""
    assert store.progress.newest(uid)[InstanceKey("worker", 0)].step == 7, (
        "a table that is rebuilt takes no other along"
    )
    named = store.create_run(
        a_key("later"), a_job(), a_ledger(), controller="here", queue=False, submitted_by="ann"
    )
    assert store.runs()[0].submitted_by == named.submitted_by == "ann"
    store.close()


def test_requests_from_before_keys_were_kept_stay(empty_url: str):
    store = Store(empty_url)
    uid = add_run(store).uid
    store.add_request(uid, "pause", by="ann", key="k")
    store.close()
    migrate(empty_url, to="0006")
    store = Store(empty_url)
    assert [(each.id, each.kind, each.by) for each in store.requests(uid)] == [(1, "pause", "ann")]
    assert store.request_of(uid, "k") is None
    assert [store.add_request(uid, "resume", key="k") for _ in range(2)] == [2, 2]
    store.close()


@pytest.mark.parametrize(
    ("gang", "keeps_size"), [("none", False), ("volcano", False), ("kueue", True)]
)
def test_gangs_of_before_keep_their_size_by_their_kind(empty_url: str, gang: str, keeps_size: bool):
    document = {"spec": {"schedulingPolicy": {"gang": "kueue"}}}
    job = replace(a_job(), scheduling=Scheduling(gang=gang, queue="a"), document=document)
    store = Store(empty_url)
    uid = store.create_run(a_key(), job, a_ledger(), controller="here", queue=False).uid
    store.close()
    migrate(empty_url, to="0008")
    store = Store(empty_url)
    kept = store.read([uid])[uid].job
    assert kept.scheduling == Scheduling(gang=gang, queue="a", keeps_size=keeps_size)
    assert kept.document == document
    store.close()


def migrate(url: str, *, to: str) -> None:
    """Bring a store back to an older revision."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes.update(connection=connection, version_table=VERSION_TABLE)
        command.downgrade(config, to)
    engine.dispose()


def test_the_head_is_the_newest_migration():
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert scripts.get_current_head() == HEAD


def test_a_store_of_a_newer_version_is_refused(empty_url: str):
    upgrade(empty_url)
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(InputError, match=r"revision 9999(.|\n)*upgrade airflow-training"):
        Store(empty_url)


def is_awaited(lock: Path) -> bool:
    """Return whether somebody waits for a lock that another one holds."""
    inode = f":{lock.stat().st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and inode in line for line in lines)


def lets_readers_in(file: Path) -> bool:
    with contextlib.closing(sqlite3.connect(file, timeout=0)) as reader:
        try:
            reader.execute("SELECT * FROM other").fetchall()
        except sqlite3.OperationalError:
            return False
        return True


def test_an_upgrade_waits_for_another_process(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/store.db"
    lock = tmp_path / "store.db.upgrade-lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=upgrade, args=(url,))
        thread.start()
        while not is_awaited(lock):
            thread.join(0.01)
            assert thread.is_alive()
        assert check(url) == (None, HEAD)
    thread.join(30)
    assert check(url) == (HEAD, HEAD)


def test_an_upgrade_waits_until_nobody_reads_the_file(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/store.db"
    reader = sqlite3.connect(tmp_path / "store.db", isolation_level=None, check_same_thread=False)
    reader.execute("CREATE TABLE other (id INTEGER)")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM other").fetchall()
    thread = threading.Thread(target=upgrade, args=(url,))
    thread.start()
    while lets_readers_in(tmp_path / "store.db"):  # one that waits for its turn lets nobody in
        thread.join(0.01)
        assert thread.is_alive()
    reader.execute("COMMIT")
    thread.join(30)
    reader.close()
    assert check(url) == (HEAD, HEAD)


def test_an_upgrade_that_was_killed_half_way_is_done_again(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
):
    from alembic import op

    create_index = op.create_index

    def killed(name: str, *arguments: object) -> None:
        if name == "ix_training_queue_started_at_priority_ticket":
            raise KeyboardInterrupt
        create_index(name, *arguments)  # type: ignore[arg-type] # passed on as they came

    with monkeypatch.context() as patch:
        patch.setattr(op, "create_index", killed)
        with pytest.raises(KeyboardInterrupt):
            upgrade(empty_url)
    assert check(empty_url) == (None, HEAD)
    store = Store(empty_url)
    assert add_run(store).queued
    store.close()


def test_it_lives_beside_the_tables_of_others(empty_url: str):
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('airflow')"))
        connection.execute(text("CREATE TABLE job (id INTEGER)"))
    Store(empty_url).close()
    with engine.begin() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    engine.dispose()
    assert found == "airflow"
