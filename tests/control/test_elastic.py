"""Elastic roles: who is given up, who goes on, when the rest is tried again, and what is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete
from airflow_training.control.model import ReducedSize
from airflow_training.control.replanning import replan_hindrance
from airflow_training.control.rollup import rollup
from airflow_training.documents.resolved_blocks import CheckpointCommit, ResolvedPlan
from tests.builders import Bench, after, job, role
from tests.examples import examples

CHECKPOINT = {"uri": "ckpt"}


def elastic(size=3, least=2, *, roles=(), **fields):
    """Return a torchrun-like job that may lose workers, with no recovery to spend on others."""
    fields = {"max_restarts": 0, "scope": "Job", "checkpoint": CHECKPOINT} | fields
    backoff_limit = fields.pop("backoff_limit", 6)
    worker = role(
        "worker",
        size,
        min_replicas=least,
        max_replicas=8,
        chief=True,
        backoff_limit=backoff_limit,
        restart_policy=fields.pop("restart_policy", "OnFailure"),
    )
    return job(worker, *roles, elastic=True, **fields)


def killed(bench, index, **facts):
    facts = {"signal": 9, "exit_code": None, "reason": "Error"} | facts
    return bench.end("worker", index, **facts)


def running(bench):
    return sorted(o.index for o in bench.objects.values() if o.state == "running")


def members(bench):
    return sorted(e.index for e in bench.ledger.instances.values() if not (e.joining or e.retired))


def commit(bench, step=10):
    bench.commits.append(CheckpointCommit(uri="ckpt", step=step, digest="d", at=bench.now))
    return bench


def short_of_one(index=1, **fields):
    bench = Bench(elastic(**fields)).settle()
    return killed(bench, index).settle()


# what is given up ----------------------------------------------------------------------------------
@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_job_goes_on_with_dense_ranks_whoever_is_lost(index):
    bench = Bench(elastic()).settle()
    killed(bench, index).step()
    assert bench.actions(Delete) == [("worker", 0), ("worker", 1), ("worker", 2)]
    bench.settle()
    assert running(bench) == [0, 1] == members(bench)
    assert bench.state == "Running"
    assert bench.ledger.job.job_attempt == 1, "no rank of before meets one of now"
    (told,) = bench.said(reasons.GOES_ON_WITH_FEWER)
    assert told.message == f"2 of 3 instances; worker-{index}: signal 9"
    entry = bench.ledger.roles["worker"]
    assert (entry.state, entry.reason) == ("Running", reasons.GOES_ON_WITH_FEWER)
    assert (entry.message, entry.desired, entry.replicas) == (told.message, 3, 2)


def test_it_is_one_counted_recovery():
    bench = short_of_one()
    assert bench.charged() == {"infrastructure": 1}
    (record,) = bench.ledger.job.restarts
    assert (record.rule, record.scope, record.counted) == ("minReplicas", "Job", True)
    assert bench.ledger.job.recovery.order == 1
    assert bench.ledger.job.fresh_jobs == 0


def test_a_role_is_given_up_only_when_its_recoveries_are_used_up():
    bench = Bench(elastic(max_restarts=1)).settle()
    killed(bench, 1).settle()
    assert (running(bench), bench.said(reasons.GOES_ON_WITH_FEWER)) == ([0, 1, 2], [])
    killed(bench, 1).settle()
    assert running(bench) == [0, 1]


def test_it_comes_before_a_fresh_job_and_after_the_last_spare_one_the_fresh_job_comes():
    bench = Bench(elastic(then="FreshJob")).settle()
    killed(bench, 1).settle()
    assert bench.ledger.job.fresh_jobs == 0
    killed(bench, 1).settle()
    assert bench.ledger.job.fresh_jobs == 1
    killed(bench, 1).settle()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.MAX_RESTARTS_EXCEEDED)


@pytest.mark.parametrize(
    ("facts", "gives_up"),
    [
        pytest.param({"signal": 9}, True, id="killed"),
        pytest.param({"reason": "NodeLost"}, True, id="node"),
        pytest.param({"reason": "Evicted"}, True, id="evicted"),
        pytest.param({"reason": "OOMKilled"}, False, id="its-own-memory"),
        pytest.param({"signal": None, "exit_code": 1}, False, id="bug"),
        pytest.param({"signal": 11}, False, id="crash"),
        pytest.param({"signal": None, "exit_code": 255}, False, id="unknown"),
    ],
)
def test_only_what_the_platform_did_costs_a_rank_instead_of_the_job(facts, gives_up):
    bench = Bench(elastic(then="Fail")).settle()
    killed(bench, 1, **facts).settle()
    assert bench.state == ("Running" if gives_up else "Failed")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(elastic(2, 2), id="at-its-least"),
        pytest.param(elastic(gang="kueue"), id="kueue"),
        pytest.param(elastic(gang="volcano"), id="a-gang-of-all"),
        pytest.param(
            elastic(gang="volcano", min_available=2, startup="perWave"), id="a-gang-per-wave"
        ),
        pytest.param(
            replace(
                elastic(),
                plan=ResolvedPlan(document={}, id="p", applied_env=frozenset({"DP_SIZE"})),
            ),
            id="planned",
        ),
        pytest.param(elastic(restart_policy="Never"), id="never-again"),
    ],
)
def test_where_it_cannot_go_on_with_fewer_the_job_fails_as_ever(spec):
    bench = Bench(spec).settle()
    killed(bench, 1).settle()
    assert bench.state == "Failed"


def test_a_gang_goes_on_down_to_what_it_needs():
    bench = Bench(elastic(3, 1, gang="volcano", min_available=2)).settle()
    killed(bench, 1).settle()
    assert (bench.state, bench.ledger.roles["worker"].replicas) == ("Running", 2)
    killed(bench, 1).settle()
    assert bench.state == "Failed"


def test_a_static_role_that_was_scaled_up_is_not_elastic():
    bench = Bench(job(role("worker", 2), max_restarts=0, scope="Job")).settle()
    bench.request("scale", "worker", 4).settle()
    killed(bench, 3).settle()
    assert bench.state == "Failed"


def test_once_a_rank_has_ended_there_is_nothing_to_go_on_with():
    bench = Bench(elastic()).settle()
    bench.end("worker", 0).step()
    killed(bench, 1).settle()
    assert bench.state == "Failed"


def test_the_backoff_limit_of_an_instance_is_a_budget_too():
    bench = Bench(elastic(backoff_limit=0, max_restarts=9)).settle()
    killed(bench, 2).settle()
    assert running(bench) == [0, 1]
    assert bench.of("worker", 1).restarts == 0


# growing back --------------------------------------------------------------------------------------
def test_the_missing_one_is_tried_only_after_the_others_have_got_on():
    bench = short_of_one()
    bench.later(600.0).settle()
    assert running(bench) == [0, 1]
    assert bench.of("worker", 2).reason == reasons.WAITS_TO_JOIN
    commit(bench).step()
    assert bench.actions(Create) == [("worker", 2)]
    assert bench.actions(Delete) == [], "nobody is torn down for it"
    assert members(bench) == [0, 1], "it counts once it runs"
    bench.settle()
    assert running(bench) == [0, 1, 2] == members(bench)
    (told,) = bench.said(reasons.BACK_TO_FULL_SIZE)
    assert told.message == "3 of 3 instances; worker-2 joined"
    entry = bench.ledger.roles["worker"]
    assert (entry.reduced, entry.reason, entry.message) == (None, reasons.RUNNING, "")
    assert bench.charged() == {"infrastructure": 1}
    assert bench.ledger.job.job_attempt == 1


def test_without_checkpoints_only_somebody_can_let_it_grow():
    bench = short_of_one(checkpoint=None)
    bench.later(9000.0).settle()
    assert running(bench) == [0, 1], "it would lose what it has done"
    bench.request("scale", "worker", 3).settle()
    assert running(bench) == [0, 1, 2] == members(bench)


def test_what_fails_before_it_joins_is_tried_ever_more_rarely_and_costs_nothing():
    bench = short_of_one(backoff_initial_seconds=10.0, backoff_max_seconds=10_000.0)
    bench.later(10.0).settle()
    commit(bench).step()
    waits = []
    for _ in range(7):
        bench.later(400.0).step()
        bench.end("worker", 2, exit_code=1).step()
        waits.append(bench.ledger.roles["worker"].reduced.try_at - bench.now)
        assert running(bench) == [0, 1]
    assert waits == [20, 40, 80, 160, 300, 300, 300]
    assert len(bench.said(reasons.JOIN_FAILED)) == 7
    assert bench.charged() == {"infrastructure": 1}
    assert bench.of("worker", 2).attempt == 8


def test_two_that_are_missing_come_back_one_by_one():
    bench = Bench(elastic(4, 1)).settle()
    killed(bench, 3).settle()
    killed(bench, 1).settle()
    assert running(bench) == [0, 1]
    commit(bench.later(1.0)).step()
    assert bench.actions(Create) == [("worker", 2), ("worker", 3)]
    bench.set("worker", 3, scheduled=False).settle()
    assert members(bench) == [0, 1, 2]
    assert bench.said(reasons.GROWS_BACK)[-1].message == "3 of 4 instances; worker-2 joined"
    bench.set("worker", 3, scheduled=True).settle()
    assert members(bench) == [0, 1, 2, 3]
    assert len(bench.said(reasons.BACK_TO_FULL_SIZE)) == 1


def test_it_does_not_grow_into_a_training_that_ends():
    bench = short_of_one()
    commit(bench.later(1.0)).step()
    bench.set("worker", 2, scheduled=False)
    bench.end("worker", 0).step()
    assert bench.actions(Delete) == [("worker", 2)]
    bench.end("worker", 1).settle()
    assert bench.state == "Succeeded"


def test_a_failure_meanwhile_takes_what_was_to_join_along():
    bench = short_of_one(max_restarts=2, then="Fail", least=1)  # not used up yet
    for _ in range(2):
        killed(bench, 1).settle()
    assert members(bench) == [0, 1]
    commit(bench.later(1.0)).step()
    bench.set("worker", 2, scheduled=False)
    killed(bench, 0).step()
    assert ("worker", 2) in bench.actions(Delete), "it was told of an older recovery"
    bench.settle()
    assert bench.state == "Running"


# no place ------------------------------------------------------------------------------------------
def waiting_for(index, *, seconds, **fields):
    """Return a job one of whose instances has found no place for so long."""
    bench = Bench(elastic(**fields))
    bench.step()
    bench.set("worker", index, scheduled=False).settle()
    bench.later(seconds).settle()
    return bench


def test_a_role_starts_with_what_fits_and_the_rest_joins_when_there_is_room():
    bench = waiting_for(2, seconds=100.0)
    assert bench.state == "Starting"
    bench.later(20.0).settle()
    assert bench.state == "Running"
    assert members(bench) == [0, 1]
    assert (
        bench.said(reasons.GOES_ON_WITH_FEWER)[0].message
        == "2 of 3 instances; no place for worker-2"
    )
    assert bench.of("worker", 2).attempt == 0, "it keeps its place in the queue"
    assert bench.charged() == {}, "nobody was restarted"
    bench.later(90_000.0).settle()
    assert bench.state == "Running", "scheduleTimeoutSeconds is over for those that count"
    bench.set("worker", 2, scheduled=True).settle()
    assert members(bench) == [0, 1, 2]


def test_rank_0_takes_the_place_of_another():
    bench = waiting_for(0, seconds=100.0)
    bench.later(20.0).step()
    assert len(bench.actions(Delete)) == 3
    bench.settle()
    assert running(bench) == [0, 1] == members(bench)
    assert bench.charged() == {"resource": 1}


def test_with_fewer_than_the_least_the_job_waits_and_fails_as_ever():
    bench = waiting_for(2, seconds=3000.0, least=3)
    assert bench.state == "Starting"
    bench.later(600.0).step()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SCHEDULE_TIMEOUT)


def test_a_node_that_nobody_hears_of_holds_nobody_else_back():
    bench = Bench(elastic(max_restarts=3, unknown_seconds=60.0)).settle()
    bench.set("worker", 1, state="unknown", state_since=bench.now, address_live=False).step()
    lost = bench.objects[bench.uid("worker", 1)]
    bench.later(60.0).step()
    assert bench.charged() == {"infrastructure": 1}
    for seconds, expected in ((59.0, []), (1.0, [("worker", 0), ("worker", 2)])):
        bench.objects = {lost.uid: lost}  # whatever is ordered, it may still run there
        bench.later(seconds).step()
        assert bench.actions(Create) == expected
    assert members(bench) == [0, 2]


@pytest.mark.parametrize("waits_for", ["a-place", "its-old-instance"])
def test_what_cannot_be_asked_for_is_not_left_out_for_that(waits_for):
    bench = Bench(elastic(max_restarts=3, unknown_seconds=60.0)).settle()
    bench.set("worker", 1, state="unknown", state_since=bench.now, address_live=False).step()
    lost = bench.objects[bench.uid("worker", 1)]
    bench.later(60.0).decide()
    if waits_for == "a-place":
        del bench.objects[lost.uid]
        bench.act()
        bench.settle(starting=False).set("worker", 1, scheduled=False)
    else:
        bench.objects = {lost.uid: lost}
    bench.decide(seconds=10)
    bench.reachable = False
    bench.decide()
    bench.decide(seconds=1000)
    bench.reachable = True
    bench.decide()
    bench.decide(seconds=60)
    assert bench.ledger.roles["worker"].reduced is None
    bench.decide(seconds=60)
    assert bench.ledger.roles["worker"].reduced is not None


# what people ask -----------------------------------------------------------------------------------
def test_scaling_sets_the_size_anew():
    bench = short_of_one()
    bench.request("scale", "worker", 4).settle()
    entry = bench.ledger.roles["worker"]
    assert (entry.replicas, entry.reduced) == (4, None)
    assert running(bench) == [0, 1, 2, 3]
    assert bench.said(reasons.SCALED)[-1].message == "from 2 to 4 instances"


@pytest.mark.parametrize("way", ["pause", "reopen"])
def test_who_starts_it_anew_starts_all_of_it(way):
    bench = short_of_one()
    if way == "pause":
        bench.request("pause").settle().request("resume").settle()
    else:
        bench.request("stop").settle().request("reopen").settle()
    assert running(bench) == [0, 1, 2] == members(bench)
    assert bench.ledger.roles["worker"].reduced is None


def test_a_plan_does_not_follow_the_cluster_meanwhile():
    bench = short_of_one()
    assert (
        replan_hindrance(bench.job, bench.ledger)
        == "role worker goes on with fewer instances for now"
    )


def test_status_says_how_many_there_should_be_and_what_is_missing():
    bench = short_of_one()
    shown = rollup(
        bench.job, bench.ledger, run_id="r", progress={}, usage=[], output=None, now=bench.now
    )
    worker = shown["roles"]["worker"]
    assert (worker["desired"], worker["running"], worker["pending"]) == (3, 2, 1)
    assert worker["message"] == "2 of 3 instances; worker-1: signal 9"


def test_roles_that_wait_for_all_of_them_do_not_wait_for_what_is_to_join():
    later = role("report", 1, after("worker", "Running"))
    bench = Bench(elastic(roles=(later,)))
    bench.step()
    bench.set("worker", 2, scheduled=False).settle()
    assert bench.of("report").state == "pending"
    bench.later(120.0).settle()
    assert bench.of("report").state == "running"


# always --------------------------------------------------------------------------------------------
@settings(max_examples=examples(150), deadline=None)
@given(
    size=st.integers(1, 6),
    least=st.integers(1, 6),
    budget=st.integers(0, 3),
    story=st.lists(
        st.tuples(
            st.sampled_from(["kill", "no place", "place", "commit", "time"]), st.integers(0, 5)
        ),
        max_size=25,
    ),
)
def test_never_below_the_least_and_never_above_the_full_size(size, least, budget, story):
    least = min(least, size)
    bench = Bench(elastic(size, least, max_restarts=budget, then="Fail"))
    lost = 0
    for number, (what, index) in enumerate(story):
        bench.settle()
        if bench.state == "Failed":
            break
        alive = sorted(bench.objects)
        uid = alive[index % len(alive)] if alive else ""
        seen = bench.objects.get(uid)
        if what == "time":
            bench.later(130.0)
        elif what == "commit":
            commit(bench.later(1.0), step=10 + number)
        elif seen is not None and what == "kill" and seen.state == "running":
            killed(bench, seen.index)
            lost += 1
        elif seen is not None and seen.state == "pending":
            bench.objects[uid] = replace(seen, scheduled=what == "place")
        bench.step()  # which also decides twice, and compares
        entry = bench.ledger.roles["worker"]
        if bench.state != "Failed":
            assert least <= entry.replicas <= entry.desired == size
            assert len(members(bench)) == entry.replicas
            assert (entry.reduced is None) == (entry.replicas == size)
    given_up = [
        each for each in bench.said(reasons.GOES_ON_WITH_FEWER) if "no place" not in each.message
    ]
    assert len(given_up) <= lost
    told = Counter(each.rule for each in bench.ledger.job.restarts)
    assert told["minReplicas"] == len(given_up)


def test_a_ledger_of_before_has_its_size():
    assert Bench(elastic()).ledger.roles["worker"].reduced is None
    assert ReducedSize(full=3).tries == 0


# what no machine could take ----------------------------------------------------------------------
TOO_LARGE = {"scheduled": False, "reason": reasons.NEVER_FITS, "message": "73 of 72 cpus"}


def never_fitting(*indexes, size=4, least=2, **fields):
    """Return an elastic job that does not wait for machines, and some of whose instances fit on none."""
    bench = Bench(elastic(size, least, never_fits="Fail", **fields))
    bench.step()
    for index in indexes:
        bench.set("worker", index, **TOO_LARGE)
    return bench


@pytest.mark.parametrize("missing", [(3,), (2, 3), (1,)])
def test_what_fits_with_fewer_goes_on_with_fewer_though_some_never_fit(missing):
    bench = never_fitting(*missing).settle()
    assert bench.state == "Running"
    assert bench.ledger.roles["worker"].replicas == 4 - len(missing)
    (told,) = bench.said(reasons.GOES_ON_WITH_FEWER)
    assert told.message.startswith(f"{4 - len(missing)} of 4 instances; no place for worker-")
    assert bench.said(reasons.NEVER_FITS)


def test_the_instance_at_which_the_others_meet_gives_way_once_they_run():
    bench = never_fitting(0).settle()
    assert bench.state != "Failed"
    assert bench.ledger.roles["worker"].replicas == 3


@pytest.mark.parametrize("missing", [(1, 2, 3), (0, 1, 2, 3)])
def test_what_does_not_fit_with_fewer_either_ends_at_once(missing):
    bench = never_fitting(*missing).settle(starting=False)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NEVER_FITS)
    assert "73 of 72 cpus" in bench.ledger.job.message


def test_so_it_does_where_that_is_seen_of_one_after_the_other():
    bench = never_fitting()
    for index in (1, 2, 3):
        assert bench.state != "Failed"
        bench.set("worker", index, **TOO_LARGE).step()
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NEVER_FITS)


def test_a_gang_that_keeps_its_size_ends_at_once():
    bench = never_fitting(3, gang="kueue").settle(starting=False)
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.NEVER_FITS)
