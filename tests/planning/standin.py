"""A small honest cost model for tests of the search: every dimension matters, and bounds hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airflow_training.planning.cluster import ClusterView, Device, Link, NodeGroup
from airflow_training.planning.computation import ComputationView, Operator, Tensor, Unit
from airflow_training.planning.plan import Candidates, Costs, Workload
from airflow_training.planning.search.bounds import Work

GIB = 2.0**30


def device(name: str = "toy", *, memory_gib: float = 16, peak: float = 1e14) -> Device:
    return Device(
        name=name,
        memory_bytes=memory_gib * GIB,
        memory_bandwidth=1e12,
        peak_flops={"bf16": peak},
        matmul_efficiency=0.8,
    )


def cluster(nodes: int = 1, per_node: int = 8, **group: object) -> ClusterView:
    """A cluster of equal nodes; keywords are those of a node group."""
    settings: dict = {
        "name": "toys",
        "device": device(),
        "intra_node": Link(name="in", bandwidth=2e11, latency_seconds=1e-6),
        "nic": Link(name="out", bandwidth=2e10, latency_seconds=5e-6),
    }
    settings.update(group)
    one = NodeGroup(count=nodes, devices_per_node=per_node, **settings)
    return ClusterView(name="toys", groups=(one,))


def view(
    *, layers: int = 4, heads: int = 8, sequence: int = 1024, experts: int = 0
) -> ComputationView:
    """A view that says only how large its axes are: all that the space reads of one."""
    tensors = {
        "x": Tensor(name="x", shape=(1, sequence), axes=("batch", "sequence"), kind="input"),
        "w": Tensor(name="w", shape=(heads, 64), axes=("heads", ""), kind="parameter"),
    }
    if experts:
        tensors["e"] = Tensor(name="e", shape=(experts, 8), axes=("experts", ""), kind="parameter")
    return ComputationView(
        name="toy",
        tensors=tensors,
        operators=(Operator(name="op", kind="matmul", inputs=("x", "w"), outputs=()),),
        units=(Unit(name="layer", operators=("op",), repeat=layers),),
    )


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A workload, and what its layers cost."""

    layers: int = 4
    heads: int = 8
    sequence: int = 1024
    global_batch: int = 16
    layer_flops: float = 1e12
    layer_elements: float = 2e8
    activation_bytes: float = 4e8
    quirk: int = 0
    """Makes neighbours differ without a pattern, so that nothing is found by luck."""

    @property
    def workload(self) -> Workload:
        made = view(layers=self.layers, heads=self.heads, sequence=self.sequence)
        return Workload(view=made, global_batch=self.global_batch)

    @property
    def work(self) -> Work:
        return Work(
            layers=self.layers,
            flops=self.layers * self.layer_flops,
            least_layer_flops=self.layer_flops,
            elements=self.layers * self.layer_elements,
        )

    def evaluate(self, workload: Workload, cluster: ClusterView, rows: Candidates) -> Costs:
        group = cluster.groups[0]
        peak = group.device.peak_flops["bf16"]
        per_stage = np.ceil(self.layers / rows.pp)
        passes = workload.global_batch // (rows.dp * rows.micro_batch)
        again = np.asarray([1.0, 1.08, 1.33])[rows.recompute]
        local = rows.tp * rows.cp
        efficiency = 0.98 / (1 + 0.15 * np.log2(local)) * (1 - 0.2 / (1 + rows.micro_batch))
        layer = self.layer_flops * rows.micro_batch * again / (peak * local * efficiency)
        inside = rows.tp * rows.cp <= group.devices_per_node
        rate = np.where(inside, 2e11, 2e10)
        traffic = (
            4
            * 2e6
            * rows.micro_batch
            * (rows.tp - 1)
            / rows.tp
            * np.where(rows.sequence_parallel, 0.97, 1.0)
        )
        ring = 2e6 * rows.micro_batch * (rows.cp - 1) / rows.cp
        layer = layer + (traffic + ring) / rate
        stage = per_stage * layer
        rest = (self.layers * layer - stage) / rows.virtual_stages
        pipeline = passes * stage + np.maximum(rest, 0) + rows.virtual_stages * 1e-4 * (rows.pp > 1)
        shares = rows.dp * rows.cp
        weights = self.layer_elements * per_stage / rows.tp
        sync = 2 * weights * 2 * (shares - 1) / shares / 2e10
        # a single replica has nothing to shard, and a single device nothing to hide
        zero = np.where(shares > 1, rows.zero, 0)
        useful = (shares > 1) | ((rows.overlap == 2) & (rows.tp * rows.pp > 1))
        overlap = np.where(useful, rows.overlap, 0)
        hidden = np.asarray([1.0, 0.5, 0.4, 0.3])[overlap]
        factor = np.asarray([1.0, 1.02, 1.1, 1.5])[zero]
        mixed = (
            rows.tp * 31
            + rows.pp * 17
            + rows.dp * 13
            + rows.cp * 7
            + rows.micro_batch * 5
            + zero * 3
            + rows.recompute * 11
            + overlap * 19
            + self.quirk * 23
        ) % 29
        step = (pipeline + sync * hidden * factor) * (1 + 0.02 * self.quirk * mixed / 29)
        return Costs(
            step_seconds=step,
            memory_bytes=self._memory(rows, per_stage, passes, shares),
            time_parts={"all": step},
            memory_parts={},
        )

    def _memory(self, rows: Candidates, per_stage, passes, shares):
        z = rows.zero
        elements = self.layer_elements * per_stage / rows.tp
        states = elements * (
            2 / np.where(z >= 3, shares, 1)
            + 4 / np.where(z >= 2, shares, 1)
            + 12 / np.where(z >= 1, shares, 1)
        )
        kept = np.asarray([1.0, 0.6, 0.1])[rows.recompute] / np.where(
            rows.sequence_parallel, rows.tp, 1 + 0.7 * (rows.tp - 1)
        )
        flying = np.minimum(rows.pp, passes) * (1 + 0.1 * (rows.virtual_stages - 1))
        acts = self.activation_bytes * rows.micro_batch * per_stage * kept * flying / rows.cp
        return states + acts + 0.5 * GIB
