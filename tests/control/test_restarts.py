"""Who gets another try, who pays for it, and how much restarts with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.documents.resolved import ExitCodeTable
from tests.builders import Bench, job, role, rule


def failing(spec, *, times=1, code=1, name="worker", index=0, **facts):
    """Return a bench whose instance failed that often, settled after each."""
    bench = Bench(spec).settle()
    for _ in range(times):
        if bench.ledger.job.state in ("Failed", "Succeeded"):
            break
        bench.end(name, index, code, **facts).settle()
    return bench


@pytest.mark.parametrize(
    ("policy", "facts", "restarted"),
    [
        ("OnFailure", {"code": 1}, True),
        ("OnFailure", {"code": None, "signal": 9}, True),
        ("Never", {"code": 1}, False),
        ("Never", {"code": 143, "disrupted": True}, False),
        ("Always", {"code": 1}, True),
        ("Always", {"code": 0}, True),
        ("OnFailure", {"code": 0}, None),
        ("Never", {"code": 0}, None),
        ("ExitCode", {"code": 1}, False),
        ("ExitCode", {"code": 137}, True),
        ("ExitCode", {"code": 1, "disrupted": True}, True),
        ("ExitCode", {"code": 0}, None),
    ],
)
def test_restart_policies(policy, facts, restarted):
    bench = failing(job(role(restart_policy=policy), role("other")), **facts)
    entry = bench.of()
    if restarted is None:
        assert (entry.state, entry.final) == ("succeeded", True)
    elif restarted:
        assert (bench.state, entry.attempt, entry.state) == ("Running", 1, "running")
    else:
        assert (bench.state, entry.attempt, entry.state) == ("Failed", 0, "failed")
        assert bench.charged() == {}


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
@pytest.mark.parametrize("reason", ["CannotBeCreated", "AgentNeedsPython", "InvalidImageName"])
def test_what_no_other_try_could_do_better_is_not_tried_again(policy, reason):
    spec = job(role(restart_policy=policy), rules=(rule("RestartInstance", on_classes=("user",)),))
    bench = failing(spec, code=None, reason=reason, message="the server's words")
    assert (bench.state, bench.of().attempt, bench.charged()) == ("Failed", 0, {})
    assert bench.ledger.job.message.endswith(f"worker-0: {reason}: the server's words")


def test_a_rule_that_names_the_reason_has_the_last_word():
    spec = job(role(), rules=(rule("RestartInstance", on_reasons=("CannotBeCreated",)),))
    assert failing(spec, code=None, reason="CannotBeCreated").state == "Running"


def test_exit_0_under_always_costs_no_budget():
    spec = job(role(restart_policy="Always", backoff_limit=0), max_restarts=0)
    bench = failing(spec, times=3, code=0)
    assert (bench.state, bench.of().attempt, bench.of().restarts) == ("Running", 3, 0)
    assert [r.counted for r in bench.ledger.job.restarts] == [False] * 3


@pytest.mark.parametrize(
    ("facts", "failure_class"),
    [
        ({"code": 1}, "user"),
        ({"code": None, "signal": 9}, "infrastructure"),
        ({"code": 137, "reason": "OOMKilled"}, "resource"),
        ({"code": 143, "disrupted": True}, "preemption"),
        ({"code": 255}, "unknown"),
    ],
)
def test_every_restart_is_charged_to_one_class(facts, failure_class):
    bench = failing(job(), **facts)
    assert bench.charged() == {failure_class: 1}
    assert bench.of().restarts == (0 if failure_class == "preemption" else 1)
    (told,) = bench.said(reasons.INSTANCE_RESTARTED)
    assert told.data["failure_class"] == failure_class
    assert told.rule == "restartPolicy: OnFailure"


def test_the_backoff_limit_is_one_instances_own():
    bench = failing(job(role(replicas=2, backoff_limit=2), max_restarts=9), times=3)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.BACKOFF_LIMIT_EXCEEDED)
    assert bench.charged() == {"user": 2}
    assert "backoffLimit 2" in bench.ledger.job.message
    spread = Bench(job(role(replicas=2, backoff_limit=2), max_restarts=9)).settle()
    for index in (0, 1, 0, 1):
        spread.end("worker", index, 1).settle()
    assert spread.state == "Running"


@pytest.mark.parametrize(
    ("limits", "run", "ends", "reason", "named"),
    [
        pytest.param(
            {"max_restarts": 2}, 9, 3, reasons.MAX_RESTARTS_EXCEEDED, "maxRestarts 2 of worker is used up",
            id="of-the-role",
        ),
        pytest.param(
            {"max_restarts": 0}, 9, 1, reasons.MAX_RESTARTS_EXCEEDED, "maxRestarts 0 of worker is used up",
            id="none-at-all",
        ),
        pytest.param(
            {"max_restarts": 3}, 2, 3, reasons.MAX_RESTARTS_EXCEEDED, "maxRestarts 2 is used up",
            id="the-runs-is-smaller",
        ),
        pytest.param(
            {"max_restarts": 2, "backoff_limit": 1}, 9, 3, reasons.BACKOFF_LIMIT_EXCEEDED,
            "backoffLimit 1", id="one-instances-is-smaller",
        ),
        pytest.param(
            {"max_restarts": 1, "backoff_limit": 1}, 1, 2, reasons.MAX_RESTARTS_EXCEEDED,
            "maxRestarts 1 of worker is used up", id="of-an-equal-one-the-narrower",
        ),
    ],
)  # fmt: skip
def test_the_smallest_limit_that_is_used_up_is_named(limits, run, ends, reason, named):
    spec = job(role(replicas=2, **limits), role("other"), max_restarts=run)
    bench = Bench(spec).settle()
    for number in range(ends):
        assert bench.state == "Running"
        bench.end("worker", number % 2, 1).settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reason)
    assert named in bench.ledger.job.message


def test_restarts_of_one_role_use_up_nothing_of_another():
    spec = job(role(max_restarts=1), role("other", max_restarts=1), max_restarts=9)
    bench = Bench(spec).settle()
    bench.end("worker", 0, 1).settle()
    bench.end("other", 0, 1).settle()
    assert bench.state == "Running"
    bench.end("other", 0, 143, disrupted=True).settle()
    assert bench.state == "Running", "a preemption is not limited"


def test_a_role_whose_failure_counts_for_nothing_ends_alone():
    spec = job(role(), role("eval", max_restarts=0, tracked=False), failure_targets=("worker",))
    bench = Bench(spec).settle()
    bench.end("eval", 0, 1).settle()
    assert bench.state == "Running"
    assert bench.ledger.roles["eval"].state == "Failed"


def test_max_restarts_is_the_whole_jobs():
    spec = job(role(replicas=3), max_restarts=2)
    bench = Bench(spec).settle()
    for index in range(3):
        bench.end("worker", index, 1).settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.MAX_RESTARTS_EXCEEDED)
    assert bench.charged() == {"user": 2}


def test_failures_of_one_snapshot_use_up_one_restart_each():
    bench = Bench(job(role(replicas=3), max_restarts=3)).settle()
    for index in range(3):
        bench.end("worker", index, 1)
    bench.settle()
    assert (bench.state, bench.charged()) == ("Running", {"user": 3})


def test_preemption_is_counted_and_never_limited():
    spec = job(role(backoff_limit=1), max_restarts=1, window_seconds=60, window_max_restarts=1)
    bench = failing(spec, times=5, code=143, disrupted=True)
    assert bench.state == "Running"
    assert bench.charged() == {"preemption": 5}
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"


def test_the_window_slides():
    spec = job(role(backoff_limit=99), max_restarts=99, window_seconds=60, window_max_restarts=2)
    bench = failing(spec, times=2)
    bench.now += 61
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"
    bench.end("worker", 0, 1).settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.MAX_RESTARTS_EXCEEDED)
    assert "window (2 in 60 s)" in bench.ledger.job.message


def test_a_fresh_job_starts_counting_again_and_then_fails():
    spec = job(role(replicas=2), scope="Job", max_restarts=1, then="FreshJob", max_fresh_jobs=1)
    bench = failing(spec, times=2)
    assert (bench.state, bench.ledger.job.fresh_jobs) == ("Running", 1)
    assert bench.charged() == {"user": 2}
    assert [r.scope for r in bench.ledger.job.restarts] == ["Job", "FreshJob"]
    bench.end("worker", 1, 1).settle()
    assert (bench.state, bench.ledger.job.job_attempt) == ("Running", 3)
    bench.end("worker", 1, 1).settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.MAX_RESTARTS_EXCEEDED)
    assert bench.ledger.job.fresh_jobs == 1


def test_a_fresh_job_tries_again_what_had_failed_for_good():
    spec = job(
        role(replicas=3, backoff_limit=0, min_failed="All"),
        role("other", backoff_limit=5),
        max_restarts=0,
        then="FreshJob",
    )
    bench = Bench(spec).settle()
    bench.end("worker", 0, 1).settle()
    assert bench.of("worker", 0).final
    bench.end("worker", 1).settle()
    bench.end("other", 0, 1).settle()
    assert (bench.of("worker", 0).state, bench.of("worker", 0).restarts) == ("running", 0)
    assert bench.of("worker", 1).state == "succeeded"
    assert bench.of("worker", 1).attempt == 0


@pytest.mark.parametrize(
    ("scope", "replaced"),
    [
        ("Instance", [("worker", 0)]),
        ("Role", [("worker", 0), ("worker", 1)]),
        ("Job", [("master", 0), ("worker", 0), ("worker", 1)]),
    ],
)
def test_what_restarts_together(scope, replaced):
    bench = Bench(job(role("master"), role("worker", 2), scope=scope)).settle()
    bench.end("worker", 0, 1).step()
    assert sorted(bench.actions(Delete)) == replaced
    assert bench.ledger.job.job_attempt == (scope == "Job")
    assert bench.state == ("Restarting" if scope == "Job" else "Running")
    bench.settle()
    assert bench.state == "Running"
    assert sorted(k for k, e in bench.ledger.instances.items() if e.attempt == 1) == replaced
    assert bench.charged() == {"user": 1}


def test_a_failure_of_an_attempt_being_replaced_costs_nothing():
    """Both in the same snapshot and while the old instances are going."""
    bench = Bench(job(role(replicas=3), scope="Job", max_restarts=1)).settle()
    bench.end("worker", 2, 1, finished_at=bench.now - 2)
    bench.end("worker", 0, 143, finished_at=bench.now - 1).decide()
    (record,) = bench.ledger.job.restarts
    assert (record.index, record.failure_class) == (2, "user")
    assert len(bench.said(reasons.FAILURE_IS_CONSEQUENCE)) == 1
    bench.end("worker", 1, 143).settle()
    assert (bench.state, bench.charged()) == ("Running", {"user": 1})


def test_after_a_job_restart_no_old_instance_meets_a_new_one():
    bench = Bench(job(role(replicas=2), scope="Job")).settle()
    bench.end("worker", 0, 1).decide()
    bench.objects.pop(bench.uid("worker", 0))
    bench.set("worker", 1, state="terminating", state_since=bench.now)
    assert bench.decide().actions == ()
    bench.lose("worker", 1)
    bench.step()
    assert bench.actions(Create) == [("worker", 0), ("worker", 1)]


def test_backoff_doubles_up_to_its_ceiling():
    spec = job(
        role(backoff_limit=9),
        max_restarts=9,
        backoff_initial_seconds=2,
        backoff_factor=3,
        backoff_max_seconds=10,
    )
    bench = Bench(spec).settle()
    waits = []
    for _ in range(4):
        bench.end("worker", 0, 1).step()
        waits.append((bench.last.wake_at or 0) - bench.now)
        assert bench.of().reason == reasons.BACKOFF
        bench.step(seconds=waits[-1] - 0.1)
        assert bench.actions(Create) == []
        bench.step(seconds=0.2)
        assert bench.actions(Create) == [("worker", 0)]
        bench.settle()
    assert waits == pytest.approx([2, 6, 10, 10])


@pytest.mark.parametrize(
    ("action", "state", "attempts", "counted"),
    [
        ("FailJob", "Failed", (0, 0), []),
        ("CompleteJob", "Succeeded", (0, 0), []),
        ("RestartInstance", "Running", (1, 0), [True]),
        ("RestartRole", "Running", (1, 0), [True]),
        ("RestartJob", "Running", (1, 1), [True]),
        ("RestartJobAndIgnoreMaxRestarts", "Running", (1, 1), [False]),
        ("Ignore", "Running", (1, 0), [False]),
    ],
)
def test_a_rule_comes_before_the_restart_policy(action, state, attempts, counted):
    spec = job(role(restart_policy="Never"), role("other"), rules=(rule(action),))
    bench = failing(spec)
    assert bench.state == state
    assert (bench.of().attempt, bench.of("other").attempt) == attempts
    assert [r.counted for r in bench.ledger.job.restarts] == counted
    assert all(r.rule == "my-rule" for r in bench.ledger.job.restarts)
    assert any(e.rule == "my-rule" for e in bench.events)


def test_rules_that_ignore_max_restarts_never_use_it_up():
    spec = job(rules=(rule("RestartJobAndIgnoreMaxRestarts", on_exit_codes=(7,)),), max_restarts=1)
    bench = failing(spec, times=4, code=7)
    assert bench.state == "Running"
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Running"
    bench.end("worker", 0, 1).settle()
    assert bench.state == "Failed"


def test_a_rule_that_restarts_is_limited_like_any_restart():
    bench = failing(job(rules=(rule("RestartJob"),), max_restarts=1), times=2)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.MAX_RESTARTS_EXCEEDED)


def test_exit_code_tables_decide_under_exit_code():
    table = ExitCodeTable(name="custom", retryable=(3,), permanent=(4,))
    spec = job(role(restart_policy="ExitCode"), exit_codes=table)
    assert failing(spec, code=3).state == "Running"
    bench = failing(spec, code=4)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.EXIT_CODE_PERMANENT)


def test_a_deleted_object_is_an_infrastructure_failure_and_is_replaced():
    bench = Bench(job(role(replicas=2))).settle()
    bench.lose("worker", 1).settle()
    assert bench.charged() == {"infrastructure": 1}
    assert (bench.of("worker", 1).attempt, bench.of("worker", 1).state) == (1, "running")


def test_being_deleted_by_somebody_else_is_never_the_scripts_fault():
    bench = Bench(job()).settle()
    bench.set("worker", 0, state="terminating").step()
    bench.end("worker", 0, 1).settle()
    assert bench.charged() == {"infrastructure": 1}


def test_what_succeeded_never_runs_again_even_if_its_object_is_deleted():
    bench = Bench(job(role(replicas=2), scope="Job")).settle()
    bench.end("worker", 0).settle()
    bench.lose("worker", 0).settle()
    assert bench.of("worker", 0).state == "succeeded"
    bench.end("worker", 1, 1).settle()
    assert (bench.of("worker", 0).attempt, bench.of("worker", 1).attempt) == (0, 1)
    assert bench.charged() == {"user": 1}


def test_an_unknown_instance_is_replaced_only_when_the_old_one_is_surely_gone():
    bench = Bench(job(role(replicas=2), unknown_seconds=60.0)).settle()
    bench.set("worker", 1, state="unknown", node="n7").step()
    assert bench.last.wake_at == bench.now + 60
    bench.step(seconds=59)
    assert bench.charged() == {}
    bench.decide(seconds=2)
    assert bench.charged() == {"infrastructure": 1}
    for _ in range(3):
        bench.decide(seconds=100)
        assert bench.actions(Create) == []
        assert bench.of("worker", 1).state == "unknown"
        assert "n7" in bench.of("worker", 1).message
    bench.lose("worker", 1).settle()
    assert bench.of("worker", 1).state == "running"
    assert bench.charged() == {"infrastructure": 1}


def test_an_unknown_instance_that_comes_back_goes_on():
    bench = Bench(job(unknown_seconds=60.0)).settle()
    bench.set("worker", 0, state="unknown").step(seconds=1)
    bench.set("worker", 0, state="running").step(seconds=50)
    bench.step(seconds=50)
    assert (bench.charged(), bench.of().state, bench.of().attempt) == ({}, "running", 0)


def test_while_the_runtime_does_not_answer_nothing_counts_as_gone():
    bench = Bench(job()).settle()
    kept = dict(bench.objects)
    bench.objects.clear()
    bench.reachable = False
    bench.step()
    assert (bench.charged(), bench.last.actions) == ({}, ())
    assert (bench.state, bench.ledger.job.condition) == ("Running", "RuntimeUnknown")
    bench.objects, bench.reachable = kept, True
    bench.step()
    assert bench.ledger.job.condition == "Running"


@pytest.mark.parametrize(
    ("gang", "beside"),
    [
        pytest.param("none", False, id="waits-until-the-old-one-is-gone"),
        pytest.param("kueue", True, id="kueue-keeps-the-old-one-until-it-sees-the-new-one"),
    ],
)
def test_a_replacement_beside_an_object_that_has_ended(gang, beside):
    bench = Bench(job(role(replicas=2), gang=gang)).settle()
    bench.end("worker", 0, 1).decide()
    assert bench.actions(Delete) == [("worker", 0)]
    bench.decide()  # the object is still there
    assert bench.actions(Create) == ([("worker", 0)] if beside else [])


def test_no_replacement_beside_an_object_that_lives_not_even_for_kueue():
    bench = Bench(job(role(replicas=2), gang="kueue")).settle()
    bench.end("worker", 0, 1).decide()
    bench.objects["worker-0-0"] = replace(bench.objects["worker-0-0"], state="terminating")
    bench.decide()
    assert bench.actions(Create) == []


@pytest.mark.parametrize("scope", ["Instance", "Role", "Job"])
def test_what_is_free_does_not_double_the_backoff_of_what_follows(scope):
    spec = job(role(replicas=2), scope=scope, backoff_initial_seconds=10, max_restarts=9)
    bench = Bench(spec).settle()
    for _ in range(3):
        bench.end("worker", 0, 143, disrupted=True).settle()
        bench.later(10).settle()
    bench.end("worker", 0, 1).settle()
    waits = [each.message.rpartition(" in ")[2] for each in bench.events if "next" in each.message]
    assert waits == ["10 s"] * 4
    bench.later(10).settle()
    bench.end("worker", 0, 1).settle()
    assert any("next attempt in 20 s" in each.message for each in bench.events)
