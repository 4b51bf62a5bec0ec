"""What `distribute` costs on one GPU: its steps against the same training written with torch alone.

    python -m benchmarks.gpu_steps --out FILE

Both take turns, step by step, in one process; the ratio is that of medians. The model is GPT-2's smallest.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from airflow_training.execution import ExecutionPlan, distribute
from benchmarks.language_model import LanguageModel, ModelSize, word_loss
from benchmarks.report import median

_SIZE = ModelSize(vocabulary=50257, context=1024, width=768, heads=12, layers=12)
_WARM = 5
_KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16}

Step = Callable[[], torch.Tensor]


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    """The same one for both."""
    return torch.optim.AdamW(parameters, lr=1e-4)


def make_model(layers: int, device: str, *, recompute: bool = False) -> LanguageModel:
    """The same weights each time."""
    torch.manual_seed(0)
    return LanguageModel(replace(_SIZE, layers=layers), recompute=recompute).to(device)


def by_plan(layers: int, batch: Any, plan: ExecutionPlan) -> Step:
    """A step as the plan says."""
    model = make_model(layers, batch[0].device.type)
    training = distribute(model, loss=word_loss, optimizer=make_optimizer, example=batch, plan=plan)
    return lambda: training.step(batch)


def by_hand(layers: int, batch: Any, plan: ExecutionPlan) -> Step:
    """A step with nothing of this project."""
    words, target = batch
    device = words.device.type
    model = make_model(layers, device, recompute=plan.recompute == "full")
    optimizer, kind = make_optimizer(model.parameters()), _KINDS.get(plan.precision)
    scaler = torch.amp.GradScaler(device, enabled=plan.precision == "fp16")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for start in range(0, plan.global_batch, plan.micro_batch):
            rows = slice(start, start + plan.micro_batch)
            with torch.autocast(device, dtype=kind, enabled=kind is not None):
                output = model(words[rows])
            loss = word_loss(output.float(), target[rows]) / plan.micro_batches
            scaler.scale(loss).backward()
            total += loss.detach()
        scaler.step(optimizer)
        scaler.update()
        return total

    return step


def measure(
    layers: int, rows: int, rounds: int, device: str, plan: ExecutionPlan
) -> dict[str, Any]:
    """Milliseconds of both, median of `rounds` steps each, and how far their losses are apart."""
    batch = tuple(part.to(device) for part in _SIZE.words(rows))
    steps = {"ours": by_plan(layers, batch, plan), "by hand": by_hand(layers, batch, plan)}
    seconds: dict[str, list[float]] = {each: [] for each in steps}
    losses: dict[str, float] = {}
    for turn in range(_WARM + rounds):
        for each in list(steps) if turn % 2 else list(steps)[::-1]:
            if device == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            losses[each] = float(steps[each]())
            if device == "cuda":
                torch.cuda.synchronize()
            if turn >= _WARM:
                seconds[each].append(time.perf_counter() - began)
    ours, theirs = (1000 * median(seconds[each]) for each in ("ours", "by hand"))
    return {
        "precision": plan.precision,
        "recompute": plan.recompute,
        "micro_batches": plan.micro_batches,
        "ours_ms": ours,
        "by_hand_ms": theirs,
        "ratio": ours / theirs,
        "losses_apart": abs(losses["ours"] - losses["by hand"]) / losses["by hand"],
    }


def main() -> None:
    """Print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=_SIZE.layers)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    cases: list[dict[str, Any]] = [
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "fp32"},
        {"precision": "bf16", "recompute": "full"},
        {"precision": "bf16", "micro_batch": asked.rows // 2},
        {"precision": "fp16", "micro_batch": asked.rows // 2},
    ]
    if asked.device == "cuda":
        cases.append({"precision": "tf32"})
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl" if asked.device == "cuda" else "gloo",
            init_method=f"file://{folder}/meeting",
            rank=0,
            world_size=1,
        )
        for case in cases:
            plan = ExecutionPlan(**{"global_batch": asked.rows, "micro_batch": asked.rows, **case})
            # each sets whether products may be rounded to tf32, which by hand is left as found
            row = measure(asked.layers, asked.rows, asked.rounds, asked.device, plan)
            rows.append(row)
            print(
                " ".join(
                    f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}"
                    for key, value in row.items()
                ),
                flush=True,
            )
            if asked.out:
                asked.out.write_text(json.dumps(rows, indent=1))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
