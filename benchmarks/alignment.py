"""How well `align` finds planted faults and names them, how calm it is, and what its dumps take.

python -m benchmarks.alignment                # the whole table, on 2 and 4 processes
python -m benchmarks.alignment --every 8      # each eighth fault and pair
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from benchmarks.report import figure, heading
from tests.alignment.fault_runs import compare_pairs, find_faults, is_named
from tests.alignment.faults import FAULTS, PAIRS


def main(every: int = 1) -> None:
    """Print every figure, and each fault and pair that went wrong."""
    began = time.monotonic()
    faults = dict(list(FAULTS.items())[::every])
    with tempfile.TemporaryDirectory() as folder:
        reports = find_faults(Path(folder), faults)
        held = sum(each.stat().st_size for each in Path(folder).rglob("*.pt"))
    missed = [name for name, report in reports.items() if report.equal]
    named = [name for name, report in reports.items() if is_named(faults[name], report)]
    heading(f"Alignment, load {os.getloadavg()[0]:.0f}")
    figure("planted faults", len(faults), "", target="at least 60")
    share = 100 * (1 - len(missed) / len(faults))
    figure("found", share, "%", target="100 %", note=", ".join(missed))
    figure("right step, kind and operator", 100 * len(named) / len(faults), "%", target="95 %")
    for name, report in reports.items():
        if name not in named:
            print(f"{name}: {report.first}", flush=True)
    figure("dumps of all", held / 2**20, "MiB")
    figure("time", time.monotonic() - began, "s")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = compare_pairs(Path(folder), PAIRS[::every])
    compared = [each for each in outcomes if each.report is not None]
    alarms = [each for each in compared if each.report and not each.report.equal]
    figure("pairs without a fault", len(compared), "", target="at least 200")
    figure("false alarms", len(alarms), "", target="0")
    figure("pairs that the engine refused", len(outcomes) - len(compared), "")
    figure("time of the pairs", time.monotonic() - began, "s")
    for each in alarms:
        print(f"{each.model} {dict(each.split)}: {each.report.first if each.report else ''}")
    for each in outcomes:
        if each.refused:
            print(f"{each.model} {dict(each.split)}: {each.refused.splitlines()[0]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    main(parser.parse_args().every)
