"""Hypothesis strategies for whole documents: small, valid jobs of every kind."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from airflow_training.documents.resolved import (
    FailureRule,
    ResolvedDependency,
    ResolvedFailurePolicy,
    ResolvedJob,
    ResolvedRole,
    ResolvedSuccessPolicy,
    RestartRules,
    Scheduling,
)

__all__ = ["dependencies", "jobs", "roles"]

NAMES = ("a", "b", "c")
STATUSES = ("Running", "AddressKnown", "PortOpen", "Ready", "Complete")
ACTIONS = (
    "FailJob",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
    "RestartRole",
    "RestartInstance",
    "Ignore",
    "CompleteJob",
)
CLASSES = ("user", "infrastructure", "preemption", "resource", "unknown")


def dependencies(names: tuple[str, ...]) -> st.SearchStrategy[tuple[ResolvedDependency, ...]]:
    """Return dependencies on some of these roles, each at most once."""
    if not names:
        return st.just(())
    one: st.SearchStrategy[ResolvedDependency] = st.builds(
        ResolvedDependency,
        role=st.sampled_from(names),
        status=st.sampled_from(STATUSES),
        require=st.sampled_from(("All", "Any")),
        listener=st.sampled_from(("Each", "Any")),
        timeout_seconds=st.sampled_from((60.0, 600.0)),
    )
    return st.lists(one, max_size=len(names), unique_by=lambda each: each.role).map(tuple)


@st.composite
def roles(
    draw: st.DrawFn, *, max_roles: int = 3, max_replicas: int = 3
) -> tuple[ResolvedRole, ...]:
    """Return roles whose dependencies never close a cycle."""
    made: list[ResolvedRole] = []
    for name in NAMES[: draw(st.integers(1, max_roles))]:
        replicas = draw(st.integers(1, max_replicas))
        threshold = st.one_of(st.sampled_from(("All", "Any", "50%")), st.integers(1, replicas))
        made.append(
            ResolvedRole(
                name=name,
                replicas=replicas,
                depends_on=draw(dependencies(tuple(role.name for role in made))),
                restart_policy=draw(st.sampled_from(("OnFailure", "ExitCode", "Never", "Always")))
                if made
                else "OnFailure",  # with Always alone nothing would ever end
                backoff_limit=draw(st.integers(0, 4)),
                max_restarts=draw(st.none() | st.integers(0, 4)),
                min_succeeded=draw(threshold),
                min_failed=draw(threshold),
                tracked=not made or draw(st.booleans()),
                chief=not made,
            )
        )
    return tuple(made)


@st.composite
def jobs(draw: st.DrawFn) -> ResolvedJob:
    """Return a small job that can end; its first role decides, so that others may run for ever."""
    team: Any = draw(roles())
    elastic = draw(st.booleans())
    rules: Any = st.builds(
        FailureRule,
        name=st.just("drawn"),
        action=st.sampled_from(ACTIONS),
        on_classes=st.lists(st.sampled_from(CLASSES), min_size=1, max_size=2).map(tuple),
    )
    return ResolvedJob(
        name="drawn",
        roles=team,
        elastic=elastic,
        success_policy=ResolvedSuccessPolicy(
            operator=draw(st.sampled_from(("All", "Any"))), target_roles=("a",)
        ),
        failure_policy=ResolvedFailurePolicy(
            operator=draw(st.sampled_from(("All", "Any"))),
            rules=draw(st.lists(rules, max_size=2).map(tuple)),
        ),
        restart=RestartRules(
            scope=draw(st.sampled_from(("Instance", "Role", "Job"))),
            max_restarts=draw(st.integers(0, 6)),
            backoff_initial_seconds=draw(st.sampled_from((0.0, 2.0))),
            then=draw(st.sampled_from(("Fail", "FreshJob"))),
        ),
        scheduling=Scheduling(
            startup=draw(st.sampled_from(("ordered", "createAllHold"))),
            gang=draw(st.sampled_from(("none", "volcano"))),
        ),
        clean_pod_policy=draw(st.sampled_from(("Running", "All", "None"))),
        unknown_seconds=draw(st.sampled_from((20.0, 60.0))),
    )
