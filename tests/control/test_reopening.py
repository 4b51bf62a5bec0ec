"""A job that is opened again after its end, or while it runs."""

from __future__ import annotations

from airflow_training.control.actions import Delete
from airflow_training.control.first_ledger import new_ledger
from tests.builders import Bench, job, role


def test_a_reopened_job_keeps_what_succeeded_and_tries_the_rest_again():
    bench = Bench(job(role(replicas=3, backoff_limit=0), max_restarts=0)).settle()
    bench.end("worker", 0).step()
    bench.end("worker", 1, 1).settle()
    assert bench.state == "Failed"
    assert bench.last.done
    bench.request("reopen").settle()
    assert (bench.state, bench.ledger.job.epoch) == ("Running", 1)
    assert bench.ledger.job.root_cause is None
    assert bench.of("worker", 0).attempt == 0
    assert [bench.of("worker", i).state for i in range(3)] == ["succeeded", "running", "running"]
    assert [bench.of("worker", i).epoch for i in (1, 2)] == [1, 1]
    bench.end("worker", 1).end("worker", 2).settle(starting=False)
    assert bench.state == "Succeeded"


def test_a_new_epoch_has_its_whole_budget():
    bench = Bench(job(role(backoff_limit=1), max_restarts=1)).settle()
    for _ in range(2):
        bench.end("worker", 0, 1).settle()
    assert bench.state == "Failed"
    bench.request("reopen").settle()
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"
    assert [r.epoch for r in bench.ledger.job.restarts] == [0, 1]
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Failed"


def test_a_reopened_success_is_a_success_again():
    bench = Bench(job(role("master"), role("ps", tracked=False))).settle()
    bench.end("master").settle(starting=False)
    bench.request("reopen").settle(starting=False)
    assert (bench.state, bench.ledger.job.epoch) == ("Succeeded", 1)
    assert bench.last.done


def test_reopening_a_running_job_replaces_its_instances_at_nobodys_cost():
    bench = Bench(job(max_restarts=0)).settle()
    bench.request("reopen").settle()
    assert (bench.state, bench.charged(), bench.of().epoch) == ("Running", {}, 1)


def test_a_job_whose_document_was_replaced_forgets_what_it_had():
    spec = job()
    bench = Bench(spec).settle()
    bench.request("activate").step()
    bench.ledger = new_ledger(spec, now=bench.now, activate_all=True, replaces=bench.ledger)
    bench.step()
    assert bench.actions(Delete) == [("worker", 0)]
    bench.settle()
    assert (bench.state, bench.of().epoch, bench.of().attempt) == ("Running", 1, 0)


def test_tasks_that_were_cleared_together_open_one_epoch():
    bench = Bench(job(role(backoff_limit=0), max_restarts=0)).settle()
    bench.end("worker", 0, 1).settle()
    bench.request("reopen").request("reopen").settle()
    assert (bench.state, bench.ledger.job.epoch) == ("Running", 1)
    bench.request("reopen").settle()
    assert bench.ledger.job.epoch == 2
