"""Ways in which `cloud run` fails: each says what is to blame and the next command, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import http.server
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

from airflow_training.accounts.operations import add_key
from airflow_training.cloud.targets import Target, save_target
from airflow_training.state.account_records import Account, AccountLimit, Price
from tests.cloud.elsewhere import ROOT, Elsewhere
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.timeout(300)

WRITES = """
import pathlib
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/model.pt").write_bytes(b"w" * 3_000_000)
"""
PLANTED = "AK" + "IA" + "Q3EGRT7W" + "XK2MZP5N"


class Office(Elsewhere):
    """A service with accounts: each of them may do something else."""

    options = ()

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        accounts = self.store.accounts
        for name in ("ada", "eve", "dan"):
            accounts.save(Account(name=name, prepaid=name == "dan", threshold=Decimal(5)))
        self.keys = {name: add_key(self.store, name)[0] for name in ("ada", "eve", "dan")}
        self.keys["reader"] = add_key(self.store, "ada", scope="read")[0]
        self.keys["expired"] = add_key(self.store, "ada", days=-1)[0]
        self.keys["unknown"] = "atk_0000000000_nobody"
        limit = AccountLimit(account="eve", kind="gpu_hours", period="total", amount=Decimal(1))
        accounts.set_limit(limit)
        accounts.set_price(Price(resource="instance", valid_from=0.0, hourly=Decimal(1)))


@dataclass
class Bench:
    """A laptop with a project, and the office where its runs go."""

    folder: Path
    office: Office
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[int, int] = field(default_factory=dict)
    """Of the command's process."""

    def __post_init__(self) -> None:
        self.home, self.project = self.folder / "home", self.folder / "project"
        self.project.mkdir(parents=True)
        self.home.mkdir()
        self.write("train.py", WRITES)

    def write(self, name: str, text: str) -> None:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def target(self, key: str = "ada", url: str = "") -> None:
        """Make the office, or another address, the default."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIRFLOW_HOME", str(self.home))
            save_target(Target(name="office", url=url or self.url, key=self.office.keys[key]))

    def starts(self, *words: str) -> subprocess.Popen[str]:
        def limit() -> None:
            for kind, most in self.limits.items():
                resource.setrlimit(kind, (most, most))

        mine = {"PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(self.home), **self.environment}
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", "cloud", *words],
            cwd=self.project,
            env={**os.environ, **mine},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit if self.limits else None,
        )


@dataclass(frozen=True)
class Failure:
    """One way to fail."""

    name: str
    words: Sequence[str]
    culprit: str
    """What has to be named."""
    step: str
    """The next command, or what is to be changed."""
    code: int = 2
    prepare: Callable[[Bench], object] = lambda bench: bench.target()
    begins: bool = False
    """There is a run: it fails where it runs."""


def script(text: str) -> Callable[[Bench], None]:
    def prepare(bench: Bench) -> None:
        bench.write("train.py", text)
        bench.target()

    return prepare


def key(name: str) -> Callable[[Bench], None]:
    return lambda bench: bench.target(name)


def at(url: str) -> Callable[[Bench], None]:
    return lambda bench: bench.target(url=url)


def odd_name(bench: Bench) -> None:
    bench.target()
    with open(os.path.join(os.fsencode(bench.project), b"\xff\xfe.py"), "wb"):
        pass


def another_python(bench: Bench) -> None:
    """A package that no index has."""
    info = bench.folder / "site" / "no_such_thing_here-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: no-such-thing-here\nVersion: 9.9\n")
    (info / "RECORD").write_text("no_such_thing_here.py,,\n")
    (info.parent / "no_such_thing_here.py").write_text("")
    bench.environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{info.parent}"}
    bench.target()


def full_here(bench: Bench) -> None:
    bench.target()
    bench.limits = {resource.RLIMIT_FSIZE: 1_000_000}


def a_file_in_the_way(bench: Bench) -> None:
    bench.target()
    bench.write("train.py", WRITES.replace('"out', '"result'))
    bench.write("result", "no folder")


FAILURES = [
    Failure("no-such-script", ["nope.py"], "nope.py", "cloud run"),
    Failure("no-script", [], "SCRIPT", "cloud run"),
    Failure("no-such-module", ["-m", "nope"], "nope", "cloud run"),
    Failure("missing-import", ["train.py"], "train.py:1: nowhere", "--allow-missing", prepare=script("import nowhere\n")),
    Failure("secret-in-a-file", ["train.py"], "train.py:1", "--allow-secret", prepare=script(f'key = "{PLANTED}"\n')),
    Failure("secret-as-argument", ["train.py", "--token", PLANTED], "--token", "secret"),
    Failure("no-such-target", ["--target", "offize", "train.py"], "offize", "office"),
    Failure("wrong-address", ["train.py"], "http://127.0.0.1:9", "cloud targets", code=1, prepare=at("http://127.0.0.1:9")),
    Failure("no-host", ["train.py"], "no-such-host.invalid", "cloud targets", code=1, prepare=at("http://no-such-host.invalid")),
    Failure("no-service", ["train.py"], "has no service of this protocol", "is that the address"),
    Failure("no-key", ["train.py"], "key", "cloud login", prepare=key("unknown")),
    Failure("expired-key", ["train.py"], "expired", "cloud login", prepare=key("expired")),
    Failure("read-only-key", ["train.py"], "may only read", "accounts key", prepare=key("reader")),
    Failure("quota", ["--resources", "nvidia.com/gpu=8", "--hours", "2", "train.py"], "eve may use 1 GPU-hours", "accounts usage eve", prepare=key("eve")),
    Failure("balance", ["--hours", "2", "train.py"], "dan", "accounts", prepare=key("dan")),
    Failure("no-such-team", ["--team", "nobody", "train.py"], "nobody", "team"),
    Failure("no-such-data", ["--data", "/no/such/data", "train.py"], "/no/such/data", "--data"),
    Failure("no-such-variable", ["--env", "NOT_SET", "train.py"], "NOT_SET", "--env NOT_SET=VALUE"),
    Failure("odd-resources", ["--resources", "much", "train.py"], "much", "--resources cpu=4"),
    Failure("odd-amount", ["--resources", "memory=lots", "train.py"], "lots", "memory"),
    Failure("odd-condition", ["--until", "loss", "train.py"], "'loss' is no comparison", "loss < 0.1"),
    Failure("odd-returns", ["--returns", "all", "train.py"], "'all' is not known", "model=PATH"),
    Failure("no-such-framework", ["--framework", "torhc", "train.py"], "torhc", "torch"),
    Failure("framework-of-different-programs", ["--framework", "mpi", "--replicas", "2", "train.py"], "mpi", "airflow-training init"),
    Failure("name-that-is-no-text", ["train.py"], "\\xff", ".trainingignore", prepare=odd_name),
    Failure("package-that-is-nowhere", ["train.py"], "no-such-thing-here", "next:", prepare=another_python),
    Failure("script-that-fails", ["train.py"], "exit code 3", "cloud logs", code=3, begins=True, prepare=script("raise SystemExit(3)\n")),
    Failure("import-at-run-time", ["train.py"], "nowhere", "cloud logs", code=1, begins=True, prepare=script("__import__('no' + 'where')\n")),
    Failure("killed-script", ["train.py"], "signal", "cloud logs", code=137, begins=True, prepare=script("import os; os.kill(os.getpid(), 9)\n")),
    Failure("too-long", ["--hours", "0.0003", "train.py"], "1.08 s", "cloud logs", code=1, begins=True, prepare=script("import time; time.sleep(600)\n")),
    Failure("out-of-memory", ["--resources", "memory=300Mi", "train.py"], "memory", "cloud logs", code=137, begins=True, prepare=script("x = b'x' * (1 << 30)\n")),
    Failure("no-output", ["--returns", "model=weights.pt", "train.py"], "weights.pt", "cloud logs", code=1, begins=True),
    Failure("full-disk-here", ["train.py"], "out/model.pt", "cloud logs", code=1, begins=True, prepare=full_here),
    Failure("file-in-the-way", ["train.py"], "result", "cloud logs", code=1, begins=True, prepare=a_file_in_the_way),
]  # fmt: skip


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Office]:
    home = tmp_path_factory.mktemp("office")
    shutil.copy(sqlite_template, home / "airflow_training.db")
    office = Office(home)
    office.url = office.start()
    yield office
    for each in office.store.runs():
        office.store.add_request(each.uid, "kill")
    office.kill()


@pytest.fixture(scope="module")
def no_service() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def bench(tmp_path: Path, office: Office) -> Iterator[Bench]:
    bench = Bench(tmp_path, office, office.url)
    yield bench
    for lock in (bench.home / "training-cloud" / "client" / "data").glob("*.lock"):
        with contextlib.suppress(ValueError, ProcessLookupError):
            os.kill(int(lock.read_text()), signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: each.name)
def test_a_failure_says_what_is_to_blame_and_what_to_do(bench, office, no_service, failure):
    failure.prepare(bench)
    if failure.name == "no-service":
        bench.target(url=no_service)
    before = {each.uid for each in office.store.runs()}
    code, out, said = finished(bench.starts("run", *failure.words))
    print(f"##### {failure.name} -> {code}\n{said}")
    assert failure.culprit in said, said
    assert failure.step in said, said
    assert code == failure.code, said
    assert "Traceback (most" not in said or failure.begins
    begun = [each for each in office.store.runs() if each.uid not in before]
    assert bool(begun) == failure.begins
    for each in begun:
        wait_until(lambda: office.store.ledger(each.uid).job.is_over)  # noqa: B023 - called here
    wait_until(lambda: office.store.reservations.live() == [])
    assert not list(bench.project.rglob(".*.part"))


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, said = process.communicate(timeout=PATIENCE)
    return process.returncode, out, said
