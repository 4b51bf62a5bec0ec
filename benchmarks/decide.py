"""How long one decision takes, against the number of instances."""

from __future__ import annotations

import time
from dataclasses import replace

from airflow_training.control.actions import Create
from airflow_training.control.decide import decide
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import Ledger
from airflow_training.control.observations import Observation, Observations
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from benchmarks.report import figure, heading, median

NOW = 1_000_000.0


def running(instances: int) -> tuple[ResolvedJob, Ledger, Observations]:
    """Return a job of one master and the rest workers, all of which run."""
    job = ResolvedJob(
        name="bench",
        roles=(
            ResolvedRole(name="master", replicas=1, chief=True),
            ResolvedRole(name="worker", replicas=instances - 1, rank_offset=1),
        ),
    )
    ledger = new_ledger(job, now=NOW, activate_all=True)
    decision = decide(job, ledger, (), Observations(), NOW)
    seen = Observations(
        instances=tuple(
            Observation(
                key=create.key,
                uid=f"{create.role}-{create.index}",
                attempt_id=create.attempt_id,
                state="running",
                address_live=True,
                port_open=True,
                ready=True,
                started_at=NOW,
                state_since=NOW,
            )
            for create in decision.actions
            if isinstance(create, Create)
        )
    )
    ledger = decide(job, decision.new_ledger, (), seen, NOW + 1).new_ledger
    return job, ledger, seen


def milliseconds(job: ResolvedJob, ledger: Ledger, seen: Observations, rounds: int) -> float:
    """Return the median time of one decision."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        decide(job, ledger, (), seen, NOW + 2)
        times.append((time.perf_counter() - start) * 1e3)
    return median(times)


def main() -> None:
    heading("Decision time")
    steady: dict[int, float] = {}
    for count in (10, 1_000, 16_384):
        job, ledger, seen = running(count)
        steady[count] = milliseconds(job, ledger, seen, 200 if count < 10_000 else 20)
        target = "<= 2 ms" if count == 1_000 else ""
        figure(f"decide, {count} instances, nothing changed", steady[count], "ms", target=target)
        broken = replace(seen.instances[-1], state="failed", exit_code=1, address_live=False)
        failing = Observations(instances=(*seen.instances[:-1], broken))
        figure(
            f"decide, {count} instances, one failed",
            milliseconds(job, ledger, failing, 50 if count < 10_000 else 10),
            "ms",
        )
    growth = (steady[16_384] / steady[1_000]) / (16_384 / 1_000)
    figure("growth from 1,000 to 16,384, relative to linear", growth, "x", target="<= 1")
