"""Checkpoints: what digests cost, whether the main thread feels a save, and what damage, kills and races do.

A trial that fails ends the benchmark with what it has found.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from airflow_training.checkpoints.digests import CHUNK, digests_of_chunks
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.keys import SaveId, manifest_key
from benchmarks.report import figure, heading
from tests.checkpoints import kills
from tests.checkpoints.damage import MUTATORS, Subject, assert_found, flip_a_bit, flip_random_bits
from tests.checkpoints.interleaving import race

_STATE_BYTES = 512 << 20
_TICK_SECONDS = 0.001


def main() -> None:
    """Print all tables."""
    logging.disable(logging.WARNING)  # every damage is logged, and all of it is on purpose
    _digests()
    _pauses()
    _damage()
    _kills()
    _races()


def _digests() -> None:
    heading("Digests of a checkpoint, per core, by processor time")
    content = memoryview(os.urandom(256 << 20))
    chunks = [content[start : start + CHUNK] for start in range(0, len(content), CHUNK)]

    def rate(work: Callable[[], object]) -> float:
        best = min(_processor_seconds(work) for _ in range(5))
        return len(content) / best / 1e9

    raw = rate(lambda: [xxhash.xxh3_128_hexdigest(chunk) for chunk in chunks])
    ours = rate(lambda: digests_of_chunks([content], name="xxh3"))
    figure("xxh3_128 in chunks of 8 MiB", ours, "GB/s", target=">= 5")
    figure("share of what xxhash alone gives", 100 * ours / raw, "%")
    slow = rate(lambda: digests_of_chunks([content], name="crc32+sha256"))
    figure("without xxhash: crc32", slow, "GB/s")
    figure("with a key: sha256", rate(lambda: digests_of_chunks([content], name="sha256")), "GB/s")


def _processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _pauses() -> None:
    heading("Longest pause of the main thread, which wakes every millisecond")
    # two states of random bytes: nothing is recognised, everything is digested and written
    states = [{f"w{i}": os.urandom(64 << 20) for i in range(_STATE_BYTES >> 26)} for _ in range(3)]
    idle = [_longest_pause(lambda: time.sleep(1)) for _ in range(3)]
    figure("nothing else to do", 1000 * max(idle), "ms")
    with tempfile.TemporaryDirectory() as folder:
        group = Group.open(folder)

        def save(step: int) -> None:
            group.write(step, states[step - 1], document={})
            assert group.commit(step, deadline=60)

        pauses, seconds = [], []
        for step in (1, 2, 3):
            start = time.perf_counter()
            pauses.append(_longest_pause(lambda: save(step)))  # noqa: B023  # called before the next turn
            seconds.append(time.perf_counter() - start)
    note = f"{_STATE_BYTES >> 20} MiB in {min(seconds):.2f} s at best"
    figure("while another thread saves", 1000 * max(pauses), "ms", target="<= 50", note=note)


def _longest_pause(work: Callable[[], object]) -> float:
    """Return for how long the main thread did not get to run, while another thread works."""
    thread = threading.Thread(target=work)
    longest, before = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        time.sleep(_TICK_SECONDS)
        now = time.perf_counter()
        longest, before = max(longest, now - before - _TICK_SECONDS), now
    thread.join()
    return longest


def _damage() -> None:
    heading("Damage: every trial is found, and the newest step that is whole is restored")
    subject = Subject.make()
    flip_random_bits(subject, 10_000, random.Random(0))
    figure(
        "bits flipped in shards, markers, manifests, fences", 100, "%", target="all", note="10,000"
    )
    key = manifest_key(SaveId(40, 2))
    size = len(subject.objects[key])
    for byte in range(size):
        flip_a_bit(subject, key, byte * 8 + byte % 8)
    figure("a bit in every byte of a manifest", 100, "%", target="all", note=f"{size:,} bytes")
    rng = random.Random(0)
    for mutate in MUTATORS.values():
        for _ in range(200):
            objects = subject.copy()
            assert_found(subject, objects, set(mutate(subject, objects, rng)))
    count = 200 * len(MUTATORS)
    figure(f"{len(MUTATORS)} mutators, 200 each", 100, "%", target="all", note=f"{count:,}")


def _kills() -> None:
    heading("Kills of real processes, half at random, half at a step of the protocol")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for world in (1, 2):
            _show_kills(
                f"local files, world {world}",
                kills.run(f"{folder}/{world}", world=world, kills=500, seed=world),
            )
    with _s3() as root:
        _show_kills("S3 emulator, world 1", kills.run(root, world=1, kills=50))


def _show_kills(where: str, result: kills.Result) -> None:
    note = f"{result.at_protocol_steps} at a step of the protocol, {result.restores} restores"
    figure(f"{where}: kills", result.kills, "", note=note)
    figure(f"{where}: torn restores", len(result.torn), "", target="0")
    figure(f"{where}: acknowledged saves lost", len(result.lost), "", target="0")
    limit = kills.INTERVAL + 1
    figure(f"{where}: steps repeated", result.most_repeated, "at most", target=f"<= {limit}")


@contextlib.contextmanager
def _s3() -> Iterator[str]:
    """Run an S3 emulator in a process of its own; yield the address of a folder in it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    os.environ.update(
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="x",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL=endpoint,
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            time.sleep(0.1)
            with contextlib.suppress(OSError):
                request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
                urllib.request.urlopen(request, timeout=5).close()
                break
        yield "s3://bucket/run"
    finally:
        server.terminate()
        server.wait()


def _races() -> None:
    heading("Replaced processes that go on writing, in random orders of operations")
    outcomes = [race(seed) for seed in range(1000)]
    refused = sum(outcome.refused for outcome in outcomes)
    note = f"{refused} processes were refused"
    figure(
        "stale checkpoints restored, acknowledged ones lost", 0, "of 1,000", target="0", note=note
    )


if __name__ == "__main__":
    main()
