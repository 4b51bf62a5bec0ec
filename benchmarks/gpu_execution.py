"""What `distribute` does on a GPU: splits against one device, precisions, overflow, memory, time.

    python -m benchmarks.gpu_execution --ranks 1 2 4 --out FILE

One card is enough: its ranks tell NCCL that they are on several machines, and talk over sockets. Times of several
ranks on one card say nothing of several cards.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, distribute
from benchmarks.language_model import LanguageModel, ModelSize, word_loss

STEPS, BATCH = 5, 16
SIZE = ModelSize(vocabulary=96, context=32, width=64, heads=4, layers=4)
LIMITS = {"fp64": 1e-10, "fp32": 1e-5, "tf32": 2e-3, "bf16": 3e-2, "fp16": 3e-2}
"""Difference relative to each tensor's norm: that of rounding, for models of this depth."""


def batch_of(step: int, device: str) -> tuple[torch.Tensor, ...]:
    """The batch of a step, the same on every rank."""
    return tuple(part.to(device) for part in SIZE.words(BATCH, seed=100 + step))


def make_optimizer(precision: str) -> Callable[..., torch.optim.Optimizer]:
    """AdamW in fp64; elsewhere SGD, which makes no whole steps of rounding."""
    if precision == "fp64":
        return lambda parameters: torch.optim.AdamW(parameters, lr=0.01)
    return lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def by_hand(plan: ExecutionPlan, device: str) -> tuple[torch.Tensor, dict[str, Any]]:
    """Train with nothing of this project."""
    torch.manual_seed(0)
    model = LanguageModel(SIZE).to(
        device, torch.float64 if plan.precision == "fp64" else torch.float32
    )
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = plan.precision == "tf32"
    optimizer = make_optimizer(plan.precision)(model.parameters())
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(plan.precision)
    scaler = torch.amp.GradScaler(device, enabled=plan.precision == "fp16")
    size, losses = plan.micro_batch * plan.dp, []
    for step in range(STEPS):
        words, target = batch_of(step, device)
        optimizer.zero_grad()
        total = torch.zeros((), device=device, dtype=next(model.parameters()).dtype)
        for start in range(0, BATCH, size):
            rows = slice(start, start + size)
            with torch.autocast(device, dtype=kind, enabled=kind is not None):
                output = model(words[rows])
            loss = word_loss(output.float() if kind is not None else output, target[rows])
            scaler.scale(loss / (BATCH // size)).backward()
            total += loss.detach() / (BATCH // size)
        scaler.step(optimizer)
        scaler.update()
        losses.append(total)
    return torch.stack(losses), {name: each.detach() for name, each in model.named_parameters()}


def by_plan(plan: ExecutionPlan, device: str) -> tuple[torch.Tensor, dict[str, Any]]:
    """Train as the plan says."""
    torch.manual_seed(0)
    training = distribute(
        LanguageModel(SIZE).to(device),
        loss=word_loss,
        optimizer=make_optimizer(plan.precision),
        example=batch_of(0, device),
        plan=plan,
    )
    losses = [training.step(batch_of(step, device)) for step in range(STEPS)]
    return torch.stack(losses), training.gather()


def distance(one: tuple[Any, dict[str, Any]], other: tuple[Any, dict[str, Any]]) -> float:
    """The largest difference of losses and parameters, relative to the tensor's norm."""
    pairs = [(one[0], other[0]), *((one[1][key], other[1][key]) for key in other[1])]
    return max(
        float((a.cpu().double() - b.cpu().double()).norm() / max(float(b.double().norm()), 1e-12))
        for a, b in pairs
    )


def cases(world: int, device: str, axis: str, only: Sequence[str]) -> Iterator[ExecutionPlan]:
    """The splits that are tried: those along an axis, in some precisions."""
    splits: dict[int, list[dict[str, Any]]] = {
        1: [{}, {"recompute": "full"}],
        2: [
            {"dp": 2},
            {"dp": 2, "zero": 1},
            {"dp": 2, "zero": 3},
            {"tp": 2},
            {"tp": 2, "sequence_parallel": True},
            {"pp": 2},
            {"pp": 2, "schedule": "gpipe"},
            {"pp": 2, "virtual_stages": 2},
        ],
        4: [
            {"dp": 4, "zero": 2},
            {"tp": 2, "dp": 2},
            {"pp": 2, "dp": 2, "zero": 1},
            {"pp": 2, "tp": 2},
            {"pp": 4},
        ],
    }
    precisions = ["fp64", "fp32", "bf16", "fp16"] + (["tf32"] if device == "cuda" else [])
    for split in splits[world]:
        for precision in precisions:
            if axis not in ("", *split) or (only and precision not in only):
                continue
            yield ExecutionPlan(
                **{"global_batch": BATCH, "micro_batch": 2, "precision": precision, **split}
            )


def run_rank(
    rank: int, world: int, device: str, meeting: str, answers: Any, axis: str, only: Sequence[str]
) -> None:
    """Try all splits of `world` ranks on this rank."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0"}
    os.environ |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    backend = "nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=world)
    for plan in cases(world, device, axis, only):
        began = time.monotonic()
        split = {
            key: getattr(plan, key)
            for key in (
                "dp",
                "zero",
                "tp",
                "pp",
                "sequence_parallel",
                "virtual_stages",
                "schedule",
                "recompute",
            )
        }
        row: dict[str, Any] = {"ranks": world, "precision": plan.precision, "split": split}
        try:
            row["distance"] = distance(by_plan(plan, device), by_hand(plan, device))
            row["equal"] = row["distance"] <= LIMITS[plan.precision]
        except InputError as error:
            row["refused"] = str(error)
        except Exception:  # noqa: BLE001  # whatever torch raises is the answer
            row["failed"] = traceback.format_exc()[-1500:]
            found.append(row)
            answers.put((rank, found))
            os._exit(1)  # the others wait in a collective
        row["seconds"] = round(time.monotonic() - began, 2)
        found.append(row)
        answers.put((rank, found))
    dist.destroy_process_group()


def try_world(
    world: int, device: str, seconds: float, axis: str, only: Sequence[str]
) -> list[dict[str, Any]]:
    """Start the ranks; return what rank 0 found, or what the first that failed did."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    newest: dict[int, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        ranks = [
            context.Process(
                target=run_rank, args=(rank, world, device, meeting, answers, axis, only)
            )
            for rank in range(world)
        ]
        for each in ranks:
            each.start()
        until = time.monotonic() + seconds
        while any(each.is_alive() for each in ranks) and time.monotonic() < until:
            if any(each.exitcode for each in ranks):
                break
            try:
                rank, found = answers.get(timeout=0.2)
                newest[rank] = found
            except queue.Empty:
                continue
        for each in ranks:
            each.kill()
            each.join()
        while not answers.empty():
            rank, found = answers.get()
            newest[rank] = found
    failed = [found for found in newest.values() if found and "failed" in found[-1]]
    return failed[0] if failed else newest.get(0, [])


def main() -> None:
    """Print a table, and write all of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], choices=(1, 2, 4))
    parser.add_argument("--axis", default="", help="splits along this one only, as pp")
    parser.add_argument("--precisions", nargs="+", default=[], help="all, unless said")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for world in asked.ranks:
        found = try_world(world, asked.device, asked.seconds, asked.axis, asked.precisions)
        rows += found
        for row in found:
            print(_line(row), flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(rows, indent=1))
    equal = sum(bool(row.get("equal")) for row in rows)
    print(f"{equal} of {len(rows)} equal on {asked.device}")


def _line(row: dict[str, Any]) -> str:
    split = " ".join(
        f"{key}={value}"
        for key, value in row["split"].items()
        if value not in (1, False, "none") and not (key == "zero" and value == 0)
    )
    said = row.get("refused") or row.get("failed") or f"{row['distance']:.1e}"
    mark = "equal" if row.get("equal") else ""
    return f"{row['ranks']} ranks {row['precision']:5} {split:40} {said[-400:]} {mark}"


if __name__ == "__main__":
    main()
