"""How long the planner's search takes, from nothing and again, and what memory it needs."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.report import figure, heading

# each search has a process of its own, so that nothing is warm that should not be
_ONE = """
import json, resource, sys, time
from airflow_training.planning.plan import Workload
from airflow_training.planning.search import search
from airflow_training.planning.sources.documents import parse_cluster, parse_model
from airflow_training.planning.transformer import computation

asked = json.loads(sys.argv[1])
cluster = parse_cluster(asked["cluster"])
seconds = []
for again in range(2):
    started = time.process_time()
    if again == 0:
        view = computation(parse_model(asked["model"]))
        workload = Workload(
            view=view, global_batch=asked["global_batch"], precision="bf16", runtime="megatron-lm"
        )
    answer = search(workload, cluster)
    seconds.append(time.process_time() - started)
print(json.dumps({
    "cold": seconds[0], "warm": seconds[1], "evaluated": answer.evaluated, "priced": answer.priced,
    "step": answer.plans[0].step_seconds,
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
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
V100 = {
    "device": "V100-SXM2-32GB",
    "devices_per_node": 8,
    "intra_node": "nvlink2",
    "nics_per_node": 4,
    "nic_gbit_s": 100,
}


def model(hidden: int, layers: int, heads: int) -> dict[str, int]:
    return {"hidden": hidden, "layers": layers, "heads": heads, "seq": 2048, "vocab": 51200}


CASES = (
    ("GPT-3 175B on 1,024 A100", model(12288, 96, 96), 1536, [{"count": 128, **A100}], 2.0, 0.5),
    ("GPT 1T on 3,072 A100", model(25600, 128, 160), 3072, [{"count": 384, **A100}], 3.0, None),
    (
        "GPT 39B on 256 A100 and 256 V100",
        model(8192, 48, 64),
        512,
        [{"count": 32, **A100}, {"count": 32, **V100}],
        5.0,
        None,
    ),
)


def main() -> None:
    """Print the figures. Seconds are those of the processor, so that neighbours do not count."""
    heading("Search (CPU seconds)")
    for name, sizes, batch, nodes, cold, warm in CASES:
        asked = {"model": sizes, "global_batch": batch, "cluster": {"name": "c", "nodes": nodes}}
        done = subprocess.run(
            [sys.executable, "-c", _ONE, json.dumps(asked)],
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        note = f"{found['evaluated']:,} candidates decided, {found['priced']:,} priced in full"
        figure(f"{name}, cold", found["cold"], "s", target=f"<= {cold:g} s", note=note)
        target = f"<= {warm:g} s" if warm else ""
        note = "; ".join(found["warnings"])
        figure(f"{name}, warm", found["warm"], "s", target=target, note=note)
        figure(f"{name}, memory", found["megabytes"], "MB", target="< 500 MB")


if __name__ == "__main__":
    main()
