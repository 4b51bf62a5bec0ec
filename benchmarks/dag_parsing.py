"""Job files as DAGs, against the same DAGs written by hand and against dag-factory.

Each way is measured in a process of its own, so nothing cached by one helps another. Airflow itself
is imported before the clock starts; what a way imports besides is in the first DAG, which is told
apart. Then come as many DAGs as files, all of them kept, as Airflow's DagBag keeps them: a way that
threw each away would also spare the garbage collector. They are parsed (files read, DAG objects
built) and then serialized, as the DAG processor does before it stores them.

A file by hand is executed as a module from disk. Its byte code is compiled from source, as on a
first parse, or read from `__pycache__`, as on later ones where that folder can be written. Ours has
nothing like it: YAML is read each time.

One DAG for one task is what a worker parses: the DAG's own file, which for a job is the stub that
the bundle writes. It is parsed many times in a row, because one parse is too short to time.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import figure, heading, median

DAGS = 1_000
REPEATS = 200
ROUNDS = 3

JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{name: job{number}}}
spec:
  framework: pytorch
  image: ghcr.io/acme/digits:1.4
  command: [python, train.py, --lr, "{{{{ params.lr }}}}"]
  roles:
    - {{name: master, replicas: 1}}
    - {{name: worker, replicas: 3}}
  dag: {{schedule: "@weekly", params: {{lr: {{type: number, default: 0.1, minimum: 0}}}}}}
"""

# The same seven tasks, with the plain operators a person would take.
BY_HAND = """\
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TaskGroup

with DAG("job{number}", schedule="@weekly", catchup=False,
         params={{"lr": Param(0.1, type="number", minimum=0)}}) as dag_{number}:
    with TaskGroup("job{number}"):
        plan = BashOperator(task_id="plan", bash_command="true")
        reconcile = BashOperator(task_id="reconcile", bash_command="true")
        with TaskGroup("master"):
            master = BashOperator(task_id="run", bash_command="true")
        with TaskGroup("worker"):
            wait = BashOperator(task_id="await_master", bash_command="true")
            worker = BashOperator(task_id="run", bash_command="true")
        rollup = EmptyOperator(task_id="rollup").as_teardown(on_failure_fail_dagrun=True)
        cleanup = EmptyOperator(task_id="cleanup").as_teardown()
        plan >> [reconcile, master, wait]
        wait >> worker
        [reconcile, master, worker] >> rollup >> cleanup
"""

FACTORY = """\
job{number}:
  default_args: {{start_date: 2026-01-01}}
  schedule: "@weekly"
  catchup: false
  task_groups:
    master: {{tooltip: master}}
    worker: {{tooltip: worker}}
  tasks:
    plan: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true"}}
    reconcile: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", dependencies: [plan]}}
    master_run: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", task_group_name: master, dependencies: [plan]}}
    await_master: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", task_group_name: worker, dependencies: [plan]}}
    worker_run: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", task_group_name: worker, dependencies: [await_master]}}
    rollup: {{operator: airflow.providers.standard.operators.empty.EmptyOperator, dependencies: [reconcile, master_run, worker_run]}}
    cleanup: {{operator: airflow.providers.standard.operators.empty.EmptyOperator, dependencies: [rollup]}}
"""


STUB = """\
from airflow_training.compiler.loader import load_file

globals().update(load_file({path!r}))
"""


def execute(path: Path) -> list[Any]:
    """Return the DAGs of a file that is run as Airflow does: as a module."""
    from airflow.sdk import DAG

    spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, DAG)]


def ours(folder: Path) -> Iterable[Any]:
    from airflow_training.compiler.loader import load_folder

    return load_folder(folder).values()


def one_file(folder: Path) -> Iterable[Any]:
    return [dag for _ in range(REPEATS) for dag in execute(folder / "job7.py")]


def by_hand(folder: Path) -> Iterable[Any]:
    return [dag for path in sorted(folder.glob("*.py")) for dag in execute(path)]


def factory(folder: Path) -> Iterable[Any]:
    from dagfactory import load_yaml_dags

    found: dict[str, Any] = {}
    load_yaml_dags(found, dags_folder=str(folder))
    return found.values()


COMPILED = " (.pyc)"
"""Ends the name of a way whose Python files come with their byte code."""

WAYS: Mapping[str, tuple[Callable[[Path], Iterable[Any]], str, str]] = {
    "ours": (ours, "yaml", JOB),
    "by hand": (by_hand, "py", BY_HAND),
    "by hand" + COMPILED: (by_hand, "py", BY_HAND),
    "one of ours": (one_file, "yaml", JOB),
    "one of ours" + COMPILED: (one_file, "yaml", JOB),
    "one by hand": (one_file, "py", BY_HAND),
    "one by hand" + COMPILED: (one_file, "py", BY_HAND),
    "dag-factory": (factory, "yaml", FACTORY),
}


def write_files(way: str, folder: Path, numbers: Iterable[int]) -> None:
    """Write the files of these DAGs, with stubs and byte code where the way has them."""
    action, suffix, text = WAYS[way]
    folder.mkdir()
    for number in numbers:
        path = folder / f"job{number}.{suffix}"
        path.write_text(text.format(number=number))
        if action is one_file and suffix == "yaml":
            path.with_suffix(".py").write_text(STUB.format(path=str(path)))
    if way.endswith(COMPILED):
        compileall.compile_dir(folder, quiet=2)


def time_one(way: str, folder: Path) -> dict[str, float]:
    """Return the seconds of one way in this process: of its first DAG, and of many after it."""
    from airflow.dag_processing.dagbag import BundleDagBag  # noqa: F401 - Airflow's own imports
    from airflow.serialization.serialized_objects import DagSerialization

    action = WAYS[way][0]
    single = action is one_file
    start = time.process_time()
    first = execute(folder / "first" / "job7.py") if single else action(folder / "first")
    seconds = {"first": time.process_time() - start}
    for dag in first:
        DagSerialization.to_dict(dag)

    clock, start = time.perf_counter(), time.process_time()
    dags = list(action(folder / "many"))
    seconds["wall"], seconds["parse"] = time.perf_counter() - clock, time.process_time() - start
    assert len(dags) == (REPEATS if single else DAGS)
    for dag in dags:
        DagSerialization.to_dict(dag)
    seconds["both"] = time.process_time() - start
    return seconds


def measure(way: str) -> dict[str, float]:
    """Return the seconds of one way, in a process and an Airflow home of its own."""
    with tempfile.TemporaryDirectory() as name:
        write_files(way, Path(name) / "first", [7])
        single = WAYS[way][0] is one_file
        write_files(way, Path(name) / "many", [7] if single else range(DAGS))
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.dag_parsing", way, name],
            env={
                **os.environ,
                "AIRFLOW_HOME": name,
                "DO_NOT_TRACK": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                # as Airflow says it to a worker; what the DAG processor parses is checked as well
                **({"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "job7"} if single else {}),
            },
            check=False,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"{way}: {textwrap.shorten(done.stderr[-800:], 800)}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    heading(f"Parsing {DAGS} DAGs of 7 tasks")
    ways = [way for way in WAYS if way != "dag-factory" or importlib.util.find_spec("dagfactory")]
    rows = [{way: measure(way) for way in ways} for _ in range(ROUNDS)]

    def ratio(what: str, ours: str, other: str, *, target: str = "") -> None:
        for kind, name in (("wall", "parse, wall"), ("parse", "parse, CPU")):
            found = median([row[ours][kind] / row[other][kind] for row in rows])
            figure(f"{what}: {name}", found, "x", target=target)
        found = median([row[ours]["both"] / row[other]["both"] for row in rows])
        figure(f"{what}: parse and serialize, CPU", found, "x")

    for way in ways:
        count = REPEATS if WAYS[way][0] is one_file else DAGS
        for kind, name in (
            ("wall", "parse, wall"),
            ("parse", "parse, CPU"),
            ("both", "+ serialize"),
        ):
            spent = median([row[way][kind] for row in rows]) / count
            figure(f"{way}, a DAG: {name}", spent * 1000, "ms")
    ratio("ours / by hand", "ours", "by hand", target="<= 1.3")
    ratio("ours / by hand (.pyc)", "ours", "by hand (.pyc)", target="<= 1.3")
    one = "one DAG for one task, ours / by hand"
    ratio(one, "one of ours", "one by hand", target="<= 1.2")
    ratio(f"{one} (.pyc)", "one of ours (.pyc)", "one by hand (.pyc)", target="<= 1.2")
    for way in ("one of ours (.pyc)", "one by hand (.pyc)"):
        spent = median([row[way]["first"] for row in rows])
        figure(f"{way}, the first of a process, with imports: CPU", spent * 1000, "ms")
    if "dag-factory" in ways:
        ratio("ours / dag-factory", "ours", "dag-factory")
    else:
        print("| dag-factory | not installed: `make bench` installs it | | |")


if __name__ == "__main__":
    print(json.dumps(time_one(sys.argv[1], Path(sys.argv[2]))))
