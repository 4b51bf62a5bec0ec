"""Where training goes on from: how often, from which checkpoint, and what an instance is told of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.actions import Delete
from airflow_training.control.attempts import AttemptId
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.instance_checkpoints import entry_for_instance
from airflow_training.control.model import JobEntry, Recovery
from airflow_training.control.recovery import checkpoint_root, is_shared, order
from airflow_training.control.reports import RejectedCheckpoint
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import CheckpointCommit
from tests.builders import Bench, job, role

CHECKPOINT = {"uri": "/ckpt", "everySeconds": 600, "keep": 3, "resume": "latest"}


def trained(*roles, **fields) -> Bench:
    """Return the settled bench of a job that keeps checkpoints and restarts as a whole."""
    fields.setdefault("scope", "Job")
    fields.setdefault("checkpoint", CHECKPOINT)
    return Bench(job(*(roles or (role(replicas=2),)), **fields)).settle()


def reference(step: int, at: float, **more: Any) -> CheckpointCommit:
    known = {"uri": "/ckpt/r/0", "digest": f"sha256:{step}-{at}"}
    return CheckpointCommit(step=step, at=at, **{**known, **more})


def commit(bench: Bench, *steps: int) -> Bench:
    """Let checkpoints of these steps be committed, one each second."""
    for step in steps:
        bench.now += 1
        bench.commits.append(reference(step, bench.now))
        bench.settle()
    bench.now += 1
    return bench


def newest(bench: Bench) -> int:
    """Return the step of the checkpoint that the ledger knows."""
    known = bench.ledger.job.checkpoint
    assert known is not None
    return known.step


def fail(bench: Bench, code: int | None = 1, **facts) -> Bench:
    return bench.end("worker", 0, code, **facts).settle()


def kill(bench: Bench) -> Bench:
    return fail(bench, code=None, signal=9)


def independent(*steps: int) -> Bench:
    """Return three instances, each with checkpoints of its own of these steps."""
    bench = trained(role(replicas=3), scope="Instance", max_restarts=99)
    for step in steps:
        bench.now += 1
        bench.commits += [of_instance(index, step, bench.now) for index in range(3)]
        bench.settle()
    bench.now += 1
    return bench


def of_instance(index: int, step: int, at: float) -> CheckpointCommit:
    return reference(
        step, at, uri=f"/ckpt/r/0/worker-{index}", digest=f"sha256:{index}-{step}-{at}"
    )


def goes_on_from(bench: Bench, index: int) -> tuple[int | None, int | None]:
    """Return the step of the newest checkpoint that an instance is told of, and its limit."""
    entry = entry_for_instance(bench.ledger, bench.ledger.instances[InstanceKey("worker", index)])
    newest = entry.checkpoint
    return None if newest is None else newest.step, entry.recovery.at_most


# counting ------------------------------------------------------------------------------------------
def test_three_recoveries_then_a_fresh_job_then_the_end():
    bench = trained(max_restarts=3, then="FreshJob", max_fresh_jobs=1)
    scopes = []
    while bench.state == "Running":
        kill(bench)
        scopes = [each.scope for each in bench.ledger.job.restarts]
    assert scopes == ["Job"] * 3 + ["FreshJob"] + ["Job"] * 3
    assert bench.ledger.job.reason == reasons.MAX_RESTARTS_EXCEEDED


def test_a_newer_checkpoint_forgives_recoveries():
    bench = trained(max_restarts=3, then="Fail")
    for step in range(10, 60, 10):
        commit(kill(kill(bench)), step)
    assert (bench.state, len(bench.ledger.job.restarts)) == ("Running", 10)
    for _ in range(3):
        kill(bench)
    assert bench.state == "Running"
    assert kill(bench).state == "Failed"


def test_a_step_that_was_there_before_forgives_nothing():
    bench = trained(max_restarts=3)
    commit(bench, 100, 200)
    for _ in range(3):
        commit(kill(bench), 150)
    assert kill(bench).state == "Failed"


def test_a_checkpoint_forgives_nothing_to_independent_instances():
    bench = trained(role(replicas=2), scope="Instance", max_restarts=3)
    for step in (10, 20, 30):
        commit(kill(bench), step)
    assert kill(bench).state == "Failed"


def test_the_window_slides_whatever_was_committed():
    bench = trained(max_restarts=9, window_seconds=3600.0, window_max_restarts=3)
    for step in (10, 20, 30):
        commit(kill(bench), step)
    assert kill(bench).state == "Failed"
    assert "window" in bench.ledger.job.message


def test_backoff_begins_again_after_progress():
    bench = trained(max_restarts=9, backoff_initial_seconds=2.0)

    def delay() -> float:
        bench.end("worker", 0, None, signal=9).decide()
        restart_at = bench.ledger.job.restart_at
        assert restart_at is not None
        found = restart_at - bench.now
        bench.settle().later(found).settle()
        return found

    assert [delay(), delay()] == [2.0, 4.0]
    commit(bench, 10)
    assert delay() == 2.0


# checkpoints ---------------------------------------------------------------------------------------
def test_the_newest_checkpoint_is_known_and_told_once():
    bench = commit(trained(), 10, 20)
    bench.settle()
    assert newest(bench) == 20
    assert [each.message for each in bench.said(reasons.CHECKPOINT_COMMITTED)] == [
        "step 10",
        "step 20",
    ]


def test_a_checkpoint_that_is_not_restored_is_told_once_for_each_restore():
    bench = commit(trained(), 10, 20)
    why = "rank 1: shards/x is missing"
    bench.rejected.append((InstanceKey("worker", 1), RejectedCheckpoint(at=5.0, step=20, why=why)))
    bench.settle()
    bench.rejected.append(
        (InstanceKey("worker", 0), RejectedCheckpoint(at=6.0, why="fences/2 is missing"))
    )
    bench.settle()
    bench.rejected.append((InstanceKey("worker", 1), RejectedCheckpoint(at=7.0, step=20, why=why)))
    bench.settle()
    told = bench.said(reasons.CHECKPOINT_REJECTED)
    assert [(each.message, each.level, each.index) for each in told] == [
        (f"step 20 is not restored: {why}", "warning", 1),
        ("fences/2 is missing", "warning", 0),
        (f"step 20 is not restored: {why}", "warning", 1),
    ]


def test_what_several_processes_of_one_start_find_is_told_once():
    bench = commit(trained(), 10, 20)
    for index, (start, step) in enumerate([("0.0.0", 20), ("0.0.0", 20), ("0.0.1", 20)]):
        why = f"rank {index}: shards/x is missing"
        told = RejectedCheckpoint(at=5.0 + index, step=step, why=why, restore=start)
        bench.rejected.append((InstanceKey("worker", index % 2), told))
    for why in ("fences/2 is missing", "fences/3 is missing", "fences/3 is missing"):
        at = bench.now + len(bench.rejected)
        told = RejectedCheckpoint(at=at, why=why, restore="0.0.1")
        bench.rejected.append((InstanceKey("worker", 0), told))
    bench.settle()
    assert sorted(each.message for each in bench.said(reasons.CHECKPOINT_REJECTED)) == [
        "fences/2 is missing",
        "fences/3 is missing",
        "step 20 is not restored: rank 0: shards/x is missing",
        "step 20 is not restored: rank 2: shards/x is missing",
    ]


def test_a_report_that_comes_late_changes_nothing():
    bench = commit(trained(), 10, 20)
    bench.commits.append(reference(15, bench.now - 100))
    bench.settle()
    assert newest(bench) == 20


@pytest.mark.parametrize(
    ("code", "signal", "steps"),
    [
        pytest.param(1, None, [None, 200, 100, 100], id="what-the-state-may-have-caused"),
        pytest.param(255, None, [None, 200, 100, 100], id="unknown"),
        pytest.param(None, 9, [None, None, None, None], id="a-machine-is-lost"),
    ],
)
def test_a_second_try_without_a_newer_checkpoint_goes_one_back(code, signal, steps):
    bench = commit(trained(max_restarts=9), 100, 200, 300)
    tried = []
    for _ in steps:
        fail(bench, code=code, signal=signal)
        tried.append(bench.ledger.job.recovery.at_most)
    assert tried == steps


def test_what_was_stepped_over_is_not_gone_back_to():
    bench = commit(trained(max_restarts=9), 100, 200)
    fail(fail(bench))
    assert (newest(bench), bench.ledger.job.recovery.at_most) == (100, 100)
    bench.commits.append(reference(200, bench.now - 1))  # an instance says it once more
    bench.settle()
    assert newest(bench) == 100
    commit(bench, 150)
    assert (newest(bench), bench.ledger.job.recovery.at_most) == (150, None)


def test_a_fresh_job_from_scratch_begins_a_lineage():
    bench = commit(trained(max_restarts=0, then="FreshJob", fresh_from="scratch"), 100)
    kill(bench)
    assert bench.ledger.job.checkpoint is None
    assert (bench.ledger.job.recovery.lineage, bench.ledger.job.recovery.order) == (1, 1)
    assert bench.ledger.job.recovery.highest_step == -1


def test_a_fresh_job_from_the_newest_keeps_it():
    bench = commit(trained(max_restarts=0, then="FreshJob"), 100)
    kill(bench)
    assert newest(bench) == 100
    assert (bench.ledger.job.recovery.lineage, bench.ledger.job.recovery.order) == (0, 1)


def test_a_cleared_reconcile_goes_on_from_the_checkpoint():
    bench = commit(trained(max_restarts=0, then="Fail"), 100)
    kill(bench)
    assert bench.state == "Failed"
    bench.request("reopen").settle()
    known = bench.ledger.job
    assert (bench.state, known.epoch, known.recovery.lineage) == ("Running", 1, 0)
    assert known.checkpoint is not None
    assert known.checkpoint.step == 100


def test_a_cleared_plan_begins_a_lineage():
    bench = commit(trained(), 100)
    anew = new_ledger(bench.job, now=bench.now, activate_all=True, replaces=bench.ledger).job
    assert (anew.checkpoint, anew.recovery.lineage, anew.recovery.order) == (None, 1, 1)


def test_every_start_of_the_whole_job_has_an_order_of_its_own():
    bench = trained(role(replicas=2), max_restarts=9)
    orders = [bench.ledger.job.recovery.order]
    for happens in (
        lambda: kill(bench),
        lambda: bench.request("pause").settle(),
        lambda: bench.request("resume").settle(),
        lambda: bench.request("scale", "worker", 3).settle(),
        lambda: bench.request("stop").settle(),
        lambda: bench.request("reopen").settle(),
    ):
        happens()
        orders.append(bench.ledger.job.recovery.order)
    assert orders == [0, 1, 2, 2, 3, 3, 4]


# how the others end --------------------------------------------------------------------------------
def graces(bench: Bench) -> set[tuple[float, bool]]:
    return {
        (each.grace_seconds, each.dump_stacks)
        for each in bench.last.actions
        if isinstance(each, Delete) and each.index == 1
    }


def test_who_cannot_save_alone_gets_no_time_for_it():
    bench = trained(grace_seconds=30.0)
    bench.end("worker", 0, None, signal=9).decide()
    assert graces(bench) == {(2.0, False)}


def test_the_others_of_a_hang_leave_their_stacks():
    bench = trained(grace_seconds=30.0)
    bench.end("worker", 0, None, reason=reasons.HANG).decide()
    assert graces(bench) == {(2.0, True)}
    assert bench.charged() == {"infrastructure": 1}


@pytest.mark.parametrize(("save_seconds", "grace"), [(1.0, 30.0), (40.0, 80.0)])
def test_a_pause_leaves_time_to_save(save_seconds, grace):
    bench = trained(grace_seconds=30.0)
    bench.commits.append(reference(10, bench.now, seconds=save_seconds))
    bench.settle().request("pause").decide()
    assert graces(bench) == {(grace, False)}


def test_what_is_committed_while_the_job_pauses_is_what_it_resumes_from():
    bench = trained()
    bench.request("pause").decide()
    commit(bench, 120)
    assert (bench.state, newest(bench)) == ("Paused", 120)
    assert bench.ledger.job.message == "paused by request; the checkpoint of step 120 is committed"
    bench.request("resume").settle()
    assert (bench.state, bench.charged()) == ("Running", {})


# what an instance is told ----------------------------------------------------------------------------
def told(spec: ResolvedJob, entry: JobEntry | None = None, **fields: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"root": "/r", "role": "worker", "attempt": AttemptId()}
    facts |= {"command": ["python"], "image": "", "env": {}}
    return order(spec, entry or JobEntry(), **(facts | fields))


@pytest.mark.parametrize(
    ("asked", "every"),
    [
        ({"everySeconds": 60}, {"seconds": 60}),
        ({"everySteps": 500}, {"steps": 500}),
        ({"every": "auto"}, {"auto": True}),
    ],
)
def test_the_interval(asked, every):
    assert told(job(checkpoint={"uri": "/c", **asked}))["every"] == every


def test_a_step_that_was_asked_for_is_asked_for_exactly():
    bench = trained(checkpoint={**CHECKPOINT, "resume": 100})
    found = told(bench.job, bench.ledger.job)["resume"]
    assert found == {"kind": "latest", "not_after": 100, "exactly": True}
    commit(bench, 200)
    found = told(bench.job, bench.ledger.job)["resume"]
    assert found == {"kind": "latest", "not_after": None, "exactly": False}


def test_nothing_is_restored_where_nobody_wants_it():
    spec = job(checkpoint={**CHECKPOINT, "resume": "none"})
    assert told(spec)["resume"]["kind"] == "none"


# independent instances ----------------------------------------------------------------------------
def test_an_independent_instance_goes_back_by_itself():
    bench = independent(100, 200, 300)
    tried = []
    for _ in range(4):
        bench.end("worker", 1, 1).settle()
        tried.append(goes_on_from(bench, 1))
    assert tried == [(300, None), (200, 200), (100, 100), (100, 100)]
    assert goes_on_from(bench, 0) == goes_on_from(bench, 2) == (300, None)
    said = bench.said(reasons.STEPPED_BACK)
    assert [(each.role, each.index) for each in said] == [("worker", 1)] * 2
    assert newest(bench) == 300  # the chief's


def test_a_failure_of_another_instance_is_no_second_try():
    bench = independent(100, 200)
    for index in (0, 1, 2):
        bench.end("worker", index, 1).settle()
    assert [goes_on_from(bench, index) for index in range(3)] == [(200, None)] * 3


def test_a_newer_checkpoint_of_its_own_ends_the_way_back():
    bench = independent(100, 200)
    for _ in range(2):
        bench.end("worker", 1, 1).settle()
    assert goes_on_from(bench, 1) == (100, 100)
    bench.now += 1
    bench.commits.append(of_instance(0, 300, bench.now))
    bench.settle()
    assert goes_on_from(bench, 1) == (100, 100)
    bench.now += 1
    bench.commits.append(of_instance(1, 150, bench.now))
    bench.settle()
    assert goes_on_from(bench, 1) == (150, None)


def test_a_lost_machine_costs_an_independent_instance_no_step():
    bench = independent(100, 200)
    for _ in range(3):
        bench.end("worker", 1, None, signal=9).settle()
    assert goes_on_from(bench, 1) == (200, None)


@pytest.mark.parametrize(
    ("fresh_from", "expected"), [("newest", (100, None)), ("scratch", (None, None))]
)
def test_a_fresh_job_of_independent_instances(fresh_from, expected):
    bench = trained(
        role(replicas=2),
        scope="Instance",
        max_restarts=2,
        then="FreshJob",
        max_fresh_jobs=1,
        fresh_from=fresh_from,
    )
    for step in (100, 200):
        bench.now += 1
        bench.commits.append(of_instance(1, step, bench.now))
        bench.settle()
    bench.now += 1
    for _ in range(2):
        bench.end("worker", 1, 1).settle()
    assert goes_on_from(bench, 1) == (100, 100)
    bench.end("worker", 1, 1).settle()
    assert bench.said(reasons.FRESH_JOB)
    assert goes_on_from(bench, 1) == expected


@pytest.mark.parametrize(
    ("spec", "shared"),
    [
        pytest.param(job(scope="Job"), True, id="restarted-together"),
        pytest.param(job(scope="Instance"), False, id="independent"),
        pytest.param(job(scope="Instance", elastic=True), True, id="they-re-form"),
        pytest.param(
            job(role(env={"WORLD_SIZE": "{{ world_size }}"}), scope="Instance"), True, id="ranked"
        ),
    ],
)
def test_who_writes_one_checkpoint_together(spec, shared):
    assert is_shared(spec) == shared
    assert told(spec)["group"] == ("job" if shared else "instance")
    where: dict[str, Any] = {
        "uri": "s3://b/c/",
        "run_id": "r 1",
        "run_uid": "abcdefgh",
        "role": "worker",
    }
    expected = "s3://b/c/r-1-abcde/2" + ("" if shared else "/worker-1")
    assert checkpoint_root(spec, 2, index=1, **where) == expected


def test_those_that_start_together_are_told_the_same_incarnation():
    spec, entry = job(scope="Job"), JobEntry(epoch=1, recovery=Recovery(order=4))
    both = [
        told(spec, entry, attempt=AttemptId(job_attempt=2, attempt=attempt)) for attempt in (5, 7)
    ]
    assert [each["incarnation"] for each in both] == ["1.2.4", "1.2.4"]
    alone = told(
        replace(spec, restart=replace(spec.restart, scope="Instance")),
        entry,
        attempt=AttemptId(attempt=7),
    )
    assert (alone["incarnation"], alone["order"]) == ("1.0.7", 7)


def test_the_longest_reference_there_can_be_is_below_one_kilobyte():
    independent = job(role("r" * 63, replicas=1000), scope="Instance")
    where = checkpoint_root(
        independent,
        99,
        uri="s" * 500,
        run_id="i" * 250,
        run_uid="u" * 20,
        role="r" * 63,
        index=999,
    )
    document = {"uri": where, "step": 10**12, "digest": f"sha256:{64 * 'a'}"}
    assert where.endswith("-999")
    assert len(json.dumps(document)) <= 1024
