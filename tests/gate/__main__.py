"""Runs targets of the Makefile: `python -m tests.gate lint types pure --beside scenarios`.

First come the facts of the machine, with which a lost run can be read; last, what each step took. Scenarios wait a
third of their time, for processes and for Airflow: what computes has the cores meanwhile. What they printed comes
at the end, together.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from tests.gate.tiers import ROOT

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


def run_target(target: str, output: IO[bytes] | None = None) -> tuple[str, int]:
    """Run a target; return its name with what it took, and its exit code."""
    begun = time.monotonic()
    command = ["make", "--no-print-directory", target]
    code = subprocess.run(
        command, cwd=ROOT, check=False, stdout=output, stderr=subprocess.STDOUT if output else None
    ).returncode
    took = f"{target} {time.monotonic() - begun:.0f} s"
    return f"{took} (failed)" if code else took, code


def main(targets: Sequence[str], beside: str = "") -> int:
    """Run the targets until one fails, and another beside all but the first; return an exit code."""
    print(describe_machine(), flush=True)
    first, *others = targets
    took, code = run_target(first)
    ran = [took]
    if code:
        others, beside = [], ""
    with ThreadPoolExecutor(1) as pool, tempfile.TemporaryFile() as output:
        other = pool.submit(run_target, beside, output) if beside else None
        for target in others:
            took, code = run_target(target)
            ran.append(took)
            if code:
                break
        if other is not None:
            took, code_beside = other.result()
            ran.append(f"beside them {took}")
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            code = code or code_beside
    print(", ".join(ran), flush=True)
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.gate")
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--beside", default="", help="a target that waits more than it computes")
    chosen = parser.parse_args()
    sys.exit(main(chosen.targets, chosen.beside))
