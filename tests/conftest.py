"""What all tests share: one event loop backend, and an Airflow home of their own."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gate.purity import hold_pure
from tests.gate.tiers import HALVES, half, mark_tier, needs_import

# Before anything imports airflow: tests never see the user's own Airflow home, caches and cluster.
_ONE_OF_MANY = "PYTEST_XDIST_WORKER" in os.environ
if not _ONE_OF_MANY:
    os.environ["TESTS_FOLDER"] = tempfile.mkdtemp(prefix="airflow-training-tests-")
_FOLDER = os.environ["TESTS_FOLDER"]
_LONGEST_ID = 200
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-", dir=_FOLDER)
os.environ["XDG_CACHE_HOME"] = f"{_FOLDER}/cache"
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
os.environ["AIRFLOW__TRAINING__CLOUD_IDLE_SECONDS"] = "0"  # what a test starts ends with it

# Before anything imports numpy or torch: there are as many processes as cores already, and threads that
# wait for each other by spinning cost several times what they compute.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Thousands of tests are collected, and nothing of that is garbage: looking for some took a quarter of the time.
gc.disable()

# One server forks the ranks and commands of all tests. Whichever test comes first starts it, so it is told
# here what they need: a rank that imports torch by itself takes seconds.
multiprocessing.set_forkserver_preload(
    [
        "tests.checkpoints.test_rendezvous",
        "tests.checkpoints.test_rejoining",
        "tests.supervise.first_pass",
        "tests.cli.conftest",
        "airflow_training.cli.running",
        "airflow_training.cli.statuses",
        "alembic.command",
    ]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--half", choices=HALVES, help="run only the tests of these rooms (tests/gate)"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "cluster":  # these tests are about the cluster that it names
        os.environ["KUBECONFIG"] = f"{_FOLDER}/no-cluster"


def pytest_unconfigure() -> None:
    if not _ONE_OF_MANY:
        shutil.rmtree(_FOLDER, ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import of a tier only what is in it: Airflow and torch take seconds."""
    if not collection_path.match("test_*.py"):
        return None
    if config.option.half not in (None, half(collection_path)):
        return True
    return None if needs_import(collection_path, config.option.markexpr) else True


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a long text by how it begins: a whole one, of megabytes at times, would stand in every report."""
    if isinstance(val, str | bytes) and len(val) > _LONGEST_ID:
        start = val[:40] if isinstance(val, str) else val[:40].decode("latin-1")
        return f"{start.encode('unicode_escape').decode()}... of {len(val)}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tier of each test; what takes longest begins first."""
    for item in items:
        mark_tier(item)
    items.sort(key=_rank)


_LONGEST = (
    "tests/cli/test_digits_killed.py",
    "tests/cli/test_elastic.py",
    "tests/docs/test_snippets.py",
)


def _rank(item: pytest.Item) -> tuple[int, bool, bool]:
    """Return what is the less, the longer a test takes: a long one at the end would be waited for alone.

    Those that share an Airflow come after the others, as it would run beside them to the end.
    """
    path = item.nodeid.partition("::")[0]
    place = _LONGEST.index(path) if path in _LONGEST else len(_LONGEST)
    shares = "airflow" in getattr(item, "fixturenames", ())
    return place, shares, item.get_closest_marker("e2e") is None


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with hold_pure() if item.get_closest_marker("pure") else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with hold_pure() if item.get_closest_marker("pure") else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Let a coroutine that waits for ever fail a little before its timeout.

    The timeout ends the loop and not the coroutine, so the fixtures' ends would wait behind it for ever.
    """
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        marker, config = pyfuncitem.get_closest_marker("timeout"), pyfuncitem.config
        limit = marker.args[0] if marker else config.getoption("timeout")
        seconds = float(config.getini("timeout") if limit is None else limit)
        if seconds:  # 0 is none
            pyfuncitem.obj = _within(0.8 * seconds, pyfuncitem.obj)
    return (yield)


def _within(seconds: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(**fixtures: Any) -> None:
        with anyio.fail_after(seconds):
            await test(**fixtures)

    return bounded


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class CompiledStatements(dict[Any, Any]):
    """SQL by what it is compiled from, for all SQLite stores: thousands are opened, and each engine would compile anew."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._of_any_engine(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(self._of_any_engine(key), compiled)

    def _of_any_engine(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        dialect, *statement = key
        return (type(dialect), *statement)


@pytest.fixture(scope="session", autouse=True)
def _compiled_statements() -> Generator[None]:
    from airflow_training.state import database

    kept = CompiledStatements()
    opened = database.open_engine

    def open_engine(url: Any) -> Any:
        engine = opened(url)
        if engine.dialect.name == "sqlite":
            engine.update_execution_options(compiled_cache=kept)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "open_engine", open_engine)
        yield


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with all tables and nothing in them: a copy is had for less than the migrations."""
    from airflow_training.state.store import upgrade

    path = tmp_path_factory.mktemp("store") / "template.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def airflow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_template: Path) -> Path:
    """Return a fresh Airflow home that settings and store resolve to."""
    shutil.copy(sqlite_template, tmp_path / "airflow_training.db")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _own_logging() -> Generator[None, None, None]:
    """The command line directs our log to its stderr; the next test shall see it where it was."""
    ours = logging.getLogger("airflow_training")
    before = ours.handlers[:], ours.level, ours.propagate
    yield
    ours.handlers[:], ours.level, ours.propagate = before
