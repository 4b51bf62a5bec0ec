"""A cluster that tests change, and jobs that are planned for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.admission.plan.history import NO_HISTORY, History
from airflow_training.admission.plan.step import plan_job
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import ClusterSnapshot, NodeView

FOREVER = Script(default=Behaviour(run_seconds=None))

GPT = {"hidden": 1024, "layers": 8, "heads": 16, "seq": 1024, "vocab": 32000}

FAR = 10**6
"""Steps, so many that a faster split always pays."""


def nodes(count: int, **more: Any) -> list[NodeView]:
    labels = {"nvidia.com/gpu.product": "NVIDIA A100-SXM4-80GB"}
    return [
        NodeView(name=f"n{i}", cpus=8, memory_bytes=2**36, gpus=1, labels=labels, **more)
        for i in range(count)
    ]


class Lab:
    """A folder with a cluster file, and jobs that are planned for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "cluster.json"
        self.history: History = NO_HISTORY
        (folder / "train.py").touch()

    def has(self, count: int, **group: Any) -> None:
        """Let the cluster have so many nodes from now on."""
        machine = {
            "name": "gpus",
            "count": count,
            "device": "A100-SXM4-80GB",
            "devices_per_node": 1,
            "nic_gbit_s": 200,
            **group,
        }
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"name": "lab", "nodes": [machine]}))
        fresh.replace(self.file)

    def job(self, **fields: Any) -> ResolvedJob:
        """Return a job of as many workers as the plan says, that looks at its cluster often."""
        checked = self.check(**fields)
        assert checked.resolved is not None, [str(problem) for problem in checked.problems]
        return replace(checked.resolved, runtime="memory", reconcile_seconds=0.05)

    def engine_job(self, **fields: Any) -> ResolvedJob:
        """Return a job of a master and workers that the plan's own program trains, as plain replicas."""
        (self.folder / "train.py").write_text(
            "def example(): ...\nloss = optimizer = data = example\n"
        )
        plan = {
            "apply": ["replicas", "env", "microBatch", "engine"],
            "engine": {"model": "train:example", "steps": FAR},
            "constraints": {"tp": 1, "pp": 1, "zero": 0, "devices": {"max": 3}},
            "globalBatch": 480,
        }
        spec = {
            "framework": "pytorch",
            "command": None,
            "roles": [{"name": "master"}, {"name": "worker"}],
            "restart": {"scope": "Instance"},
            **fields.pop("spec", {}),
        }
        return self.job(spec=spec, **{**plan, **fields})

    def check(self, *, spec: dict[str, Any] | None = None, **plan: Any) -> AdmissionResponse:
        document = {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "planned"},
            "spec": {
                "framework": "custom",
                "runtime": {"name": "local"},
                "command": ["python", "train.py"],
                "roles": [{"name": "worker"}],
                "plan": {
                    "model": GPT,
                    "cluster": "cluster.json",
                    "globalBatch": 12,
                    "constraints": {"tp": 1, "pp": 1, "devices": {"max": 3}},
                    **plan,
                },
                **(spec or {}),
            },
        }
        [checked] = check_text(
            yaml.safe_dump(document),
            run_uid="x" * 20,
            base_dir=str(self.folder),
            planner=lambda job, resolved: plan_job(
                job, resolved, runtime=lambda _: Machines(3), history=self.history
            ),
        )
        return checked


class Machines(MemoryRuntime):
    """A runtime with so many nodes of one GPU."""

    def __init__(self, count: int) -> None:
        super().__init__(script=FOREVER)
        self.nodes = nodes(count)

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        return ClusterSnapshot(nodes=self.nodes)
