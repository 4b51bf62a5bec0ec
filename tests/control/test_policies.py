"""When roles and jobs end: every combination of success and failure, All and Any, on both levels."""

from __future__ import annotations

import pytest

from airflow_training.control import reasons
from airflow_training.control.policies import job_verdict, required_count, role_verdict
from tests.builders import Bench, job, role


@pytest.mark.parametrize(
    ("threshold", "replicas", "expected"),
    [
        ("All", 4, 4),
        ("Any", 4, 1),
        (2, 4, 2),
        (7, 4, 4),
        ("50%", 4, 2),
        ("50%", 3, 2),
        ("1%", 4, 1),
        ("100%", 4, 4),
        ("34%", 3, 2),
        ("33%", 3, 1),
    ],
)
def test_a_threshold_means_this_many_instances(threshold, replicas, expected):
    assert required_count(threshold, replicas) == expected


UNREACHABLE = ("Failed", reasons.SUCCESS_UNREACHABLE)
DONE = ("Succeeded", reasons.COMPLETED)
LOST = ("Failed", reasons.INSTANCE_FAILED)


@pytest.mark.parametrize(
    ("min_succeeded", "min_failed", "succeeded", "failed", "expected"),
    [
        pytest.param("All", "Any", 0, 0, None, id="nothing-happened"),
        pytest.param("All", "Any", 3, 0, None, id="all-needs-the-last"),
        pytest.param("All", "Any", 4, 0, DONE, id="all-succeeded"),
        pytest.param("All", "Any", 3, 1, LOST, id="any-failure-fails"),
        pytest.param("Any", "Any", 1, 0, DONE, id="any-success-is-enough"),
        pytest.param("Any", "Any", 1, 1, LOST, id="failure-is-looked-at-first"),
        pytest.param("Any", "All", 1, 3, DONE, id="one-survivor-is-enough"),
        pytest.param("Any", "All", 0, 4, LOST, id="all-failed"),
        pytest.param("All", "All", 0, 1, None, id="others-may-still-run"),
        pytest.param("All", "All", 3, 1, UNREACHABLE, id="nothing-left-to-run"),
        pytest.param(2, 3, 2, 0, DONE, id="count-of-successes"),
        pytest.param(2, 3, 1, 2, None, id="counts-not-reached"),
        pytest.param(2, 3, 1, 3, LOST, id="count-of-failures"),
        pytest.param("75%", "50%", 3, 1, DONE, id="percentage-of-successes"),
        pytest.param("75%", "50%", 2, 2, LOST, id="percentage-of-failures"),
        pytest.param("75%", "75%", 2, 2, UNREACHABLE, id="neither-percentage-can-be-reached"),
    ],
)
def test_a_role_of_four_ends_by_its_thresholds(
    min_succeeded, min_failed, succeeded, failed, expected
):
    verdict = role_verdict(
        role(replicas=4, min_succeeded=min_succeeded, min_failed=min_failed),
        replicas=4,
        succeeded=succeeded,
        failed=failed,
    )
    assert (verdict and (verdict.state, verdict.reason)) == expected


def test_a_role_without_instances_has_succeeded():
    verdict = role_verdict(role(replicas=0), replicas=0, succeeded=0, failed=0)
    assert verdict is not None
    assert verdict.state == "Succeeded"


R, S, F = "Running", "Succeeded", "Failed"


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        # success: All
        pytest.param({}, (R, R, R), None, id="all-run"),
        pytest.param({}, (S, R, R), None, id="success-all-one-missing"),
        pytest.param({}, (S, S, R), "Succeeded", id="untracked-does-not-count"),
        pytest.param({"targets": ("ps",)}, (R, R, S), "Succeeded", id="named-untracked-counts"),
        pytest.param({"targets": ("a",)}, (S, R, R), "Succeeded", id="only-the-named-role"),
        # success: Any
        pytest.param({"success": "Any"}, (S, R, R), "Succeeded", id="success-any"),
        pytest.param({"success": "Any"}, (R, R, S), None, id="success-any-not-the-untracked"),
        # failure: Any
        pytest.param({}, (F, R, R), reasons.ROLE_FAILED, id="failure-any"),
        pytest.param({}, (R, R, F), reasons.ROLE_FAILED, id="failure-any-untracked-too"),
        pytest.param({}, (S, F, R), reasons.ROLE_FAILED, id="failure-any-after-a-success"),
        pytest.param({"success": "Any"}, (S, F, R), reasons.ROLE_FAILED, id="failure-comes-first"),
        pytest.param({"failure_targets": ("a",)}, (R, F, R), None, id="failure-target-not-hit"),
        pytest.param(
            {"failure_targets": ("b",)}, (R, F, R), reasons.ROLE_FAILED, id="failure-target-hit"
        ),
        # failure: All
        pytest.param({"failure": "All"}, (F, R, R), None, id="failure-all-others-run"),
        pytest.param({"failure": "All"}, (F, F, F), reasons.ROLE_FAILED, id="failure-all"),
        pytest.param(
            {"failure": "All", "success": "Any"}, (F, S, R), "Succeeded", id="any-survivor"
        ),
        # success can no longer be reached
        pytest.param({"failure": "All"}, (F, R, S), None, id="lost-but-a-tracked-role-runs"),
        pytest.param(
            {"failure": "All"}, (F, S, S), reasons.SUCCESS_UNREACHABLE, id="lost-and-all-ended"
        ),
        pytest.param(
            {"failure": "All"}, (F, S, R), reasons.SUCCESS_UNREACHABLE, id="lost-untracked-runs-on"
        ),
        pytest.param(
            {"failure": "All", "success": "Any"},
            (F, F, R),
            reasons.SUCCESS_UNREACHABLE,
            id="any-and-all-tracked-failed",
        ),
        pytest.param(
            {"failure_targets": ("ps",), "targets": ("a",)},
            (F, S, R),
            reasons.SUCCESS_UNREACHABLE,
            id="target-lost-and-failure-looks-elsewhere",
        ),
    ],
)
def test_a_job_of_two_tracked_roles_and_an_untracked_one_ends(policy, states, expected):
    spec = job(role("a"), role("b"), role("ps", tracked=False), **policy)
    verdict = job_verdict(spec, dict(zip(("a", "b", "ps"), states, strict=True)))
    if expected == "Succeeded":
        assert verdict is not None
        assert verdict.state == "Succeeded"
    else:
        assert (verdict and verdict.reason) == expected


def never(name, replicas, **fields):
    return role(name, replicas, restart_policy="Never", **fields)


@pytest.mark.parametrize(
    ("spec", "ends", "expected", "roles"),
    [
        pytest.param(
            job(never("worker", 3)),
            [("worker", i, 0) for i in range(3)],
            ("Succeeded", reasons.COMPLETED),
            {"worker": "Succeeded"},
            id="all-succeed",
        ),
        pytest.param(
            job(never("worker", 3)),
            [("worker", 1, 1)],
            ("Failed", reasons.INSTANCE_FAILED),
            {"worker": "Failed"},
            id="one-fails",
        ),
        pytest.param(
            job(never("worker", 3, min_failed="All", min_succeeded="Any")),
            [("worker", 0, 1), ("worker", 1, 0)],
            ("Succeeded", reasons.COMPLETED),
            {"worker": "Succeeded"},
            id="one-failure-is-tolerated",
        ),
        pytest.param(
            job(never("worker", 2, min_failed="All")),
            [("worker", 0, 1), ("worker", 1, 0)],
            ("Failed", reasons.SUCCESS_UNREACHABLE),
            {"worker": "Failed"},
            id="role-success-unreachable",
        ),
        pytest.param(
            job(never("worker", 2), never("ps", 1, tracked=False)),
            [("worker", 0, 0), ("worker", 1, 0)],
            ("Succeeded", reasons.COMPLETED),
            {"worker": "Succeeded", "ps": "Succeeded"},
            id="running-untracked-role-is-stopped-and-successful",
        ),
        pytest.param(
            job(never("master", 1), never("worker", 2), targets=("master",)),
            [("master", 0, 0)],
            ("Succeeded", reasons.COMPLETED),
            {"master": "Succeeded", "worker": "Succeeded"},
            id="the-master-decides",
        ),
        pytest.param(
            job(never("a", 1), never("b", 1), failure="All"),
            [("a", 0, 1), ("b", 0, 0)],
            ("Failed", reasons.SUCCESS_UNREACHABLE),
            {"a": "Failed", "b": "Succeeded"},
            id="job-success-unreachable",
        ),
        pytest.param(
            job(never("a", 1), never("ps", 1, tracked=False), failure="All"),
            [("a", 0, 1)],
            ("Failed", reasons.SUCCESS_UNREACHABLE),
            {"a": "Failed", "ps": "Stopped"},
            id="an-untracked-role-that-runs-for-ever-does-not-hold-the-job",
        ),
        pytest.param(
            job(role("ps", 1, restart_policy="Always"), never("worker", 1), targets=("worker",)),
            [("ps", 0, 0), ("worker", 0, 0)],
            ("Succeeded", reasons.COMPLETED),
            {"ps": "Succeeded", "worker": "Succeeded"},
            id="exit-0-under-always-ends-with-the-job",
        ),
    ],
)
def test_a_job_ends_and_nothing_of_it_is_left(spec, ends, expected, roles):
    bench = Bench(spec).settle()
    for name, index, code in ends:
        bench.end(name, index, code)
        bench.step()
    assert (bench.state, bench.ledger.job.reason) == expected
    assert bench.states() == roles
    bench.settle(starting=False)
    assert bench.last.done
    assert all(each.state in ("succeeded", "failed") for each in bench.objects.values())
    assert {e.state for e in bench.ledger.instances.values()} <= {"succeeded", "failed", "stopped"}


def test_failure_and_success_in_one_snapshot_charge_nothing():
    """The job that has just succeeded restarts nothing, so nobody is charged."""
    spec = job(role("master"), role("worker", 2), targets=("master",), scope="Job")
    bench = Bench(spec).settle()
    bench.end("master").end("worker", 1, 1).step()
    assert bench.state == "Succeeded"
    assert bench.charged() == {}
    assert bench.of("worker", 1).state == "failed"
    assert bench.states()["worker"] == "Succeeded"
