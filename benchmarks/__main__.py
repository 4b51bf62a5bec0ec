"""Run all benchmarks, or those that are named."""

from __future__ import annotations

import importlib
import sys

from benchmarks.report import machine

ALL = (
    "decide",
    "replacement",
    "run_overhead",
    "cloud",
    "dag_parsing",
    "idle",
    "dag_latency",
    "planner",
    "logs",
    "pages",
    "browser",
    "diagnosis",
    "kubernetes",
    "slurm",
    "checkpoints",
    "environments",
    "data_on_demand",
    "recovery_time",
    "recovery_states",
    "recovery",
    "regrouping",
    "capture",
    "alignment",
    "execution",
    "uneven",
    "prediction",
)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(ALL)}")
        return 2
    print(f"Measured on: {machine()}")
    for name in names or ALL:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
