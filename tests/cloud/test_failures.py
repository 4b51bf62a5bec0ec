"""Ways in which `cloud run` fails: each says what is to blame and the next command, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import http.server
import os
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

from airflow_training.accounts.operations import add_key, settle
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
    url = ""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        accounts = self.store.accounts
        for name in ("ada", "eve", "dan"):
            accounts.save(Account(name=name, prepaid=name == "dan", threshold=Decimal(5)))
        self.keys = {name: add_key(self.store, name)[0] for name in ("ada", "eve", "dan")}
        self.keys["reader"] = add_key(self.store, "ada", scope="read")[0]
        self.keys["expired"] = add_key(self.store, "ada", days=-1)[0]
        self.keys["unknown"] = "atk_0000000000_nobody"
        limit = AccountLimit(
            account="eve", kind="instance_hours", period="total", amount=Decimal(1)
        )
        accounts.set_limit(limit)
        accounts.set_price(Price(resource="instance", valid_from=0.0, hourly=Decimal(1)))


@dataclass
class Bench:
    """A laptop with a project, and the office where its runs go."""

    folder: Path
    office: Office
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()
    """A program that starts the command."""

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
        mine = {"PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(self.home), **self.environment}
        return subprocess.Popen(
            [*self.before, sys.executable, "-m", "airflow_training.cli", "cloud", *words],
            cwd=self.project,
            env={**os.environ, **mine},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def types(self, *words: str) -> tuple[int, str]:
        """Return exit code and what was said."""
        process = self.starts(*words)
        _, said = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in said or "run-time" in said, said
        return process.returncode, said


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
    Path(os.fsdecode(os.fsencode(bench.project) + b"/\xff\xfe.py")).touch()


def another_python(bench: Bench) -> None:
    """A package that no index has."""
    info = bench.folder / "site" / "no_such_thing_here-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: no-such-thing-here\nVersion: 9.9\n"
    )
    (info / "RECORD").write_text("no_such_thing_here.py,,\n")
    (info.parent / "no_such_thing_here.py").write_text("")
    bench.environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{info.parent}"}
    bench.target()


def files_of_at_most(size: int) -> Sequence[str]:
    """Return a program that starts another one, for which the disk is full once a file is so large."""
    text = (
        "import os, resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    return [sys.executable, "-c", text]


def full_here(bench: Bench) -> None:
    bench.target()
    bench.before = files_of_at_most(1_000_000)


def a_file_in_the_way(bench: Bench) -> None:
    bench.target()
    bench.write("train.py", WRITES.replace('"out', '"result'))
    bench.write("result", "no folder")


FAILURES = [
    Failure("no-such-script", ["nope.py"], "'nope.py'", "no such file in"),
    Failure("no-script", [], "SCRIPT", "cloud run"),
    Failure("no-such-module", ["-m", "nope"], "nope", "--allow-missing nope"),
    Failure("missing-import", ["train.py"], "train.py:1: no module named 'nowhere'", "--allow-missing", prepare=script("import nowhere\n")),
    Failure("secret-in-a-file", ["train.py"], "train.py:1", "--allow-secret", prepare=script(f'key = "{PLANTED}"\n')),
    Failure("secret-as-argument", ["train.py", "--token", PLANTED], "--token", "secret"),
    Failure("no-such-target", ["--target", "offize", "train.py"], "offize", "office"),
    Failure("wrong-address", ["train.py"], "http://127.0.0.1:9", "cloud targets", code=1, prepare=at("http://127.0.0.1:9")),
    Failure("no-host", ["train.py"], "no-such-host.invalid", "cloud targets", code=1, prepare=at("http://no-such-host.invalid")),
    Failure("no-service", ["train.py"], "has no service of this protocol", "is that the address"),
    Failure("no-key", ["train.py"], "no such key", "cloud login", prepare=key("unknown")),
    Failure("expired-key", ["train.py"], "expired", "cloud login", prepare=key("expired")),
    Failure("read-only-key", ["train.py"], "may only read", "cloud login", prepare=key("reader")),
    Failure("quota", ["--hours", "2", "train.py"], "eve may use 1 instance-hours", "accounts usage eve", prepare=key("eve")),
    Failure("too-large", ["--resources", "nvidia.com/gpu=800", "train.py"], "800 of nvidia.com/gpu in all, this machine has", "run fewer replicas"),
    Failure("balance", ["--hours", "2", "train.py"], "dan", "accounts", prepare=key("dan")),
    Failure("no-such-team", ["--team", "nobody", "train.py"], "nobody", "team"),
    Failure("no-such-data", ["--data", "/no/such/data", "train.py"], "/no/such/data", "name the file or folder"),
    Failure("no-such-variable", ["--env", "NOT_SET", "train.py"], "NOT_SET", "--env NOT_SET=VALUE"),
    Failure("odd-resources", ["--resources", "much", "train.py"], "much", "--resources cpu=4"),
    Failure("odd-amount", ["--resources", "memory=lots", "train.py"], "'lots'", "1.5Gi"),
    Failure("odd-condition", ["--until", "loss", "train.py"], "'loss' is no comparison", "loss < 0.1"),
    Failure("odd-returns", ["--returns", "all", "train.py"], "'all' is not known", "model=PATH"),
    Failure("no-such-framework", ["--framework", "torhc", "train.py"], "torhc", "pytorch"),
    Failure("framework-of-different-programs", ["--framework", "mpi", "--replicas", "2", "train.py"], "mpi", "airflow-training init"),
    Failure("name-that-is-no-text", ["train.py"], "\\xff", ".trainingignore", prepare=odd_name),
    Failure("package-that-is-nowhere", ["train.py"], "no-such-thing-here", "install a version", prepare=another_python),
    Failure("script-that-fails", ["train.py"], "exit code 3", "cloud logs", code=3, begins=True, prepare=script("raise SystemExit(3)\n")),
    Failure("import-at-run-time", ["train.py"], "nowhere", "cloud logs", code=1, begins=True, prepare=script("__import__('no' + 'where')\n")),
    Failure("killed-script", ["train.py"], "signal", "cloud logs", code=137, begins=True, prepare=script("import os; os.kill(os.getpid(), 9)\n")),
    Failure("too-long", ["--hours", "0.0003", "train.py"], "activeDeadlineSeconds 1.08", "cloud logs", code=1, begins=True, prepare=script("import time; time.sleep(600)\n")),
    Failure("out-of-memory", ["--resources", "memory=300Mi", "train.py"], "host-out-of-memory", "cloud logs", code=1, begins=True, prepare=script("x = b'x' * (1 << 30)\n")),
    Failure("no-output", ["--returns", "model=weights.pt", "train.py"], "weights.pt", "cloud logs", begins=True),
    Failure("full-disk-here", ["train.py"], "out/model.pt", "cloud logs", code=1, begins=True, prepare=full_here),
    Failure("file-in-the-way", ["train.py"], "result", "cloud logs", code=1, begins=True, prepare=a_file_in_the_way),
]  # fmt: skip
SAMPLE = ("missing-import", "secret-as-argument", "expired-key", "quota", "script-that-fails")


@contextlib.contextmanager
def serving(home: Path, template: Path, *, before: Sequence[str] = ()) -> Iterator[Office]:
    shutil.copy(template, home / "airflow_training.db")
    office = Office(home)
    office.before = before
    office.url = office.start()
    try:
        yield office
    finally:
        for each in office.store.runs():
            office.store.add_request(each.uid, "kill")
        office.kill()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Office]:
    with serving(tmp_path_factory.mktemp("office"), sqlite_template) as office:
        yield office


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


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(
            each, id=each.name, marks=pytest.mark.e2e if each.name in SAMPLE else pytest.mark.soak
        )
        for each in FAILURES
    ],
)
def test_a_failure_says_what_is_to_blame_and_what_to_do(bench, office, no_service, failure):
    failure.prepare(bench)
    if failure.name == "no-service":
        bench.target(url=no_service)
    before = {each.uid for each in office.store.runs()}
    code, said = bench.types("run", *failure.words)
    assert failure.culprit in said, said
    assert failure.step in said, said
    assert code == failure.code, said
    begun = [each for each in office.store.runs() if each.uid not in before]
    assert bool(begun) == failure.begins
    for each in begun:
        wait_until(lambda: office.store.ledger(each.uid).job.is_over)  # noqa: B023 - called here
    settle(office.store)
    assert office.store.reservations.live() == []
    parts = list(bench.project.rglob(".*.part"))
    assert failure.name == "full-disk-here" or not parts  # there it goes on where it was cut off


@pytest.mark.soak
def test_a_service_that_is_killed_while_it_is_sent_to_is_named_and_the_same_command_goes_on(
    tmp_path, sqlite_template
):
    (tmp_path / "office").mkdir()
    with serving(tmp_path / "office", sqlite_template) as office:
        bench = Bench(tmp_path / "laptop", office, office.url)
        bench.target()
        for number in range(40):
            bench.write(f"text/{number}.txt", f"{number} " * 500_000)
        process = bench.starts("run", "train.py")
        content = office.home / "training-cloud" / "served" / "content"
        wait_until(
            lambda: content.exists() and any(each.is_file() for each in content.rglob("*")),
            alive=lambda: process.poll() is None,
        )
        office.kill()
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, said
        assert f"{office.url} does not answer" in said
        assert "next: " in said
        assert office.store.runs() == []
        office.start()
        code, said = bench.types("run", "train.py")
        assert code == 0, said
        assert "goes on with the submission that was interrupted" in said
        assert len(office.store.runs()) == 1
        assert (bench.project / "out/model.pt").stat().st_size == 3_000_000


@pytest.mark.soak
def test_a_full_disk_of_the_service_is_named_as_its_own(tmp_path, sqlite_template):
    (tmp_path / "office").mkdir()
    limit = files_of_at_most(4_000_000)
    with serving(tmp_path / "office", sqlite_template, before=limit) as office:
        bench = Bench(tmp_path / "laptop", office, office.url)
        bench.target()
        bench.write("words.py", "# a word\n" * 700_000)
        code, said = bench.types("run", "train.py")
        assert code == 1, said
        assert "the service's own machine: File too large" in said
        assert "next: the same command again" in said
        assert office.store.runs() == []


@pytest.mark.soak
def test_a_disk_that_is_full_where_the_run_writes_is_named(tmp_path, sqlite_template):
    (tmp_path / "office").mkdir()
    with serving(
        tmp_path / "office", sqlite_template, before=files_of_at_most(4_000_000)
    ) as office:
        bench = Bench(tmp_path / "laptop", office, office.url)
        bench.write("train.py", WRITES.replace("3_000_000", "5_000_000"))
        bench.target()
        code, said = bench.types("run", "train.py")
        assert code == 1, said
        assert (
            "worker-0: exit code 1 (disk-full): OSError: [Errno 27] File too large;"
            " it needs a change first"
        ) in said
        assert "next: airflow-training cloud logs" in said
        assert not (bench.project / "out").exists()


@pytest.mark.soak
def test_a_context_that_is_not_in_the_kubeconfig_is_named_and_nothing_is_kept(bench):
    kubeconfig = bench.folder / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\ncontexts: []\nclusters: []\nusers: []\n")
    bench.environment = {"KUBECONFIG": str(kubeconfig)}
    words = ["login", "lab", "kubernetes:nope/training", "--storage", str(bench.folder / "s")]
    code, said = bench.types(*words, "--image", "torch:1")
    assert code == 2, said
    assert "nope" in said
    assert "kubeconfig" in said
    assert (
        not (bench.home / "training-cloud" / "targets.json").exists()
        or "lab" not in (bench.home / "training-cloud" / "targets.json").read_text()
    )
