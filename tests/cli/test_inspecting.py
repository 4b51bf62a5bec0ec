"""`db`, `frameworks` and `list`."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.state.store import Store
from airflow_training.supervise.owners import forget_owner, new_owner
from tests.state.samples import a_ledger, add_run, take, worker


def test_the_store_is_made_checked_and_pruned(typed, home):
    (home / "airflow_training.db").unlink()
    before = typed("db", "check", "-o", "json")
    assert before.code == 1
    assert before.json["current"] is False
    assert typed("db", "upgrade", "-o", "json").json["current"] is True
    assert typed("db", "check").code == 0
    assert typed("db", "prune", "--older-than", "1d", "-o", "json").json == {"deleted": 0}


def test_frameworks_are_listed_shown_and_checked(typed):
    names = [each["name"] for each in typed("frameworks", "list", "-o", "json").json["frameworks"]]
    assert {"custom", "pytorch", "mpi", "tensorflow"} <= set(names)
    shown = typed("frameworks", "show", "pytorch")
    assert "kind: Framework" in shown.stdout
    Path("mine.yaml").write_text(shown.stdout)
    assert typed("frameworks", "check", "mine.yaml").code == 0
    Path("mine.yaml").write_text(shown.stdout.replace("description", "descripton", 1))
    broken = typed("frameworks", "check", "mine.yaml", "-o", "json")
    assert broken.code == 2
    assert broken.json["errors"][0]["code"] == "unknown_key"
    slow = "  logs: {patterns: [{name: a, line: '{x}/{y}', example: 1/2}]}\n"
    Path("mine.yaml").write_text(shown.stdout.rstrip() + "\n" + slow)
    broken = typed("frameworks", "check", "mine.yaml")
    assert broken.code == 2
    assert "spec.logs.patterns[0].line: would be slow" in broken.stdout


def test_an_empty_store_lists_nothing_and_says_how_to_begin(typed):
    done = typed("list")
    assert done.code == 0
    assert "next: airflow-training init" in done.stderr
    assert typed("list", "-o", "json").json == {"runs": []}


def test_a_run_that_nobody_drives_is_not_told_as_running(typed, home):
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    now = store.now()
    for run_id in ("lost", "driven"):
        ledger = a_ledger(worker(0, state="running"), state="Running", submitted_at=now)
        add_run(store, run_id, ledger=ledger, runtime="local")
    owners = {run_id: new_owner() for run_id in ("lost", "driven")}
    for run_id, owner in owners.items():
        take(store, store.find_run(run_id).uid, owner=owner)
    forget_owner(owners["lost"])
    listed = typed("list")
    lines = {line.split()[0]: line for line in listed.stdout.splitlines()[1:]}
    assert "Running, not driven" in lines["lost"]
    assert "not driven" not in lines["driven"]
    assert "lost: nobody has driven it since 20" in listed.stderr
    assert "airflow-training run --from-run lost --run-id lost goes on with it" in listed.stderr
    rows = {each["run_id"]: each for each in typed("list", "-o", "json").json["runs"]}
    assert rows["driven"]["undriven_since"] is None
    assert rows["lost"]["undriven_since"]
    told = typed("status", "lost")
    assert "NotDriven: nobody has driven it since" in told.stdout
    assert "what to do: airflow-training run --from-run lost" in told.stdout
    assert "nobody acts on that now" in typed("pause", "lost", "--yes").stderr
    assert "nobody acts on that now" not in typed("pause", "driven", "--yes").stderr
    forget_owner(owners["driven"])
    store.close()


@pytest.mark.e2e
def test_no_command_imports_airflow_or_what_only_some_jobs_need(typed):
    """The first would cost seconds; the arrows between rooms forbid it. The planner is for jobs with a plan."""
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['airflow-training', 'list'];"
        "from airflow_training.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import airflow_training.supervise.loop, airflow_training.admission.check\n"
        "import airflow_training.runtimes.local.runtime\n"
        "heavy = {'airflow', 'alembic', 'httpx', 'kubernetes', 'fsspec', 'jsonschema', 'rich',"
        " 'numpy', 'airflow_training.planning'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    typed("db", "upgrade")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
