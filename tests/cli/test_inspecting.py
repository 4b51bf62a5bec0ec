"""`db`, `frameworks` and `list`."""

from __future__ import annotations

from pathlib import Path

import pytest


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


@pytest.mark.e2e
def test_no_command_imports_airflow(typed):
    """It would cost seconds; the arrows between rooms forbid it."""
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['airflow-training', 'list'];"
        "from airflow_training.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import airflow_training.supervise.loop, airflow_training.admission.check\n"
        "import airflow_training.runtimes.local.runtime\n"
        "heavy = {'airflow', 'alembic', 'httpx', 'kubernetes', 'fsspec', 'jsonschema', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    typed("db", "upgrade")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
