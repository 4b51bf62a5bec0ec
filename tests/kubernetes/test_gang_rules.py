"""What a group of Kueue cannot do is refused before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.documents.resolved import ResolvedJob, Startup
from airflow_training.runtimes.kubernetes.gang_rules import kueue_problems, kueue_warnings
from tests.builders import job, role


def starting(spec: ResolvedJob, startup: Startup) -> ResolvedJob:
    return replace(spec, scheduling=replace(spec.scheduling, startup=startup))


TEAM = (role("m"), role("w", 3, "m"))


@pytest.mark.parametrize(
    ("spec", "startup", "field"),
    [
        pytest.param(
            job(*TEAM, gang="kueue", min_available=1),
            "ordered",
            "spec.schedulingPolicy.minAvailable",
            id="starts-only-whole",
        ),
        pytest.param(
            job(*TEAM, gang="kueue"),
            "firstWaveReserveAll",
            "spec.schedulingPolicy.startup",
            id="reserves-for-nobody-to-come",
        ),
        pytest.param(
            job(role("m"), role("w", 3, "m", max_replicas=5), gang="kueue"),
            "perWave",
            "spec.schedulingPolicy.gang",
            id="cannot-grow",
        ),
        pytest.param(
            job(*(role(f"r{i}") for i in range(9)), gang="kueue"),
            "createAllHold",
            "spec.schedulingPolicy.gang",
            id="nine-shapes",
        ),
    ],
)
def test_what_a_kueue_group_cannot_do_is_refused_with_a_way_out(spec, startup, field):
    (problem,) = kueue_problems(starting(spec, startup))
    assert (problem.code, problem.field) == ("not_supported", field)
    assert problem.hint
    volcano = job(*spec.roles, gang="volcano", min_available=spec.scheduling.min_available)
    assert kueue_problems(starting(volcano, startup)) == []


@pytest.mark.parametrize("startup", ["perWave", "createAllHold"])
def test_a_kueue_group_that_starts_whole_is_fine(startup):
    assert kueue_problems(starting(job(*TEAM, gang="kueue"), startup)) == []


def test_a_container_whose_end_would_keep_the_quota_is_warned_of():
    """A sidecar ends with its pod, whose phase it does not change."""
    main, proxy = {"name": "main"}, {"name": "proxy", "image": "envoy"}
    beside = {"spec": {"containers": [main, proxy]}}
    sidecar = {"spec": {"containers": [main], "initContainers": [proxy]}}
    team = (role("m", template=sidecar), role("w", 3, template=beside))
    (warning,) = kueue_warnings(job(*team, gang="kueue"))
    assert (warning.field, warning.value) == ("spec.roles.w.template.spec.containers", "proxy")
    assert "init container" in warning.hint
    assert kueue_warnings(job(*team, gang="volcano")) == []
    assert kueue_warnings(job(role("w", template=beside), gang="kueue")) == []
