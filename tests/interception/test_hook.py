"""The hook in real processes: what it says, what it never does, and who else gets it."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from airflow_training.interception import hook
from airflow_training.interception.protocol import HookSettings, hook_environment
from tests.waiting import wait_until

OLDEST = [path for path in Path.home().glob(".pyenv/versions/3.8.*/bin/python") if path.exists()][
    :1
]


def run(script: str, folder: Path, *, python=sys.executable, **more):
    """Run a script with the hook; return what it printed and the lines of the hook."""
    (folder / "train.py").write_text(script)
    loads = folder / "loads.jsonl"
    told = hook_environment(
        loads_file=str(loads),
        code_roots=[str(folder)],
        python_path=more.pop("python_path", ""),
        **more,
    )
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, "train.py"],
        cwd=folder,
        env={**clean, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = loads.read_text().splitlines() if loads.exists() else []
    return done, [json.loads(line) for line in lines]


def classes(lines, folder: Path):
    return {
        Path(line["path"]).relative_to(folder).as_posix(): line["class"]
        for line in lines
        if line["path"].startswith(str(folder))
    }


READS = """
import gzip, json, os, sqlite3, sys
with open("data.csv") as f: f.read()
with gzip.open("more.gz", "wb") as f: f.write(b"1")
with gzip.open("more.gz") as f: print(f.read())
os.close(os.open("data.bin", os.O_RDONLY))
sqlite3.connect("table.db").close()
with open("out.txt", "w") as f: f.write("x")
with open(".env") as f: pass
import helper
print(json.dumps([n for n in sys.modules if "airflow" in n]))
"""


@pytest.mark.parametrize("python", [sys.executable, *map(str, OLDEST)])
def test_it_says_what_was_opened_and_by_what(tmp_path, python):
    for name in ("data.csv", "data.bin", "table.db", ".env"):
        (tmp_path / name).write_text("")
    (tmp_path / "helper.py").write_text("")
    done, lines = run(READS, tmp_path, python=python)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "b'1'\n[]\n", "nothing of ours stays importable"
    found = classes(lines, tmp_path)
    assert found.pop("__pycache__/", None) is None
    expected = {
        "data.csv": "data", "data.bin": "data", "table.db": "data", "out.txt": "output",
        ".env": "secret", "train.py": "program", "helper.py": "program",
    }  # fmt: skip
    assert {name: kind for name, kind in found.items() if name in expected} == expected
    apis = {Path(line["path"]).name: line["api"] for line in lines}
    assert apis["data.csv"] == "open"
    assert apis["more.gz"] == "gzip.open"
    assert apis["table.db"] == "sqlite3.connect"


def test_what_it_loads_for_itself_is_no_load_of_the_script(tmp_path):
    on_demand = {"socket": str(tmp_path / "socket"), "data_roots": [str(tmp_path / "data")]}
    done, lines = run("open('a', 'w').close()", tmp_path, ranges_from=1, **on_demand)
    assert done.returncode == 0, done.stderr
    assert {Path(line["path"]).name for line in lines} == {"train.py", "a"}


def test_output_and_exit_code_are_those_without_it(tmp_path):
    script = "import sys\nprint(open('missing.txt'))\n"
    done, _ = run(script, tmp_path)
    bare = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (
        bare.stdout,
        bare.stderr,
        bare.returncode,
    )


def test_it_is_not_there_where_nobody_wants_it(tmp_path):
    script = (
        "import sys\nprint([f for f in sys.meta_path if 'interception' in type(f).__module__])\n"
    )
    told = hook_environment()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_users_own_sitecustomize_runs_as_ever(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.mine = __name__, __file__\n")
    script = "import sys, sitecustomize\nprint(sys.mine[0], sitecustomize.__file__, [p for p in sys.path if 'bootstrap' in p])\n"
    done, lines = run(script, tmp_path, python_path=str(own))
    assert done.stdout == f"sitecustomize {own}/sitecustomize.py []\n"
    assert lines, "and the hook is there"


def test_an_own_package_of_our_name_is_the_users(tmp_path):
    own = tmp_path / "own" / "airflow_training"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("mine = True\n")
    done, _ = run(
        "import airflow_training\nprint(airflow_training.mine)\n",
        tmp_path,
        python_path=str(own.parent),
    )
    assert done.stdout == "True\n", done.stderr


STARTS = """
import multiprocessing, subprocess, sys
def work(name): open(name).close()
if __name__ == "__main__":
    for kind in ("fork", "spawn", "forkserver"):
        child = multiprocessing.get_context(kind).Process(target=work, args=(kind + ".csv",))
        child.start(); child.join()
    subprocess.run([sys.executable, "-c", "open('python.csv').close()"], check=True)
"""


def test_children_of_every_kind_have_it(tmp_path):
    names = ["fork.csv", "spawn.csv", "forkserver.csv", "python.csv"]
    for name in names:
        (tmp_path / name).write_text("")
    done, lines = run(STARTS, tmp_path)
    assert done.stderr == ""
    assert [name for name in names if classes(lines, tmp_path).get(name) != "data"] == []


def test_a_folder_of_many_files_does_not_fill_the_disk(tmp_path):
    many = tmp_path / "many"
    many.mkdir()
    for number in range(1500):
        (many / f"{number:04}.txt").touch()
    done, lines = run(
        "import os\nfor n in sorted(os.listdir('many')): open('many/' + n).close()\n", tmp_path
    )
    assert done.stderr == ""
    told = [line for line in lines if "/many/" in line["path"]]
    assert len(told) == 1001
    assert told[-1]["more"] == str(many)


def unfilled(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(0, path.stat().st_mtime_ns))


def test_a_file_that_is_filled_is_not_waited_for(tmp_path, responder):
    _, asked = responder
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("a")
    done, _ = run(
        "print(open('data/a').read())\n",
        tmp_path,
        socket=str(tmp_path / "socket"),
        data_roots=[str(tmp_path / "data")],
    )
    assert done.stdout == "a\n"
    wait_until(lambda: asked == [{"read": f"{tmp_path}/data/a"}])


@pytest.fixture
def responder(tmp_path):
    """Answers every question with the lines that a test sets; keeps what was asked."""
    answers: list[dict[str, object]] = []
    asked: list[dict[str, object]] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            asked.append(json.loads(self.rfile.readline()))
            for answer in answers:
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "socket"), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield answers, asked
        server.shutdown()
        thread.join()


def test_a_file_below_a_data_root_is_asked_for_once_and_waited_for(tmp_path, responder):
    answers, asked = responder
    answers += [{"waiting": "being fetched"}, {"ready": True}]
    (tmp_path / "data").mkdir()
    unfilled(tmp_path / "data" / "a", "a")
    (tmp_path / "b").write_text("b")
    script = "for n in ('data/a', './data/a', 'b', 'data/a'): print(open(n).read())\n"
    done, _ = run(
        script, tmp_path, socket=str(tmp_path / "socket"), data_roots=[str(tmp_path / "data")]
    )
    assert done.stdout == "a\na\nb\na\n"
    assert [each["ready"] for each in asked] == [f"{tmp_path}/data/a"]


def test_an_open_fails_with_the_reason_where_data_will_not_come(tmp_path, responder):
    answers, _ = responder
    answers.append({"error": "DataSourceChanged", "message": "data/a has changed"})
    (tmp_path / "data").mkdir()
    unfilled(tmp_path / "data" / "a", "zeros")
    done, _ = run(
        "print(open('data/a').read())\n",
        tmp_path,
        socket=str(tmp_path / "socket"),
        data_roots=[str(tmp_path / "data")],
    )
    assert done.returncode == 1
    assert "zeros" not in done.stdout
    assert "DataSourceChanged: data/a has changed" in done.stderr


def test_a_program_of_another_language_finds_what_it_is_told_to_read(tmp_path, responder):
    answers, asked = responder
    answers.append({"ready": True})
    (tmp_path / "data").mkdir()
    unfilled(tmp_path / "data" / "a", "a")
    script = "import subprocess\nsubprocess.run(['cat', 'data/a'])\nsubprocess.run(['true', '--in=data'])\n"
    run(script, tmp_path, socket=str(tmp_path / "socket"), data_roots=[str(tmp_path / "data")])
    assert [each["ready"] for each in asked] == [f"{tmp_path}/data/a", f"{tmp_path}/data"]


ASKS = """
import multiprocessing
def read(_): return open("data/a").read()
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try: pool.map(read, [1])
        except OSError as error: print(type(error).__name__, error.errno, error)
"""


def test_a_worker_can_say_that_data_will_not_come(tmp_path, responder):
    answers, _ = responder
    answers.append({"error": "DataSourceGone", "message": "the laptop is gone"})
    (tmp_path / "data").mkdir()
    unfilled(tmp_path / "data" / "a", "a")
    done, _ = run(
        ASKS, tmp_path, socket=str(tmp_path / "socket"), data_roots=[str(tmp_path / "data")]
    )
    assert "OSError 5" in done.stdout, done.stderr
    assert "DataSourceGone: the laptop is gone" in done.stdout


SHELL = """
import os, subprocess
subprocess.run("cat < 'data/a b'; true --in=data/b", shell=True)
os.system("true data/deep/*.csv|cat")
os.popen('cat "data/c"').read()
"""


def test_a_shell_finds_what_it_is_told_to_read(tmp_path, responder):
    answers, asked = responder
    answers.append({"ready": True})
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for name in ("a b", "b", "c"):
        unfilled(tmp_path / "data" / name, "a")
    run(SHELL, tmp_path, socket=str(tmp_path / "socket"), data_roots=[str(tmp_path / "data")])
    data = f"{tmp_path}/data"
    assert {f"{data}/a b", f"{data}/b", f"{data}/c", f"{data}/deep"} <= {
        each["ready"] for each in asked
    }


def test_a_folder_that_is_opened_is_not_fetched_where_the_kernel_guards_its_files(
    tmp_path, responder
):
    _, asked = responder
    (tmp_path / "data").mkdir()
    unfilled(tmp_path / "data" / "a", "a")
    done, _ = run(
        "import os\nos.close(os.open('data', os.O_RDONLY))\n",
        tmp_path,
        socket=str(tmp_path / "socket"),
        data_roots=[str(tmp_path / "data")],
        guard="leases",
    )
    assert (done.stderr, asked) == ("", [])


RAISES = """
import sqlite3, sys
for event in ("open", "os.rename", "os.link", "os.chdir", "sqlite3.connect", "subprocess.Popen", "os.system", "os.exec"):
    for args in ((), (1,), (None, None), ([], [], [], [])):
        sys.audit(event, *args)
try: sqlite3.connect("file://[no/address", uri=True)
except sqlite3.Error as error: print(type(error).__name__)
"""


def test_events_that_are_not_what_they_should_be_harm_nobody(tmp_path, responder):
    done, _ = run(
        RAISES, tmp_path, socket=str(tmp_path / "socket"), data_roots=[str(tmp_path / "data")]
    )
    assert (done.stdout, done.stderr) == ("OperationalError\n", "")


def test_what_a_process_remembers_of_its_opens_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(hook, "_REMEMBERED", 100)
    watch = hook.LoadWatch(HookSettings({}))
    opened = hook._hook_of(watch)
    for number in range(1000):
        opened("open", (f"{tmp_path}/{number}", "r", os.O_RDONLY))
    cells = [cell.cell_contents for cell in opened.__closure__]
    assert max(len(each) for each in cells if isinstance(each, set)) <= 100
