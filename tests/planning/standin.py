"""A small honest cost model for tests of the search: every dimension matters, and bounds hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from airflow_training.planning.cost.tables import as_table
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.view.cluster import ClusterView, Device, Link, NodeGroup
from airflow_training.planning.view.computation import ComputationView, Operator, Tensor, Unit
from airflow_training.planning.view.plan import Estimate, StrategyTable, Workload
from airflow_training.planning.view.strategy import Strategy

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
    settings: dict[str, Any] = {
        "name": "toys",
        "device": device(),
        "intra_node": Link(name="in", bandwidth=2e11, latency_seconds=1e-6),
        "nic": Link(name="out", bandwidth=2e10, latency_seconds=5e-6),
    }
    settings.update(group)
    one = NodeGroup(count=nodes, devices_per_node=per_node, **settings)
    return ClusterView(name="toys", groups=(one,))


def view(
    *,
    layers: int = 4,
    heads: int = 8,
    sequence: int = 1024,
    experts: int = 0,
    alike: bool = True,
) -> ComputationView:
    """A view that says only how large its axes are: all that the space reads of one."""
    tensors = {
        "x": Tensor(name="x", shape=(1, sequence), axes=("batch", "sequence"), kind="input"),
        "y": Tensor(name="y", shape=(1, sequence), axes=("batch", "sequence"), kind="output"),
        "w": Tensor(name="w", shape=(heads, 64), axes=("heads", ""), kind="parameter"),
    }
    if experts:
        tensors["e"] = Tensor(name="e", shape=(experts, 8), axes=("experts", ""), kind="parameter")
    return ComputationView(
        name="toy",
        tensors=tensors,
        operators=(Operator(name="op", kind="elementwise", inputs=("x",), outputs=("y",)),),
        units=(
            (Unit(name="layer", operators=("op",), repeat=layers),)
            if alike
            else tuple(Unit(name=f"layer{n}", operators=("op",)) for n in range(layers))
        ),
    )


@dataclass(frozen=True, slots=True)
class ToyArranged:
    step_seconds: np.ndarray
    spare_bytes: np.ndarray


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
    uneven: tuple[float, ...] = ()
    """How much more each layer is than `layer_flops`, where layers differ."""

    @cached_property
    def workload(self) -> Workload:
        made = view(
            layers=self.layers, heads=self.heads, sequence=self.sequence, alike=not self.uneven
        )
        return Workload(view=made, global_batch=self.global_batch)

    @property
    def pricing(self) -> Pricing:
        return Pricing(
            floors=lambda _, cluster, table: lambda rows: self._floor(cluster, rows),
            memory_bytes=self.memory_bytes,
            memory_floors=lambda *_: self,
            step_seconds=self.step_seconds,
            estimate=self.estimate,
            pass_seconds=self.pass_seconds,
            overheads=lambda _, __, rows: (np.zeros(len(rows.tp)), np.zeros(len(rows.tp))),
            arranged=self.arranged,
        )

    def step_seconds(self, workload: Workload, cluster: ClusterView, rows: StrategyTable):
        per_stage = np.ceil(self.layers / rows.pp)
        passes = workload.global_batch // (rows.dp * rows.micro_batch)
        layer = self._layer(cluster.groups[0], rows)
        stage = per_stage * layer
        rest = (self.layers * layer - stage) / rows.virtual_stages
        pipeline = passes * stage + np.maximum(rest, 0) + rows.virtual_stages * 1e-4 * (rows.pp > 1)
        return (pipeline + self._sync(rows, per_stage)) * self._noise(rows)

    def memory_bytes(self, workload: Workload, cluster: ClusterView, rows: StrategyTable):
        del cluster
        passes = workload.global_batch // (rows.dp * rows.micro_batch)
        flying = np.minimum(rows.pp, passes) * (1 + 0.1 * (rows.virtual_stages - 1))
        return self._stage_bytes(rows, np.ceil(self.layers / rows.pp), flying)

    def estimate(self, workload: Workload, cluster: ClusterView, strategy: Strategy) -> Estimate:
        rows = as_table([strategy])
        if strategy.stage_devices and strategy.stage_layers:
            costs = self.arranged(
                workload,
                cluster,
                rows,
                stage_layers=strategy.stage_layers,
                stage_devices=strategy.stage_devices,
            )
            seconds, used = float(costs.step_seconds[0]), 0.0
        else:
            names = strategy.stage_devices or (cluster.groups[0].name,)
            group = next(group for group in cluster.groups if group.name == names[0])
            alone = replace(cluster, groups=(group,))
            seconds = float(self.step_seconds(workload, alone, rows)[0])
            used = float(self.memory_bytes(workload, alone, rows)[0])
        return Estimate(
            strategy=strategy,
            step_seconds=seconds,
            p10=seconds,
            p90=seconds,
            memory_bytes=used,
            fits=True,
            time=(),
            memory=(),
        )

    def pass_seconds(self, workload: Workload, cluster: ClusterView, rows: StrategyTable):
        del workload
        layer = self._layer(cluster.groups[0], rows)
        more = np.asarray(self.uneven or (1.0,))[:, None]
        return layer / 3 * more, layer * 2 / 3 * more

    def arranged(self, workload, cluster, rows, /, *, stage_layers, stage_devices):
        groups = {group.name: group for group in cluster.groups}
        passes = workload.global_batch // (rows.dp * rows.micro_batch)
        more = np.asarray(self.uneven or (1.0,) * self.layers)
        ends = np.cumsum(stage_layers)
        stages = np.stack(
            [
                self._layer(groups[name], rows) * more[end - count : end].sum()
                for name, count, end in zip(stage_devices, stage_layers, ends, strict=True)
            ]
        )
        pipeline = stages.sum(axis=0) + (passes - 1) * stages.max(axis=0)
        pipeline = pipeline + 1e-4 * (len(stages) > 1)
        seconds = (pipeline + self._sync(rows, max(stage_layers))) * self._noise(rows)
        spare = [
            groups[name].device.memory_bytes
            - self._stage_bytes(rows, count, np.minimum(len(stage_layers) - place, passes))
            for place, (name, count) in enumerate(zip(stage_devices, stage_layers, strict=True))
        ]
        return ToyArranged(seconds, np.stack(spare, axis=1))

    def _floor(self, cluster: ClusterView, rows: StrategyTable):
        passes = self.workload.global_batch // (rows.dp * rows.micro_batch)
        return passes * np.ceil(self.layers / rows.pp) * self._layer(cluster.groups[0], rows)

    def bytes_held(self, rows: StrategyTable):
        return self._stage_bytes(rows, self.layers / rows.pp, flying=0)

    def most_layers(self, rows: StrategyTable, memory_bytes: float, in_flight):
        layer = self._stage_bytes(rows, 1, flying=0) - self._stage_bytes(rows, 0, flying=0)
        room = memory_bytes - self._stage_bytes(rows, 0, flying=0)
        return np.floor(room / layer * (1 + 1e-12)) * np.ones_like(in_flight)

    def _layer(self, group: NodeGroup, rows: StrategyTable):
        """Return the seconds of a layer of `layer_flops`."""
        again = np.asarray([1.0, 1.08, 1.33])[rows.recompute]
        local = rows.tp * rows.cp
        efficiency = 0.98 / (1 + 0.15 * np.log2(local)) * (1 - 0.2 / (1 + rows.micro_batch))
        peak = group.device.peak_flops["bf16"]
        compute = self.layer_flops * rows.micro_batch * again / (peak * local * efficiency)
        rate = np.where(local <= group.devices_per_node, 2e11, 2e10)
        halved = np.where(rows.sequence_parallel, 0.97, 1.0)
        traffic = 8e6 * rows.micro_batch * (rows.tp - 1) / rows.tp * halved
        ring = 2e6 * rows.micro_batch * (rows.cp - 1) / rows.cp
        return compute + (traffic + ring) / rate

    def _sync(self, rows: StrategyTable, layers):
        """Return the seconds of the gradient exchange of a stage with so many layers."""
        shares = rows.dp * rows.cp
        whole = 4 * self.layer_elements * layers / rows.tp * (shares - 1) / shares / 2e10
        hidden = np.asarray([1.0, 0.5, 0.4, 0.3])[self._overlap(rows)]
        return whole * hidden * np.asarray([1.0, 1.02, 1.1, 1.5])[self._zero(rows)]

    def _noise(self, rows: StrategyTable):
        mixed = rows.tp * 31 + rows.dp * 13 + rows.cp * 7 + rows.micro_batch * 5 + rows.pp * 17
        mixed = mixed + self._zero(rows) * 3 + rows.recompute * 11 + self._overlap(rows) * 19
        return 1 + 0.02 * self.quirk * ((mixed + self.quirk * 23) % 29) / 29

    def _zero(self, rows: StrategyTable):
        """A single replica has nothing to shard."""
        return np.where(rows.dp * rows.cp > 1, rows.zero, 0)

    def _overlap(self, rows: StrategyTable):
        """A single device has nothing to hide."""
        useful = (rows.dp * rows.cp > 1) | ((rows.overlap == 2) & (rows.tp * rows.pp > 1))
        return np.where(useful, rows.overlap, 0)

    def _stage_bytes(self, rows: StrategyTable, layers, flying):
        shares = rows.dp * rows.cp
        states = (
            2 / np.where(rows.zero >= 3, shares, 1)
            + 4 / np.where(rows.zero >= 2, shares, 1)
            + 12 / np.where(rows.zero >= 1, shares, 1)
        )
        kept = np.asarray([1.0, 0.6, 0.1])[rows.recompute] / np.where(
            rows.sequence_parallel, rows.tp, 1 + 0.7 * (rows.tp - 1)
        )
        activations = self.activation_bytes * rows.micro_batch * layers * kept * flying / rows.cp
        return self.layer_elements * layers / rows.tp * states + activations + 0.5 * GIB
