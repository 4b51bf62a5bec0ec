"""A page is a session in an empty folder: its files are written, its commands typed, its Python run.

The text of every snippet is taken unchanged. What the machine of a reader has is supplied: a
cluster, an object store, an Airflow home, which is the folder itself. A block whose first line
is `# NAME` is the file NAME. A block that starts with `$ ` shows what the command prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks_of
from tests.docs.supplies import SUPPLIES
from tests.kubernetes.emulator import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

_ELSEWHERE = re.compile(
    r"^(?:\w+=\S+ )*(?:make|python -m tests|docker|kubectl|systemctl)\b", re.MULTILINE
)
"""What needs this checkout, an engine, kubectl or an init system."""
NEEDS_AIRFLOW = re.compile(
    r"^(?:curl|airflow-training submit|airflow dags|airflow standalone)\b", re.MULTILINE
)
"""What needs an Airflow that runs, or is one: `tests/airflow/test_snippets_e2e.py` types it."""


def _does_something(block: Block) -> bool:
    """Return whether a reader does something with a block that can be done here."""
    if block.info == "sh":
        return not (_ELSEWHERE.search(block.text) or NEEDS_AIRFLOW.search(block.text))
    return block.info == "python" or bool(block.file) or block.text.startswith("$ ")


def _says(text: str) -> str:
    """Return what a text says, whatever its line breaks and the time of day."""
    return " ".join(re.sub(r"\d\d:\d\d:\d\d", "12:00:00", text).split())


@dataclass
class Session:
    """A folder, and what a shell in it would have in its environment."""

    folder: Path
    environment: dict[str, str]
    _python: list[str] = field(default_factory=list)
    """The Python of a page, which goes on from block to block."""

    def take(self, block: Block) -> None:
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.text.startswith("$ "):
            command, _, shown = block.text.removeprefix("$ ").partition("\n")
            said = _says(self._type(command).stdout)
            for part in _says(shown).split("..."):
                assert part.strip() in said, f"{block}: {part!r} is not in\n{said}"
        elif block.info == "sh":
            self._check(block, self._type(block.text))
        else:
            self._python.append(block.text)
            self._check(block, self._run([sys.executable, "-c", "\n".join(self._python)]))

    def _type(self, text: str) -> subprocess.CompletedProcess[str]:
        # The shell stays the parent of its last command too, as a reader's does: `:` comes after it.
        return self._run(["bash", "-euo", "pipefail", "-c", f"{text}\n:"])

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=550,
        )

    def _check(self, block: Block, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode == 0, f"{block} ended with {done.returncode}:\n{done.stdout}"
        assert "Traceback (most recent call last)" not in done.stdout, f"{block}:\n{done.stdout}"

    def check_dags(self) -> None:
        """Every file of the DAGs folder is one or more DAGs, as Airflow reads it."""
        if not (self.folder / "dags").is_dir():
            return
        done = self._run([sys.executable, "-c", _READ_DAGS])
        assert done.returncode == 0, done.stdout

    def sweep(self) -> None:
        """End what still runs, while the cluster of the page is there to be asked."""
        self._run(["airflow-training", "sweep", "--idle", "0"])


_READ_DAGS = """
from pathlib import Path
from airflow.dag_processing.dagbag import DagBag

bag = DagBag("dags")
assert not bag.import_errors, bag.import_errors
without = {each.name for each in Path("dags").glob("*.py")}
without -= {Path(dag.fileloc).name for dag in bag.dags.values()}
assert not without, without
"""


@pytest.fixture
def session(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    kept = {key: os.environ[key] for key in ("LANG", "LC_ALL", "TMPDIR") if key in os.environ}
    environment = {
        **kept,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__TRAINING__CLOUD_IDLE_SECONDS": "0",  # what a page starts ends with its commands
        "AIRFLOW__TRAINING__LOCAL_ENV": "OMP_NUM_THREADS",  # ranks share this machine with other tests
        "HOME": str(tmp_path / "home"),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        # what is made once for a machine, as fonts and compiled causes are, is made once for all pages
        "XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache"),
    }
    return Session(folder, environment)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


_SAMPLE = frozenset({"README.md", "docs/local.md", "docs/plan.md", "docs/tutorial.md"})
"""The other pages show commands each of which has tests of its own."""
_SESSIONS = [
    pytest.param(page, id=name, marks=() if name in _SAMPLE else pytest.mark.soak)
    for page in PAGES
    if any(map(_does_something, blocks_of(page)))
    for name in (str(page.relative_to(ROOT)),)
]


@pytest.mark.parametrize("page", _SESSIONS)
def test_the_snippets_of_a_page_run_as_they_stand(
    page: Path, session: Session, request: pytest.FixtureRequest
) -> None:
    supply = SUPPLIES.get(page.name)
    if supply is not None:
        session.environment |= supply(request, session.folder)
    try:
        for block in blocks_of(page):
            if _does_something(block):
                session.take(block)
        session.check_dags()
    finally:
        session.sweep()
