"""Any bytes for as long as you like: `python -m tests.logs.engine.fuzz --minutes 10`.

Each round takes real logs or random lines, spoils them (bytes changed, lines cut, doubled and joined, control characters
put in), reads them in pieces of random size by every way there is, and holds what was found against the slow way.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.scanning import patterns
from airflow_training.logs.engine.automaton import Automaton, Hyperscan, LiteralAutomaton, Re2
from airflow_training.logs.engine.compiled_walker import CompiledWalker
from airflow_training.logs.engine.scanning import BLOCK_BYTES, Machine
from airflow_training.logs.engine.stretches import as_scan, scan_stretch
from airflow_training.logs.engine.walking import PlainWalker, Walker
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from tests.logs.engine import reference
from tests.logs.engine.sources import Dribble
from tests.logs.engine.test_agreement import assert_same

LOGS = sorted(Path(__file__).parent.parent.rglob("*.log"))
SPOILERS = (
    b"\r",
    b"\n",
    b"\b",
    b"\x1b[31m",
    b"\x1b",
    b"\x00",
    b"\xff",
    b"nan",
    b"1e999",
    b",",
    b"[rank3]: ",
)
ORIGIN = Origin(file="x", rank=5)


def spoiled(data: bytes, dice: random.Random) -> bytes:
    """Return the log with some damage."""
    lines = data.split(b"\n")
    start = dice.randrange(len(lines))
    lines = lines[start : start + dice.randrange(1, 120)]
    lines *= dice.randrange(1, 4)
    if dice.random() < 0.5:
        dice.shuffle(lines)
    spoilt = bytearray(b"\n".join(lines))
    for _ in range(dice.choice([0, 1, 5, 50])):
        place = dice.randrange(len(spoilt) + 1)
        match dice.randrange(5):
            case 0:
                spoilt[place:place] = dice.choice(SPOILERS)
            case 1:
                del spoilt[place : place + dice.randrange(20)]
            case 2:
                spoilt[place:place] = dice.randbytes(dice.randrange(10))
            case 3:
                spoilt[place:place] = str(dice.random() * 10 ** dice.randrange(-20, 20)).encode()
            case _:
                other = dice.randrange(len(spoilt) + 1)
                spoilt[place:place] = spoilt[other : other + dice.randrange(200)]
    if dice.random() < 0.02:
        spoilt += dice.choice([b"x", b"CUDA out of memory. ", b"\x00"]) * dice.choice(
            [5000, 70_000, 200_000]
        )
    return bytes(spoilt)


def main(minutes: float, seed: int) -> int:
    print(f"seed {seed}")
    signatures, wanted = patterns(load()), formats()
    anchors = wanted.anchors()
    ways: list[tuple[Automaton, Walker]] = [
        (Hyperscan(signatures, anchors), CompiledWalker(signatures, size=BLOCK_BYTES)),
        (Hyperscan(signatures, anchors), PlainWalker()),
        (Re2(signatures, anchors), PlainWalker()),
        (LiteralAutomaton(signatures, anchors), PlainWalker()),
    ]
    end = time.monotonic() + minutes * 60
    rounds = 0
    failures: Counter[str] = Counter()
    while time.monotonic() < end:
        dice = random.Random(seed * 1_000_003 + rounds)  # told, so that it can be had again
        data = spoiled(dice.choice(LOGS).read_bytes() + dice.choice(LOGS).read_bytes(), dice)
        sizes = [dice.choice([50, 300, 2000, 65_536, 1 << 20]) for _ in range(4)]
        expected = reference.scan(data, signatures=signatures, formats=wanted, origin=ORIGIN)
        automaton, walker = ways[0] if dice.random() < 0.7 else dice.choice(ways)
        walker.forget()
        machine = Machine(signatures, wanted, automaton=automaton, walker=walker)
        found = None
        try:
            found = scan_stretch(machine, ORIGIN, Dribble(data, sizes), 0, None)
            assert found.tail is not None
            assert_same(as_scan(ORIGIN, found, found.tail), expected)
        except Exception as error:  # noqa: BLE001  # whatever goes wrong is counted, and its log kept
            failures["crashes" if found is None else "differences"] += 1
            kept = Path(f"fuzz_failure_{seed}_{rounds}.log")
            kept.write_bytes(data)
            way = f"{type(automaton).__name__}, {type(walker).__name__}, {sizes}"
            print(
                f"round {rounds} with {way}: {str(error)[:300]}\nthe log is in {kept}", flush=True
            )
        rounds += 1
    print(f"{rounds} rounds, {failures['crashes']} crashes, {failures['differences']} differences")
    return 1 if failures.total() else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(main(arguments.minutes, arguments.seed))
