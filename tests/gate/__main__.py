"""Runs targets of the Makefile one after another: `python -m tests.gate lint types pure scenarios`.

First come the facts of the machine, with which a lost run can be read; last, what each step took.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import psutil

from tests.gate.tiers import ROOT

BUSY_PERCENT = 5.0
"""Of one core: a process that takes more of it is named."""


def describe_machine() -> str:
    """Return load, free memory and disk, and what else uses the processor."""
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    memory = psutil.virtual_memory().available / 2**30
    disk = shutil.disk_usage(ROOT).free / 2**30
    lines = [
        f"load {load} on {os.cpu_count()} cores, {memory:.1f} GiB of memory and {disk:.0f} GiB of disk free"
    ]
    processes = list(psutil.process_iter())
    for each in processes:
        _processor_use(each)
    time.sleep(1.0)
    lines += [
        f"busy beside us: {use:.0f} % of a core, pid {each.pid}: {_command(each)[:100]}"
        for each in processes
        if (use := _processor_use(each)) > BUSY_PERCENT and each.pid != os.getpid()
    ]
    return "\n".join(lines)


def _processor_use(process: psutil.Process) -> float:
    """Return the percentage of one core that it used since it was asked last."""
    try:
        return process.cpu_percent()
    except psutil.Error:
        return 0.0


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return "ended"


def main(targets: list[str]) -> int:
    """Run the targets until one fails; return its exit code."""
    print(describe_machine(), flush=True)
    took: list[str] = []
    code = 0
    for target in targets:
        begun = time.monotonic()
        code = subprocess.run(
            ["make", "--no-print-directory", target], cwd=ROOT, check=False
        ).returncode
        took.append(f"{target} {time.monotonic() - begun:.0f} s")
        if code:
            took[-1] += " (failed)"
            break
    print(", ".join(took), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
