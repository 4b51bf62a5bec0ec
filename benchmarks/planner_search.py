"""How long the planner's search takes, from nothing and again, and what memory it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

from benchmarks.report import figure, heading

# each search has a process of its own, so that nothing is warm that should not be
_ONE = """
import json, sys, time
from pathlib import Path
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.search import search
from airflow_training.planning.sources.documents import parse_cluster, parse_model
from airflow_training.planning.view.transformer import computation

asked = json.loads(sys.argv[1])
cluster = parse_cluster(asked["cluster"])
seconds = []
for again in range(2):
    started = time.process_time()
    if again == 0:
        view = computation(parse_model(asked["model"]))
        workload = Workload(
            view=view,
            global_batch=asked["global_batch"],
            precision=asked["precision"],
            runtime="megatron-lm",
        )
    answer = search(workload, cluster)
    seconds.append(time.process_time() - started)
# not `ru_maxrss`, which counts the parent's memory until the program starts
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
print(json.dumps({
    "cold": seconds[0], "warm": seconds[1], "evaluated": answer.evaluated, "priced": answer.priced,
    "step": answer.plans[0].step_seconds,
    "megabytes": int(peak.split()[0]) * 1024 / 1e6,
    "warnings": list(answer.warnings),
}))
"""

A100 = {
    "device": "A100-SXM4-80GB",
    "devices_per_node": 8,
    "intra_node": "nvlink3",
    "nics_per_node": 8,
    "nic_gbit_s": 200,
}
T4 = {"device": "T4", "devices_per_node": 8, "nics_per_node": 1, "nic_gbit_s": 50}
V100 = {
    "device": "V100-SXM2-32GB",
    "devices_per_node": 8,
    "intra_node": "nvlink2",
    "nics_per_node": 4,
    "nic_gbit_s": 100,
}


def model(hidden: int, layers: int, heads: int) -> dict[str, int]:
    return {"hidden": hidden, "layers": layers, "heads": heads, "seq": 2048, "vocab": 51200}


class Case(NamedTuple):
    """A search, and the seconds that it may take at most."""

    name: str
    model: dict[str, int]
    global_batch: int
    nodes: list[dict[str, object]]
    cold: float
    warm: float | None = None
    precision: str = "bf16"


GPT_39B = model(8192, 48, 64)
A100_AND_V100: list[dict[str, object]] = [{"count": 32, **A100}, {"count": 32, **V100}]
CASES = (
    Case("GPT-3 175B on 1,024 A100", model(12288, 96, 96), 1536, [{"count": 128, **A100}], 2, 0.5),
    Case("GPT 1T on 3,072 A100", model(25600, 128, 160), 3072, [{"count": 384, **A100}], 3),
    Case("GPT 39B on 256 A100 and 256 V100", GPT_39B, 512, A100_AND_V100, 5, precision="fp16"),
    Case("the same, a batch of 4,096", GPT_39B, 4096, A100_AND_V100, 5, precision="fp16"),
    Case(
        "GPT 1.3B on 8 A100 and 8 T4",
        model(2048, 24, 16),
        512,
        [{"count": 1, **A100}, {"count": 1, **T4}],
        5,
        precision="fp16",
    ),
)


def main() -> None:
    """Print the figures. Seconds are those of the processor, so that neighbours do not count."""
    heading("Search (CPU seconds)")
    for case in CASES:
        asked = {
            "model": case.model,
            "global_batch": case.global_batch,
            "precision": case.precision,
            "cluster": {"name": "c", "nodes": case.nodes},
        }
        done = subprocess.run(
            [sys.executable, "-c", _ONE, json.dumps(asked)],
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        note = f"{found['evaluated']:,} candidates decided, {found['priced']:,} priced in full"
        figure(f"{case.name}, cold", found["cold"], "s", target=f"<= {case.cold:g} s", note=note)
        target = f"<= {case.warm:g} s" if case.warm else ""
        note = "; ".join(found["warnings"])
        figure(f"{case.name}, warm", found["warm"], "s", target=target, note=note)
        figure(f"{case.name}, memory", found["megabytes"], "MB", target="< 500 MB")


if __name__ == "__main__":
    main()
