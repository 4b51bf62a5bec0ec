"""Logs of any size for the benchmarks of the engine: lines of real programs with numbers that move.

Every `every`-th line is a metric line, Megatron-LM and Hugging Face in turn; the rest is what such runs also print.
The same arguments give the same bytes. `python -m benchmarks.logs_generate FILE GIGABYTES EVERY`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

LINES_PER_CHUNK = 60_000

ORDINARY = (
    "[2026-01-07 {clock},{ms:03d}] [INFO] [logging.py:128:log_dist] [Rank 0] reading shard {a} of {b} took {f:.2f} s",
    "INFO:root:worker {a} read {b} samples from /data/shards/part-{c:05d}.tar in {f:.3f} s",
    "NCCL INFO Channel {s:02d}/16 : {r}[{s}] -> {q}[{s}] via P2P/CUMEM",
    "node-{r}:{c}:{b} [{s}] NCCL INFO comm 0x{h:012x} rank {r} nranks 64 cudaDev {s} busId {c:x} - Init COMPLETE",
    "2026-01-07 {clock},{ms:03d} - data.prefetch - DEBUG - queue holds {s} batches, oldest {f:.1f} ms",
    "[rank{r}]:[I107 {clock}.{ms:03d} reducer.cpp:{c}] Bucket {s} holds {b} bytes",
    "  warnings.warn('the option use_reentrant is not given; it will be needed from version 2.{s}')",
    "Writing checkpoint shard {s} of 16 to /checkpoints/run-{c}/global_state{b}/mp_rank_{r:02d}_model_states.pt",
    "Tokenizer cache: {a} hits, {b} misses, {c} entries; the longest sample has {q} tokens",
    "memory (MB) of rank {r} | allocated: {f:.1f} | max allocated: {f:.1f} | reserved: {c}.0 | max reserved: {c}.0",
)


def megatron(step: int, total: int, dice: random.Random) -> str:
    """Return a training line of Megatron-LM."""
    return (
        f" [2026-01-07 {clock(step)}] iteration {step:8d}/{total:8d} | consumed samples: {step * 512:12d} |"
        f" elapsed time per iteration (ms): {1800 + 90 * dice.random():.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {390 + 20 * dice.random():.1f} |"
        f" learning rate: {3e-4 * dice.random():.6E} | global batch size: {512:5d} |"
        f" lm loss: {2 + dice.random():.6E} | loss scale: 1.0 | grad norm: {dice.random():.3f} |"
        f" number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |"
    )


def hugging_face(step: int, total: int, dice: random.Random) -> str:
    """Return a line of Hugging Face's Trainer."""
    return (
        f"{{'loss': {2 + dice.random():.4f}, 'grad_norm': {dice.random() * 3!r},"
        f" 'learning_rate': {5e-5 * dice.random()!r}, 'epoch': {3 * step / total:.2f}}}"
    )


def clock(second: int) -> str:
    """Return a time of day."""
    return f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def chunks(size: int, *, every: int, seed: int = 7) -> Iterator[bytes]:
    """Yield at least `size` bytes of log in pieces of some megabytes, each with its own numbers."""
    dice = random.Random(seed)  # a benchmark, not a secret
    written = 0
    step = 0
    total = 10_000_000
    while written < size:
        lines = []
        for number in range(LINES_PER_CHUNK):
            if number % every == 0:
                step += 1
                line = megatron if step % 2 else hugging_face
                lines.append(line(step, total, dice))
                continue
            text = ORDINARY[dice.randrange(len(ORDINARY))]
            lines.append(
                text.format(
                    clock=clock(step),
                    ms=dice.randrange(1000),
                    a=dice.randrange(900),
                    b=dice.randrange(10**6),
                    c=dice.randrange(10**5),
                    f=dice.random() * 900,
                    h=dice.randrange(16**12),
                    q=dice.randrange(64),
                    r=dice.randrange(64),
                    s=dice.randrange(16),
                )
            )
        chunk = ("\n".join(lines) + "\n").encode()
        written += len(chunk)
        yield chunk


def write(path: Path, size: int, *, every: int) -> None:
    """Write a log of about `size` bytes: some 64 MiB of generated lines, then these over and over.

    Making numbers takes longer than reading them; nothing in the engine remembers lines, so that repeats do not help.
    """
    fresh = list(chunks(min(size, 64 << 20), every=every))
    with path.open("wb") as out:
        written = 0
        while written < size:
            for chunk in fresh:
                out.write(chunk)
                written += len(chunk)


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(float(sys.argv[2]) * 1e9), every=int(sys.argv[3]))
