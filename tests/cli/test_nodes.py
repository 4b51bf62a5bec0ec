"""`nodes list | exclude | allow`, and what `status` says of excluded nodes."""

from __future__ import annotations

import pytest

from airflow_training.state.store import Store
from tests.state.samples import a_ledger, add_run, worker


def test_nodes_are_excluded_listed_and_allowed(typed):
    assert typed("nodes", "list", "-o", "json").json == {"excluded": []}
    done = typed("nodes", "exclude", "n1", "--runtime", "slurm", "--for", "2h", "--why", "bad NIC")
    assert (done.code, "n1 until" in done.stderr) == (0, True)
    assert "next: airflow-training nodes allow n1 --runtime slurm" in done.stderr
    connected = ("--runtime", "kubernetes", "--connection", "gpus")
    assert typed("nodes", "exclude", "n1", *connected).code == 0
    rows = typed("nodes", "list", "-o", "json").json["excluded"]
    assert [(each["runtime"], each["connection"], bool(each["until"])) for each in rows] == [
        ("kubernetes", "gpus", False),
        ("slurm", None, True),
    ]
    assert "bad NIC" in typed("nodes", "list").stdout
    assert typed("nodes", "allow", "n1", "--runtime", "slurm").code == 0
    assert len(typed("nodes", "list", "-o", "json").json["excluded"]) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("allow", "n2", "--runtime", "slurm"), "is not excluded on slurm\n  allowed: n1", id="not-excluded"),
        pytest.param(("exclude", "n1"), "--runtime: local places nothing on nodes", id="no-nodes"),
        pytest.param(("exclude", "n1", "--runtime", "nope"), "cannot run jobs on 'nope'", id="no-runtime"),
        pytest.param(("exclude", "a,b", "--runtime", "slurm"), "without space and comma", id="two-names"),
        pytest.param(("exclude", "n1", "--runtime", "slurm", "--for", "soon"), "'soon' is no age", id="no-age"),
    ],
)  # fmt: skip
def test_slips_are_told(typed, words, told):
    assert typed("nodes", "exclude", "n1", "--runtime", "slurm").code == 0
    done = typed("nodes", *words)
    assert done.code == 2
    assert told in done.stderr


def test_status_says_which_nodes_a_run_is_kept_from(typed, home):
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    ledger = a_ledger(worker(0, state="pending"), state="Running", submitted_at=store.now())
    add_run(store, "mine", ledger=ledger, runtime="slurm")
    typed("nodes", "exclude", "n1", "--runtime", "slurm", "--why", "bad NIC")
    assert "not on node n1 until it is allowed again: bad NIC" in typed("status", "mine").stderr
