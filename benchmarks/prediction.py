"""How well the planner orders splits that this machine carries out, by what it measured of the machine.

    python -m benchmarks prediction

Two processes of one thread each: `measure_cluster` measures them and their link, the planner prices twelve splits
of a small language model there, and `distribute` trains by each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from airflow_training.execution import ExecutionPlan, distribute
from airflow_training.planning.cost.estimating import estimate
from airflow_training.planning.sources.measured import cluster_of_measurement
from airflow_training.planning.sources.torch import trace
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import ParallelConfig, Strategy
from benchmarks.language_model import LanguageModel, ModelSize, word_loss
from benchmarks.report import figure, heading, median, rank_correlation

_RANKS, _SAMPLES, _WARM, _STEPS = 2, 16, 2, 7
_SIZE = ModelSize(vocabulary=2048, context=128, width=256, heads=4, layers=6)
_MEASURE = Path(__file__).parents[1] / "dags/examples/measure_cluster/measure.py"
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "replicas, one pass": {"dp": 2, "micro_batch": 8},
    "replicas, 4 passes": {"dp": 2, "micro_batch": 2},
    "replicas, one pass, recomputed": {"dp": 2, "micro_batch": 8, "recompute": "full"},
    "ZeRO 1, 2 passes": {"dp": 2, "micro_batch": 4, "zero": 1},
    "ZeRO 3, one pass": {"dp": 2, "micro_batch": 8, "zero": 3},
    "ZeRO 3, 4 passes": {"dp": 2, "micro_batch": 2, "zero": 3},
    "tensor parallel, one pass": {"tp": 2, "micro_batch": 16},
    "tensor parallel, 4 passes": {"tp": 2, "micro_batch": 4},
    "tensor and sequence parallel, 4 passes": {
        "tp": 2,
        "micro_batch": 4,
        "sequence_parallel": True,
    },
    "pipeline, 2 micro-batches": {"pp": 2, "micro_batch": 8},
    "pipeline, 8 micro-batches": {"pp": 2, "micro_batch": 2},
    "pipeline, 8 micro-batches, recomputed": {"pp": 2, "micro_batch": 2, "recompute": "full"},
}


class _WithLoss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = _model()

    def forward(self, words: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return word_loss(self.model(words), target)


def _model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(_SIZE)


def _optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def measure_machine(folder: Path) -> ClusterView:
    """Measure as many ranks as are trained on, one thread each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(_RANKS), str(_MEASURE), "--seconds", "2"]
    added = {"OMP_NUM_THREADS": "1", "TRAINING_OUTPUT_DIR": str(folder)}
    subprocess.run(command, env={**os.environ, **added}, check=True, capture_output=True)
    return cluster_of_measurement(json.loads((folder / "cluster-measured.json").read_text()))


def estimate_splits(cluster: ClusterView) -> list[float]:
    """Seconds that the planner expects of a step, split by split."""
    view = trace(_WithLoss(), _SIZE.words(_SAMPLES))
    workload = Workload(view=view, global_batch=_SAMPLES, precision="fp32", runtime="pytorch")
    strategies = [Strategy(**asdict(_config(split)), precision="fp32") for split in SPLITS.values()]
    return [estimate(workload, cluster, strategy).step_seconds for strategy in strategies]


def _config(split: Mapping[str, Any]) -> ParallelConfig:
    return ParallelConfig(global_batch=_SAMPLES, **split)


def _train(rank: int, meeting: str, answers: Any) -> None:
    """Train by each split, in turns, so that all see the same machine; put seconds of each step."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(_RANKS), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=_RANKS)
    batch = _SIZE.words(_SAMPLES)
    trainings = [
        distribute(
            _model(),
            loss=word_loss,
            optimizer=_optimizer,
            example=batch,
            plan=ExecutionPlan(**asdict(_config(split)), precision="fp32"),
        )
        for split in SPLITS.values()
    ]
    seconds: list[list[float]] = [[] for _ in trainings]
    for turn in range(_WARM + _STEPS):
        for training, taken in zip(trainings, seconds, strict=True):
            dist.barrier()
            began = time.perf_counter()
            training.step(batch)
            dist.barrier()
            if turn >= _WARM:
                taken.append(time.perf_counter() - began)
    if rank == 0:
        answers.put([median(taken) for taken in seconds])
    dist.destroy_process_group()


def measure_splits(folder: Path) -> Sequence[float]:
    """Seconds that a step takes, split by split: the medians."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    meeting = f"file://{folder}/meeting"
    ranks = [
        context.Process(target=_train, args=(rank, meeting, answers)) for rank in range(_RANKS)
    ]
    for each in ranks:
        each.start()
    found: Sequence[float] = answers.get(timeout=900)
    for each in ranks:
        each.join()
    return found


def main() -> None:
    """Print what was expected and measured of each split, and how alike their orders are."""
    heading("Order of splits on this machine")
    with tempfile.TemporaryDirectory() as folder:
        expected = estimate_splits(measure_machine(Path(folder)))
        measured = measure_splits(Path(folder))
        afterwards = estimate_splits(measure_machine(Path(folder)))
    for name, before, seconds in zip(SPLITS, expected, measured, strict=True):
        figure(f"step, {name}", 1000 * seconds, "ms", note=f"expected {1000 * before:.0f} ms")
    figure("rank correlation", rank_correlation(expected, measured), "", target=">= 0.8")
    shares = sorted(taken / before for before, taken in zip(expected, measured, strict=True))
    figure("measured step, of the expected: least", shares[0], "x")
    figure("measured step, of the expected: most", shares[-1], "x")
    # other tenants of a machine take part of it, now more, now less
    figure(
        "the same machine after the training: expected steps", sum(afterwards) / sum(expected), "x"
    )
    figure("rank correlation, by that", rank_correlation(afterwards, measured), "")
