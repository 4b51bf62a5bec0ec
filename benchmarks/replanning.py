"""A job on 1,024 devices loses a node: how long until it is known what to do, and is it what a search says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from airflow_training.planning.answers.replan import RestartCost, RunningJob, replan
from airflow_training.planning.search import search
from airflow_training.planning.sources.clusters import parse_cluster
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.transformer import computation
from benchmarks.report import figure, heading

GPT3 = TransformerModel(hidden=12288, layers=96, heads=96, seq=2048, vocab=51200)
NODES = {"count": 128, "device": "A100-SXM4-80GB", "devices_per_node": 8, "nic_gbit_s": 200}
MOVING = RestartCost(restart_seconds=300.0, read_bytes_per_second=2e9)

_T = TypeVar("_T")


def timed(run: Callable[[], _T]) -> tuple[_T, float]:
    started = time.perf_counter()
    return run(), time.perf_counter() - started


def workload() -> Workload:
    """Return a workload of its own, of which nothing is remembered."""
    return Workload(view=computation(GPT3), global_batch=1536, runtime="megatron-lm")


def main() -> None:
    heading("re-plan GPT-3 175B on 1,024 A100 after losing a node")
    whole = parse_cluster({"name": "ours", "nodes": [{**NODES, "nics_per_node": 8}]})
    left = replace(whole, groups=(replace(whole.groups[0], count=127),))
    job = workload()
    before = search(job, whole, top_k=1).plans[0].strategy
    running = RunningJob(strategy=before, steps_left=10_000, steps_since_checkpoint=50, broken=True)
    decision, seconds = timed(lambda: replan(job, running, left, MOVING))
    figure("re-plan", seconds, "s", target="<= 0.3 s")
    cold, alone = timed(lambda: search(workload(), left, top_k=1))
    figure("the same search, cold", alone, "s")
    figure("same plan as cold", float(cold.plans[0] == decision.plan), "", target="1")
    spare, seconds = timed(lambda: replan(job, running, whole, MOVING))
    figure(f"{spare.action} by a spare", seconds, "s")


if __name__ == "__main__":
    main()
