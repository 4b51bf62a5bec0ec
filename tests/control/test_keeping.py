"""The instance that failed first stays for a look inside, once its job has failed for good."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_training.control.actions import Create, Delete, Dismiss, Keep, StopProcess
from airflow_training.control.attempts import AttemptKey
from airflow_training.control.in_place import wait_seconds
from airflow_training.control.keeping import may_be_there
from airflow_training.control.model import KeptInstance
from airflow_training.control.rollup import rollup
from airflow_training.documents.instances import InstanceKey
from airflow_training.supervise.expiry import is_expired
from tests.builders import Bench, job, role
from tests.control.test_diagnosed import OOM, told

if TYPE_CHECKING:
    from airflow_training.state.records import RunState

KEPT = {"max_restarts": 0, "then": "Fail", "keep_failed_seconds": 1800.0}


def a_bench(replicas: int = 3, **fields: Any) -> Bench:
    """A job whose instances run and can stay."""
    bench = Bench(job=job(role("worker", replicas), **(KEPT | fields))).settle()
    for uid, each in bench.objects.items():
        around = (json.dumps({"at": bench.now, "on": "exit"}),)
        bench.objects[uid] = replace(each, in_place=True, environment=around)
    return bench


def document(bench: Bench) -> dict[str, Any]:
    return rollup(
        bench.job, bench.ledger, run_id="r", progress={}, usage=(), output=None, now=bench.now
    )


def test_the_instance_that_failed_first_stays_and_everything_else_goes():
    bench = a_bench().end("worker", 1, 7)
    bench.step()
    assert (bench.state, bench.actions(Keep)) == ("Failed", [("worker", 1)])
    assert bench.actions(Delete) == [("worker", 0), ("worker", 2)]
    assert bench.actions(Dismiss) == []
    bench.settle()
    assert bench.last.done
    assert list(bench.objects) == ["worker-1-0"]
    (said,) = bench.said("InstanceKept")
    assert said.message == "worker-1 stays for a look inside, for 1800 s"
    assert bench.said("JobDrained")[0].message == (
        "no training process of the job is alive; worker-1 stays for a look inside"
    )


def test_status_says_until_when_and_how_to_open_it():
    bench = a_bench().end("worker", 1, 7).settle()
    kept = document(bench)["kept"]
    assert (kept["state"], kept["role"], kept["index"]) == ("stays", "worker", 1)
    assert kept["command"] == "airflow-training shell r --role worker --index 1"
    bench.later(1800.0)
    kept = document(bench)["kept"]
    assert (kept["state"], kept["command"]) == ("gone", None)
    assert not may_be_there(bench.ledger.job, now=bench.now)


def test_nothing_stays_unless_asked_for():
    bench = a_bench(keep_failed_seconds=0.0).end("worker", 1, 7)
    bench.settle()
    assert bench.last.done
    assert document(bench)["kept"] is None
    assert not bench.said("InstanceKept")
    assert not bench.said("NothingKept")


def test_nothing_stays_while_the_job_has_a_try_left():
    bench = a_bench(max_restarts=1).end("worker", 1, 7)
    bench.step()
    assert bench.actions(Keep) == []
    assert bench.state != "Failed"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param(
            {"in_place": False, "reason": "OOMKilled"},
            "its agent has ended with it (OOMKilled), or nobody hears of it",
            id="killed-for-memory",
        ),
        pytest.param(
            {"in_place": False, "reason": "Evicted"},
            "its agent has ended with it (Evicted), or nobody hears of it",
            id="evicted",
        ),
    ],
)
def test_where_nothing_can_stay_that_is_said(facts: dict[str, Any], why: str):
    bench = a_bench().end("worker", 1, 7, **facts).settle()
    assert bench.last.done
    (said,) = bench.said("NothingKept")
    assert said.message == f"nothing of worker-1 stays for a look inside: {why}"
    kept = document(bench)["kept"]
    assert (kept["state"], kept["why"], kept["command"]) == ("impossible", why, None)


def test_a_deadline_has_no_instance_that_failed_first():
    bench = a_bench(active_deadline_seconds=10.0)
    bench.step(seconds=11.0)
    bench.settle()
    assert bench.state == "Failed"
    assert [each.message for each in bench.said("NothingKept")] == [
        "nothing stays for a look inside: no instance failed first"
    ]


def test_an_agent_that_does_not_answer_holds_nothing_up_for_long():
    bench = a_bench().end("worker", 1, 7)
    bench.decide()
    assert not bench.last.done
    bench.decide(seconds=1000.0)
    assert bench.actions(Dismiss) == [("worker", 1)]
    assert bench.said("NothingKept")[0].message.endswith("its agent did not answer")


def test_it_still_waits_when_the_diagnosis_of_its_failure_has_come():
    """It is at its limit, and whether the failure is another's is not known yet."""
    bench = a_bench()
    bench.undiagnosed = {AttemptKey(InstanceKey("worker", 1), 0, 0)}
    bench.end("worker", 1, 7).step()
    assert bench.actions(Dismiss) == []
    bench.undiagnosed = set()
    bench.settle()
    assert document(bench)["kept"]["state"] == "stays"


def test_one_whose_restart_is_taken_back_stays():
    """Why it failed, which no further try mends, was known after its restart was decided."""
    bench = a_bench(max_restarts=3, backoff_initial_seconds=5).end("worker", 1, 7)
    bench.step()
    assert bench.state != "Failed"
    bench.diagnoses = [replace(told(OOM), key=InstanceKey("worker", 1))]
    bench.settle()
    assert bench.state == "Failed"
    assert document(bench)["kept"]["state"] == "stays"


def test_where_no_attempt_may_follow_it_can_be_looked_into_all_the_same():
    bench = a_bench().end("worker", 1, 7, in_place=False, can_stay=True)
    bench.step()
    assert bench.actions(Keep) == [("worker", 1)]


def test_the_next_attempt_waits_until_an_agent_that_may_only_stay_is_gone():
    bench = a_bench(max_restarts=1).end("worker", 1, 7, in_place=False, can_stay=True)
    bench.decide()
    assert bench.actions(Delete) == [("worker", 1)]
    assert bench.actions(Create) == []
    bench.act()
    bench.step()
    assert bench.actions(Create) == [("worker", 1)]


def test_one_that_others_named_is_ended_first_and_then_stays():
    bench = a_bench()
    keep = replace(bench.ledger.job, state="Failed")
    kept = KeptInstance(
        state="asked", key=InstanceKey("worker", 2), uid=bench.uid("worker", 2), until=bench.now + 60,
        answer_by=bench.now + 30,
    )  # fmt: skip
    bench.ledger = replace(bench.ledger, job=replace(keep, kept=kept))
    bench.step()
    assert bench.actions(StopProcess) == [("worker", 2)]
    assert bench.actions(Delete) == [("worker", 0), ("worker", 1)]
    bench.step()
    assert bench.actions(Keep) == [("worker", 2)]
    bench.settle()
    assert bench.last.done
    assert bench.ledger.job.kept is not None
    assert bench.ledger.job.kept.state == "stays"


def test_a_kill_of_the_failing_job_leaves_nothing():
    bench = a_bench().end("worker", 1, 7)
    bench.decide()
    bench.request("kill").settle()
    assert bench.last.done
    assert bench.said("NothingKept")[0].message.endswith("the job was killed")


def test_a_kill_that_comes_as_it_begins_to_stay_leaves_nothing():
    bench = a_bench().end("worker", 1, 7)
    bench.step()
    assert bench.actions(Keep) == [("worker", 1)]
    bench.request("kill").decide()
    assert bench.actions(Delete) == [("worker", 1)]
    bench.act()
    bench.settle()
    assert (bench.last.done, bench.objects) == (True, {})


def test_a_kill_ends_what_stays_though_others_are_not_over_yet():
    bench = a_bench().end("worker", 1, 7)
    bench.step()
    going = replace(bench.objects["worker-1-0"], key=InstanceKey("worker", 0), uid="worker-0-0")
    bench.objects["worker-0-0"] = replace(going, state="terminating", kept=False)
    bench.decide()
    assert (document(bench)["kept"]["state"], bench.last.done) == ("stays", False)
    bench.later(5.0).request("kill").decide()
    kept = bench.ledger.job.kept
    assert kept is not None
    assert (kept.state, kept.until) == ("ended", bench.now)
    assert ("worker", 1) in bench.actions(Delete)


@pytest.mark.parametrize(("later", "expired"), [(0.0, False), (1801.0, True)])
def test_its_folder_is_not_deleted_while_it_stays(later: float, expired: bool):
    bench = a_bench().end("worker", 1, 7).settle()
    spec = replace(bench.job, ttl_seconds_after_finished=0)
    state = cast("RunState", SimpleNamespace(ledger=bench.ledger, job=spec))
    assert is_expired(state, now=bench.now + 1.0 + later) is expired


def test_a_reopened_run_keeps_nothing_of_before():
    bench = a_bench().end("worker", 1, 7).settle()
    bench.request("reopen").step()
    assert bench.actions(Delete) == [("worker", 1)]
    assert bench.ledger.job.kept is None


def test_an_agent_waits_for_the_order_also_where_nothing_is_ever_tried_again():
    never = job(role("worker", 1, restart_policy="Never"), keep_failed_seconds=60.0)
    assert wait_seconds(never, never.roles[0]) > 0
    assert not a_bench().actions(StopProcess)
