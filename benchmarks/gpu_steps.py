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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from airflow_training.execution import ExecutionPlan, distribute
from benchmarks.report import median

_WORDS, _CONTEXT, _WIDTH, _HEADS = 50257, 1024, 768, 12
_WARM = 5
_KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16}

Step = Callable[[], torch.Tensor]


class GptLayer(nn.Module):
    """A layer of GPT-2 without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(_WIDTH)
        self.attend = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.project = nn.Linear(_WIDTH, _WIDTH)
        self.between = nn.LayerNorm(_WIDTH)
        self.up = nn.Linear(_WIDTH, 4 * _WIDTH)
        self.down = nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (_HEADS, -1)).transpose(1, 2)
            for part in self.attend(self.before(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        deeper: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.between(x))))
        return deeper


class Gpt(nn.Module):
    """GPT-2 with as many layers as are asked for."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, _WIDTH)
        self.places = nn.Embedding(_CONTEXT, _WIDTH)
        self.layers = nn.ModuleList(GptLayer() for _ in range(layers))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _WORDS, bias=False)
        self.recompute = False

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.places(places)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean over words."""
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    """The same one for both."""
    return torch.optim.AdamW(parameters, lr=1e-4)


def make_model(layers: int, device: str) -> Gpt:
    """The same weights each time."""
    torch.manual_seed(0)
    return Gpt(layers).to(device)


def by_plan(layers: int, batch: Any, plan: ExecutionPlan) -> Step:
    """A step as the plan says."""
    model = make_model(layers, batch[0].device.type)
    training = distribute(model, loss=loss_of, optimizer=make_optimizer, example=batch, plan=plan)
    return lambda: training.step(batch)


def by_hand(layers: int, batch: Any, plan: ExecutionPlan) -> Step:
    """A step with nothing of this project."""
    words, target = batch
    device = words.device.type
    model = make_model(layers, device)
    model.recompute = plan.recompute == "full"
    optimizer, kind = make_optimizer(model.parameters()), _KINDS.get(plan.precision)
    scaler = torch.amp.GradScaler(device, enabled=plan.precision == "fp16")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for start in range(0, plan.global_batch, plan.micro_batch):
            rows = slice(start, start + plan.micro_batch)
            with torch.autocast(device, dtype=kind, enabled=kind is not None):
                output = model(words[rows])
            loss = loss_of(output.float(), target[rows]) / plan.micro_batches
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
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(0, _WORDS, (rows, _CONTEXT + 1), generator=draw).to(device)
    batch = words[:, :-1].contiguous(), words[:, 1:].contiguous()
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
    parser.add_argument("--layers", type=int, default=12)
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
