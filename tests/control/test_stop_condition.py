"""When a training has done enough: whose values count, and what is not known yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.control.model import JobEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.control.stop_condition import condition_holds
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.stop_conditions import parse_condition
from airflow_training.state.codec import from_json, to_json
from tests.builders import Bench, job, role


def told(**metrics: float) -> ProgressReport:
    return ProgressReport(step=5, epoch=2.0, samples=100, metrics=metrics)


@pytest.mark.parametrize(
    ("text", "over", "reports", "expected"),
    [
        pytest.param("loss < 0.1", "rank 0", [told(loss=0.05)], "loss 0.05 < 0.1", id="holds"),
        pytest.param("loss < 0.1", "rank 0", [told(loss=0.1)], "", id="not-yet"),
        pytest.param("loss < 0.1", "rank 0", [told()], "", id="not-told"),
        pytest.param("loss < 0.1", "rank 0", [told(loss=float("nan"))], "", id="no-number"),
        pytest.param("loss != 0", "rank 0", [told(loss=float("nan"))], "", id="no-number-differs-from-none"),
        pytest.param("max(loss) > 1", "rank 0", [told(loss=2), told(loss=float("nan"))], "", id="no-number-of-one"),
        pytest.param("step >= 5 and epoch >= 2", "rank 0", [told()], "step 5 >= 5 and epoch 2 >= 2", id="and"),
        pytest.param("step >= 6 or samples > 99", "rank 0", [told()], "samples 100 > 99", id="or"),
        pytest.param("loss < 1", "rank 0", [told(loss=3), told(loss=0)], "", id="rank-0-alone"),
        pytest.param("loss < 2", "mean", [told(loss=3), told(loss=0)], "mean loss 1.5 < 2", id="mean"),
        pytest.param("max(loss) < 2", "rank 0", [told(loss=1), told(loss=3)], "", id="max"),
        pytest.param("min(loss) < 2", "rank 0", [told(loss=3), told(loss=1)], "min loss 1 < 2", id="min"),
        pytest.param("loss < 2", "mean", [told(loss=1), told()], "", id="a-rank-that-has-not-told"),
        pytest.param("loss < 2", "mean", [told(loss=1)], "", id="a-rank-that-is-not-there"),
    ],
)  # fmt: skip
def test_what_holds(text, over, reports, expected):
    found = condition_holds(
        parse_condition(text), dict(enumerate(reports)), over=over, ranks=max(2, len(reports))
    )
    assert found == expected


def running(**fields: object) -> Bench:
    team = [role("chief", rank_offset=0), role("worker", 2, rank_offset=1)]
    return Bench(job(*team, stop_until="loss < 0.1", **fields)).settle()


def report(bench: Bench, name: str, index: int, **metrics: float) -> None:
    for uid, each in bench.objects.items():
        if each.key == (name, index):
            bench.objects[uid] = replace(each, progress=told(**metrics))


def test_a_job_whose_condition_holds_has_succeeded_and_all_of_it_is_ended():
    bench = running()
    report(bench, "chief", 0, loss=0.5)
    assert bench.step().new_ledger.job.state == "Running"
    report(bench, "chief", 0, loss=0.05)
    bench.settle()
    ended = bench.ledger.job
    assert (ended.state, ended.reason) == ("Succeeded", "StopConditionMet")
    assert ended.message == "stop.until holds: loss 0.05 < 0.1"
    assert bench.objects == {}


def finishing(**fields: object) -> Bench:
    """A job whose condition has just come to hold; its chief has the output."""
    bench = running(finishes=True, output_role="chief", output_uri="s3://out", **fields)
    report(bench, "chief", 0, loss=0.05)
    bench.step()
    return bench


def ordered(bench: Bench) -> list[tuple[str, InstanceKey]]:
    return [(type(each).__name__, each.key) for each in bench.last.actions]


CHIEF, WORKER = InstanceKey("chief", 0), InstanceKey("worker", 0)


def test_the_instance_with_the_output_is_told_to_finish_and_the_others_go_on_for_so_long():
    bench = finishing()
    assert ordered(bench) == [("Finish", CHIEF)]
    assert bench.ledger.job.state == "Running"
    bench.later(60).step()
    assert ordered(bench) == [("Finish", CHIEF)]
    told = [each.message for each in bench.events if each.reason == "StopConditionMet"]
    assert told == ["stop.until holds: loss 0.05 < 0.1; chief-0 is told to finish"]


def test_the_job_has_succeeded_once_the_output_is_away():
    bench = finishing()
    bench.end("chief", 0, exit_code=0).settle()
    ended = bench.ledger.job
    assert (ended.state, ended.reason) == ("Succeeded", "StopConditionMet")
    assert ended.message == "stop.until holds: loss 0.05 < 0.1"
    assert ended.stop is None


def test_others_that_fail_as_rank_0_leaves_restart_nothing():
    bench = finishing()
    bench.end("worker", 0, exit_code=1)
    bench.step()
    assert ordered(bench) == [("Finish", CHIEF)]
    assert bench.ledger.job.restarts == ()
    bench.end("chief", 0, exit_code=0).settle()
    assert bench.ledger.job.state == "Succeeded"


def test_an_output_that_cannot_be_uploaded_fails_the_job():
    bench = finishing()
    bench.end("chief", 0, exit_code=1, reason="OutputFailed").settle()
    assert (bench.ledger.job.state, bench.ledger.job.reason) == ("Failed", "OutputFailed")


def test_where_that_instance_fails_instead_the_job_is_started_again_and_judged_again():
    bench = finishing()
    bench.end("chief", 0, exit_code=1).settle()
    assert bench.ledger.job.stop is None
    bench.later(3600).settle()
    assert bench.ledger.instances[CHIEF].attempt == 1
    assert bench.ledger.job.state == "Running"
    report(bench, "chief", 0, loss=0.01)
    bench.step()
    assert ordered(bench) == [("Finish", CHIEF)]


def test_one_that_is_being_started_again_is_told_only_once_it_runs():
    """Another rank says that it is enough: what waits in its pod is still released, and begins first."""
    bench = running(finishes=True, output_role="worker", output_uri="s3://out")
    bench.end("worker", 0, exit_code=1).settle(starting=False)
    report(bench, "chief", 0, loss=0.05)
    bench.later(3600).settle(starting=False)
    assert bench.objects[bench.uid("worker", 0)].state == "pending"
    assert bench.ledger.job.stop is None
    bench.run_pending()
    for _ in range(2):
        bench.step()
    assert ordered(bench) == [("Finish", WORKER)]


def test_what_is_scaled_meanwhile_is_judged_again_and_then_has_succeeded():
    bench = finishing()
    bench.request("scale", "worker", 1).settle()
    assert bench.ledger.job.state == "Running"
    assert (bench.ledger.instances[CHIEF].attempt, bench.ledger.job.stop) == (1, None)
    report(bench, "chief", 0, loss=0.05)
    bench.step()
    assert ordered(bench) == [("Finish", CHIEF)]
    bench.end("chief", 0, exit_code=0).settle()
    assert (bench.ledger.job.state, bench.ledger.job.reason) == ("Succeeded", "StopConditionMet")


@pytest.mark.parametrize("kind", ["pause", "stop", "kill"])
def test_people_are_heard_meanwhile(kind):
    bench = finishing()
    bench.request(kind).settle()
    assert bench.ledger.job.state == {"pause": "Paused"}.get(kind, "Stopped")
    assert bench.ledger.job.stop is None or kind == "pause"
    if kind == "pause":
        bench.request("resume").settle()
        assert bench.ledger.job.state == "Running"
        assert bench.ledger.job.stop is None


def test_a_deadline_ends_what_takes_too_long_to_finish():
    bench = finishing(active_deadline_seconds=100.0)
    bench.later(200).settle()
    assert (bench.ledger.job.state, bench.ledger.job.reason) == ("Failed", "DeadlineExceeded")


def test_a_ledger_of_a_job_that_finishes_is_read_back():
    ledger = finishing().ledger
    assert from_json(JobEntry, to_json(ledger.job)) == ledger.job


def test_other_ranks_do_not_end_it_unless_they_are_named():
    bench = running()
    report(bench, "worker", 0, loss=0.05)
    assert bench.step().new_ledger.job.state == "Running"


def test_all_ranks_end_it_once_all_have_told():
    bench = running(stop_over="max")
    report(bench, "chief", 0, loss=0.05)
    report(bench, "worker", 0, loss=0.06)
    assert bench.step().new_ledger.job.state == "Running"
    report(bench, "worker", 1, loss=0.07)
    assert bench.step().new_ledger.job.state == "Succeeded"
