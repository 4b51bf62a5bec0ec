"""Runs targets of the Makefile one after another: `python -m tests.gate lint types+pure scenarios`.

First come the facts of the machine, with which a lost run can be read; last, what each step took. `+`: at the same time, as
types are checked by a single process; what all but the last of these print comes when they have ended.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gate.tiers import ROOT

MAKE = ("make", "--no-print-directory")
BUSY_PERCENT = 5.0
"""Of one core, on average since it began: a process that takes more of it is named."""


def describe_machine() -> str:
    """Return load, free memory and disk, and what else uses the processor."""
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"))
    memory = int(found[1]) / 2**20 if found else 0.0
    disk = shutil.disk_usage(ROOT).free / 2**30
    listed = subprocess.run(
        ["ps", "-eo", "pcpu,pid,args", "--sort=-pcpu", "--no-headers"],
        capture_output=True,
        text=True,
        check=True,
    )
    busy = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return "\n".join(
        [
            f"load {load} on {os.cpu_count()} cores, {memory:.1f} GiB of memory and {disk:.0f} GiB of disk free",
            *(
                f"busy beside us: {percent} % of a core, process {pid}: {command[:100]}"
                for percent, pid, command in busy
                if float(percent) > BUSY_PERCENT and int(pid) != os.getpid()
            ),
        ]
    )


def main(targets: list[str]) -> int:
    """Run the targets until one fails; return its exit code."""
    print(describe_machine(), flush=True)
    took: list[str] = []
    code = 0
    for step in targets:
        begun = time.monotonic()
        code = run_together(step.split("+"))
        took.append(f"{step} {time.monotonic() - begun:.0f} s")
        if code:
            took[-1] += " (failed)"
            break
    print(", ".join(took), flush=True)
    return code


def run_together(targets: list[str]) -> int:
    """Run targets at the same time; returns the exit code of one that fails, or 0."""
    *beside, last = ([*MAKE, target] for target in targets)
    with ThreadPoolExecutor(max_workers=len(targets)) as pool:
        others = [
            pool.submit(
                subprocess.run, each, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            for each in beside
        ]
        codes = [subprocess.run(last, cwd=ROOT, check=False).returncode]
        for other in others:
            done = other.result()
            print(done.stdout.decode(errors="replace"), end="", flush=True)
            codes.append(done.returncode)
    return next(filter(None, codes), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
