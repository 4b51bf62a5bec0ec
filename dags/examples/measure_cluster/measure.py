"""Measure what a cluster's devices and links really reach, for the planner to plan with.

Start one rank per device on at least one node, better on two. Rank 0 writes `cluster-measured.json`
into `TRAINING_OUTPUT_DIR`; `airflow_training.planning.sources.measured` makes a cluster view of it.
Needs PyTorch only, and reads the variables that torchrun and Kubeflow set.
"""

import argparse
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--matrix", type=int, default=0, help="rows; 0: 8192 on a GPU, else 1024")
    parser.add_argument("--megabytes", type=int, default=0, help="of memory and messages")
    args = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    local = int(os.environ.get("LOCAL_RANK", dist.get_rank() % max(1, torch.cuda.device_count())))
    if on_gpu:
        torch.cuda.set_device(local)
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    rows = args.matrix or (8192 if on_gpu else 1024)
    held = (args.megabytes or 256) * 2**20  # more than any cache
    sent = (args.megabytes or (256 if on_gpu else 32)) * 2**20

    found = {
        **describe(device),
        "matmul_flops": {
            name: matmul(device, dtype, rows, args.seconds)
            for name, dtype in PRECISIONS.items()
            if on_gpu or name == "fp32"
        },
        "memory_bandwidth": copy(device, held, args.seconds),
    }
    everyone: list[dict] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, found)
    links = [
        {"kind": kind, "pairs": len(pairs), **exchange(device, pairs, sent, args.seconds)}
        for kind, pairs in pairings([each["host"] for each in everyone])
    ]
    if dist.get_rank() == 0:
        report = {"ranks": everyone, "links": links}
        out = Path(os.environ.get("TRAINING_OUTPUT_DIR", ".")) / "cluster-measured.json"
        out.write_text(json.dumps(report, indent=2) + "\n")
        print(json.dumps(report), flush=True)
        tell(links)
    dist.barrier()
    dist.destroy_process_group()


def tell(links: list[dict]) -> None:
    """Report the links as metrics, which later plans for the nodes of this cluster count with."""
    metrics = {
        f"{link['kind']}_{name}": value
        for link in links
        for name, value in link.items()
        if name != "kind"
    }
    if path := os.environ.get("TRAINING_PROGRESS_FILE"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"time": time.time(), "metrics": metrics}) + "\n")


def describe(device: torch.device) -> dict:
    """Return what the device is and what its host has."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    host = {
        "host": os.environ.get("NODE_NAME") or socket.gethostname(),
        "host_cpus": os.cpu_count() or 1,
        "host_memory_bytes": pages,
    }
    if device.type == "cpu":
        threads = torch.get_num_threads()
        share = pages * threads // (os.cpu_count() or 1)
        return {**host, "device": f"CPU-{threads}", "memory_bytes": share, "units": threads}
    seen = torch.cuda.get_device_properties(device)
    return {
        **host,
        "device": seen.name,
        "memory_bytes": seen.total_memory,
        "units": seen.multi_processor_count,
    }


def matmul(device: torch.device, dtype: torch.dtype, rows: int, seconds: float) -> float:
    """Return operations per second of the fastest multiplication of square matrices."""
    a = torch.randn(rows, rows, device=device).to(dtype)
    b = torch.randn(rows, rows, device=device).to(dtype)
    return 2.0 * rows**3 / best(lambda: a @ b, device, seconds)


def copy(device: torch.device, size: int, seconds: float) -> float:
    """Return bytes read and written per second."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2.0 * size / best(lambda: target.copy_(source), device, seconds)


def best(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Return the shortest time of one piece of work, tried for so long."""
    shortest, end = float("inf"), time.perf_counter() + seconds
    work()
    while True:
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        shortest = min(shortest, time.perf_counter() - start)
        if time.perf_counter() > end:
            return shortest


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def pairings(hosts: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return which ranks talk at once: two of one node, and all of a node with those of another."""
    nodes: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        nodes.setdefault(host, []).append(rank)
    found = []
    inside = next((ranks for ranks in nodes.values() if len(ranks) > 1), None)
    if inside is not None:
        found.append(("intra_node", [(inside[0], inside[1])]))
    if len(nodes) > 1:
        one, other = list(nodes.values())[:2]
        found.append(("inter_node", list(zip(one, other, strict=False))))
    return found


def exchange(
    device: torch.device, pairs: list[tuple[int, int]], size: int, seconds: float
) -> dict[str, float]:
    """Return the latency of a message of 8 bytes and the bytes per second of one pair, alone and in collectives."""
    small, large = (shuttle(device, pairs, each, seconds) for each in (8, size))
    return {
        "latency_seconds": small,
        "bandwidth": size / large,
        **collectives(device, pairs, size, seconds),
    }


def collectives(
    device: torch.device, pairs: list[tuple[int, int]], size: int, seconds: float
) -> dict[str, float]:
    """Return the bytes per second that a rank sends while all pairs sum a message each, gather it or scatter its sum."""
    rank = dist.get_rank()
    groups = {pair: dist.new_group(list(pair)) for pair in pairs}  # by all ranks, in one order
    group = next((made for pair, made in groups.items() if rank in pair), None)
    whole = torch.zeros(size // 8 * 2, device=device)
    half = whole[: size // 8].clone()
    # as torch 2.13 calls them, and as it did before
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    works = {  # of two ranks each sends all in an all-reduce, and half in the others
        "allreduce_bandwidth": (size, lambda: dist.all_reduce(whole, group=group)),
        "allgather_bandwidth": (size / 2, lambda: gather(whole, half, group=group)),
        "reduce_scatter_bandwidth": (size / 2, lambda: scatter(half, whole, group=group)),
    }
    return {
        name: sent / timed(once if group is not None else lambda: None, device, seconds)
        for name, (sent, once) in works.items()
    }


def shuttle(device: torch.device, pairs: list[tuple[int, int]], size: int, seconds: float) -> float:
    """Return the time of one way of a message that goes back and forth; the slowest pair counts."""
    message = torch.zeros(size, dtype=torch.uint8, device=device)
    rank = dist.get_rank()
    peers = dict(pairs) | {b: a for a, b in pairs}
    first = {a for a, _ in pairs}

    def once() -> None:
        steps = (dist.send, dist.recv) if rank in first else (dist.recv, dist.send)
        for step in steps:
            step(message, peers[rank])

    return timed(once if rank in peers else lambda: None, device, seconds) / 2


def timed(once: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Return the time that the slowest rank takes for something they do together, tried for so long."""

    def rounds(number: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(number):
            once()
        wait(device)
        taken = torch.tensor([time.perf_counter() - start], device=device)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        return float(taken) / number

    # all ranks must agree on how many rounds there are: they all see the same slowest time
    first_try = rounds(3)
    return rounds(max(3, min(1000, int(seconds / max(first_try, 1e-6)))))


if __name__ == "__main__":
    main()
