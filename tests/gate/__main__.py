"""Runs targets of the Makefile one after another: `python -m tests.gate lint types pure scenarios`.

First come the facts of the machine, with which a lost run can be read; last, what each step took.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

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
