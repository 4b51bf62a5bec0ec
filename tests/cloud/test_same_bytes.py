"""Thirty scripts with the line where it does not act: what they write, and how they end, are those without it, byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_training.agent.library import library_path
from airflow_training.agent.package import portable_agent
from airflow_training.cloud import MODE_VARIABLE
from airflow_training.interception.protocol import PARAMETERS

ROOT = Path(__file__).parents[2]
LINE = "from airflow_training import cloud\ncloud.run(mode='{}', framework='pytorch', replicas=2, returns='none')\n"
WITHOUT = "pass\npass\n"
"""As many lines, so that a traceback names the same ones."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """What follows the line, how it is started and how it ends."""

    name: str
    text: str
    words: tuple[str, ...] = ("train.py",)
    code: int = 0
    stdin: bytes = b""


ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser(description="Train.")
parser.add_argument("--lr", type=float, default=0.1)
print(parser.parse_args())
"""
CHAIN = """
def load():
    try:
        {}["weights"]
    except KeyError as error:
        raise ValueError("no weights") from error
print("before", flush=True)
load()
"""
SPAWN = """
import multiprocessing
def work(number):
    print("worker", number, __name__, flush=True)
    return number * number
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, range(3)))
"""
FORK = """
import multiprocessing, sys
def work(number): sys.exit(number)
if __name__ == "__main__":
    made = [multiprocessing.get_context("fork").Process(target=work, args=(n,)) for n in range(3)]
    for each in made: each.start()
    for each in made: each.join()
    print([each.exitcode for each in made])
"""
FAILING_WORKER = """
import concurrent.futures, multiprocessing
def work(number): return 1 // number
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        print(pool.submit(work, 0).exception())
        pool.submit(work, 0).result()
"""
CHILD = """
import subprocess, sys
words = [sys.executable, "-c", "import sys; print(sys.argv, file=sys.stderr); sys.exit(7)", "a"]
print(subprocess.run(words, check=False).returncode)
"""
THREADS = """
import threading
def work(): raise RuntimeError("in a thread")
thread = threading.Thread(target=work, name="loader")
thread.start(); thread.join()
print(threading.active_count(), threading.current_thread().name)
"""
WARNING = """
import warnings
def old(): warnings.warn("use new()", DeprecationWarning, stacklevel=2)
old()
warnings.warn("a note")
"""
SIGNALS = """
import os, signal
print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT).__name__)
signal.signal(signal.SIGTERM, lambda number, frame: print("saved at", number, flush=True))
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGKILL)
"""
AT_END = """
import atexit, sys
for number in range(3): atexit.register(print, "end", number)
class Last:
    def __del__(self): print("deleted")
last = Last()
sys.stdout.write("no newline")
"""
DATACLASS = """
import dataclasses
@dataclasses.dataclass
class Config:
    lr: float = 0.1
    def __getattribute__(self, name): print("read", name); return super().__getattribute__(name)
config = Config()
print(config)
"""
PROCESS = """
import os, sys
print(__name__, __file__, __spec__, sys.argv, sys.path[0], sys.flags, len(os.listdir("/proc/self/fd")))
print([each for each in dir() if each != "cloud"], sys.getrecursionlimit(), sys.excepthook)
"""
ASYNC = """
import asyncio
async def work():
    await asyncio.sleep(0)
    raise TimeoutError("too slow")
asyncio.run(work())
"""
LOGGING = """
import logging
logging.warning("by the root"); logging.getLogger("train").error("by a name")
logging.getLogger("train").info("unseen")
"""
FAILING_END = """
import atexit
atexit.register(int, "one")
print("done")
"""

SCRIPTS = [
    Script(name="print", text="print('loss', 0.1)"),
    Script(name="process", text=PROCESS, words=("train.py", "--lr", "0.1")),
    Script(name="arguments", text=ARGUMENTS, words=("train.py", "--lr", "0.5")),
    Script(name="arguments-wrong", text=ARGUMENTS, words=("train.py", "--lr", "x"), code=2),
    Script(name="arguments-help", text=ARGUMENTS, words=("train.py", "--help")),
    Script(name="exception-chain", text=CHAIN, code=1),
    Script(name="exit-text", text="import sys; sys.exit('no data here')", code=1),
    Script(name="exit-number", text="raise SystemExit(42)", code=42),
    Script(name="exit-at-once", text="import os; print('lost'); os._exit(3)", code=3),
    Script(name="syntax-error", text="print('never')\nloss = = 1\n", code=1),
    Script(name="spawn", text=SPAWN),
    Script(name="fork", text=FORK),
    Script(name="failing-worker", text=FAILING_WORKER, code=1),
    Script(name="child", text=CHILD),
    Script(name="threads", text=THREADS),
    Script(name="warnings", text=WARNING),
    Script(name="warnings-are-errors", text=WARNING, words=("-W", "error", "train.py"), code=1),
    Script(name="signals", text=SIGNALS, code=-9),
    Script(name="interrupted", text="import os; os.kill(os.getpid(), 2)", code=-2),
    Script(name="atexit", text=AT_END),
    Script(name="atexit-fails", text=FAILING_END),
    Script(name="asyncio", text=ASYNC, code=1),
    Script(name="logging", text=LOGGING),
    Script(name="dataclass", text=DATACLASS),
    Script(
        name="bytes",
        text="import os, sys; sys.stdout.buffer.write(bytes(range(256))); os.write(2, b'\\xff\\0')",
        words=("-u", "train.py"),
    ),
    Script(
        name="stdin", text="import sys; print(input('> '), sys.stdin.read())", stdin=b"one\ntwo"
    ),
    Script(name="stdin-ended", text="input('> ')", code=1),
    Script(name="module", text="print(__name__, __spec__.name)\n1 / 0", words=("-m", "train"), code=1),
    Script(name="recursion", text="def f(): f()\nf()", code=1),
    Script(name="unencodable", text="print('\\ud800')", code=1),
]  # fmt: skip


@pytest.fixture(scope="module")
def hooked(tmp_path_factory):
    """Variables of an instance's processes, which have the hook."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "agent.pyz").write_bytes(portable_agent())
    told = {PARAMETERS: "tell", "TRAINING_PROGRESS_FILE": str(folder / "progress.jsonl")}
    path = library_path(str(folder / "agent.pyz"), {**told, "PYTHONPATH": str(ROOT)})
    return {**told, MODE_VARIABLE: "local", "PYTHONPATH": path}


def ran(script: Script, folder: Path, head: str, variables: Mapping[str, str]):
    """Exit code and bytes of both streams."""
    (folder / "train.py").write_text(head + script.text)
    told = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *script.words],
        cwd=folder,
        env={**os.environ, **told, **variables},
        input=script.stdin,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.name)
def test_a_script_with_the_line_writes_and_ends_as_without_it(script, tmp_path, hooked):
    expected = ran(script, tmp_path, WITHOUT, {})
    assert expected[0] == script.code, expected[2].decode(errors="replace")
    assert ran(script, tmp_path, LINE.format("local"), {}) == expected
    assert ran(script, tmp_path, LINE.format("cloud"), {MODE_VARIABLE: "local"}) == expected
    assert ran(script, tmp_path, LINE.format("cloud"), {"RANK": "1"}) == expected
    assert ran(script, tmp_path, LINE.format("cloud"), hooked) == expected, (
        "in a run, with its hook"
    )
