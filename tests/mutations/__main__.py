"""Breaks the code on purpose, one row of the table at a time, and watches the row's test fail.

`python -m tests.mutations [NUMBER...]` works in a copy of the tree, never in the tree itself. Exit
code 1 when a mutation survives, when what it breaks is not found, or when a test fails untouched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from airflow_training.agent.proc import kill_exactly, start_time
from tests.mutations.change import change_file
from tests.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
ASSERTION_FAILED = 1
"""pytest's exit code when tests ran and some failed; collection errors have others."""
CRASHES = (
    "AttributeError",
    "ImportError",
    "ModuleNotFoundError",
    "NameError",
    "SyntaxError",
    "TypeError",
    "UnboundLocalError",
)
"""A program that does not work at all proves nothing about its test."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What pytest said about some tests."""

    code: int
    failures: Mapping[str, str]
    """Function that failed in its body -> the first line of why."""
    output: str
    seconds: float


class Copy:
    """A copy of the tree in which code may be broken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tree = folder / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, self.tree / name
            if source.is_symlink() or source.is_file():  # a listed file may be deleted by now
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(self.tree),  # goes before the installed package, in children too
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(folder),
        }
        # Checked by content: a cache that goes by time and size misses a change within a second.
        self._python("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", self.tree)
        used = self._python("-c", "import airflow_training; print(airflow_training.__file__)")
        if not Path(used.stdout.strip()).is_relative_to(self.tree):
            raise SystemExit(f"tests would not see the copy but {used.stdout}")

    def _python(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self._folder,
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        )

    def test(self, *tests: str) -> Outcome:
        """Run tests in the copy; ends what they leave behind."""
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        options = ["-q", "--timeout=60", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += [f"--junitxml={report}", f"--basetemp={self._folder / 'tests'}"]
        options += ["--maxfail=1"] if len(tests) == 1 else []
        began = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=self.tree,
                env=self._environment,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        finally:
            self.end_leftovers()
        return Outcome(
            code=done.returncode,
            failures=dict(_failures(report)),
            output=done.stdout,
            seconds=time.monotonic() - began,
        )

    def end_leftovers(self) -> None:
        """Kill what broken code left running: everything that names this copy's folder."""
        name = str(self._folder).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            pid = int(entry.name)
            started = start_time(pid)  # before looking: only what was looked at is killed
            try:
                said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if name in said:
                kill_exactly(pid, started, 9)


def _failures(report: Path) -> Iterator[tuple[str, str]]:
    if not report.exists():
        return
    for case in ElementTree.parse(report).iter("testcase"):  # pytest's own file
        for failure in case.iter("failure"):
            function = case.get("name", "").partition("[")[0]
            yield function, failure.get("message", "").partition("\n")[0]


def main(arguments: Sequence[str]) -> int:
    """Return 0 when every mutation was caught."""
    numbers = [int(each) for each in arguments] or range(1, len(MUTATIONS) + 1)
    chosen = {number: MUTATIONS[number - 1] for number in numbers}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="airflow-training-mutations-") as folder:
        copy = Copy(Path(folder))
        tests = dict.fromkeys(each.test for each in chosen.values())
        untouched = copy.test(*tests)
        if untouched.code != 0:
            print(untouched.output)
            print("these tests fail without any mutation")
            return 1
        print(f"{len(tests)} tests pass untouched ({untouched.seconds:.0f} s)\n")
        survivors = [n for n, each in chosen.items() if not _caught(copy, n, each)]
    caught = f"{len(chosen) - len(survivors)} of {len(chosen)} mutations caught"
    print(f"\n{caught} in {time.monotonic() - began:.0f} s")
    if survivors:
        print(f"survived: {', '.join(map(str, survivors))}")
    return 1 if survivors else 0


def _caught(copy: Copy, number: int, mutation: Mutation) -> bool:
    """Break one thing, run its test, mend it; print and return whether the test noticed."""
    head = f"{number:>2}  guarantee {mutation.guarantee}  {mutation.file}"
    path = copy.tree / mutation.file
    text = path.read_text(encoding="utf-8")
    try:
        broken = change_file(mutation.file, text, mutation.definition, mutation.old, mutation.new)
    except ValueError as error:
        print(f"{head}\n    NOT FOUND: {error}", flush=True)
        return False
    path.write_text(broken, encoding="utf-8")
    try:
        outcome = copy.test(mutation.test)
    finally:
        path.write_text(text, encoding="utf-8")
    function = mutation.test.rpartition("::")[2].partition("[")[0]
    why = outcome.failures.get(function, "")
    caught = outcome.code == ASSERTION_FAILED and bool(why) and not why.startswith(CRASHES)
    print(f"{head}  {'caught' if caught else 'SURVIVED'} ({outcome.seconds:.1f} s)")
    print(f"    {mutation.why}")
    print(f"    {mutation.test}: {why[:100] or 'did not fail'}", flush=True)
    if not caught and outcome.code != 0:
        print(outcome.output)
    return caught


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
