"""Sixty faults of split trainings, each with what has to be named; and pairs of runs without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airflow_training.execution import ExecutionPlan
from tests.alignment.planting import (
    Plant,
    after_update,
    change_gradient,
    change_groups,
    change_output,
    change_weight,
    divide_by,
    drop,
    earlier_micro_batch,
    keep_gradients,
    keep_parts,
    lose_replicas,
    nothing,
    nudge,
    other_replica,
    set_attribute,
    share_parameters,
    shift_rows,
    skip_exchange,
    sum_micro_batches,
    wrong_axis,
)
from tests.execution.zoo import BATCH

DP: dict[str, Any] = {"dp": 2}
Z1, Z2, Z3 = ({"dp": 2, "zero": stage} for stage in (1, 2, 3))
TP: dict[str, Any] = {"tp": 2}
SP: dict[str, Any] = {"tp": 2, "sequence_parallel": True}
PP: dict[str, Any] = {"pp": 2}
PP_DP: dict[str, Any] = {"pp": 2, "dp": 2}
PP_TP: dict[str, Any] = {"pp": 2, "tp": 2}
TP_DP: dict[str, Any] = {"tp": 2, "dp": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one split of a model of the zoo."""

    split: Mapping[str, Any]
    plant: Plant = nothing
    kind: str = "output"
    operators: Sequence[str]
    """Which of them may be named; `*` where the fault is in all."""
    model: str = "mlp"
    serial: Plant = nothing
    """What is planted into the serial program as well: a mask that both draw."""
    loss: str = "mean"
    batch: str = "same"
    step: int = 0


def plan_for(split: Mapping[str, Any]) -> ExecutionPlan:
    return ExecutionPlan(**{"global_batch": BATCH, "micro_batch": 4, "precision": "fp64", **split})


def _single(value: torch.Tensor) -> torch.Tensor:
    return value.float().double()


def _doubled(value: torch.Tensor) -> torch.Tensor:
    return value * 2


def _shifted(value: torch.Tensor) -> torch.Tensor:
    return value.roll(1, 0)


def _late(value: torch.Tensor) -> torch.Tensor:
    return value.roll(1, 1)


FAULTS: dict[str, Fault] = {
    # a reduction that is missing
    "replicas that exchange nothing": Fault(
        split=DP, plant=skip_exchange, kind="gradient", operators=["0.weight"]
    ),
    "shards that exchange nothing": Fault(
        split=Z1, plant=skip_exchange, kind="gradient", operators=["*"]
    ),
    "a row product that is not summed": Fault(split=TP, plant=keep_parts("2"), operators=["2"]),
    "an attention's product that is not summed": Fault(
        split=TP,
        model="gpt",
        plant=keep_parts("layers.0.attention.out"),
        operators=["layers.0.attention.out"],
    ),
    "a tied table whose stages do not share gradients": Fault(
        split=PP,
        model="gpt",
        plant=share_parameters(0),
        kind="gradient",
        operators=["words.weight"],
    ),
    "a loss of one replica": Fault(split=DP, plant=lose_replicas, kind="loss", operators=["loss"]),
    "stages whose replicas exchange nothing": Fault(
        split=PP_DP, plant=skip_exchange, kind="gradient", operators=["*"]
    ),
    # a reduction that is done twice
    "doubled gradient of replicas": Fault(
        split=DP,
        plant=change_gradient(["4.weight"], _doubled),
        kind="gradient",
        operators=["4.weight"],
    ),
    "doubled gradient of shards": Fault(
        split=Z3,
        plant=change_gradient(["6.bias"], _doubled),
        kind="gradient",
        operators=["6.bias"],
    ),
    "doubled sum of a row product": Fault(
        split=TP, plant=change_output("2", _doubled), operators=["2"]
    ),
    "doubled gradient of a stage": Fault(
        split=PP,
        plant=change_gradient(["0.weight"], _doubled),
        kind="gradient",
        operators=["0.weight"],
    ),
    "a tied table summed twice": Fault(
        split=PP,
        model="gpt",
        plant=share_parameters(2),
        kind="gradient",
        operators=["words.weight"],
    ),
    "doubled gradient of a stage's replicas": Fault(
        split=PP_DP,
        plant=change_gradient(["8.weight"], _doubled),
        kind="gradient",
        operators=["8.weight"],
    ),
    "doubled gradient with two axes": Fault(
        split=TP_DP,
        plant=change_gradient(["0.weight"], _doubled),
        kind="gradient",
        operators=["0.weight"],
    ),
    # the wrong axis
    "a gradient averaged over tensor parallel ranks": Fault(
        split=TP_DP, plant=wrong_axis("0.weight", "tp"), kind="gradient", operators=["0.weight"]
    ),
    "a gradient of a stage averaged over tensor parallel ranks": Fault(
        split=PP_TP,
        plant=wrong_axis("0.weight", "tp"),
        kind="gradient",
        operators=["0.weight"],
    ),
    "a norm over samples": Fault(
        split=DP,
        model="encoder",
        plant=change_output("layers.1.after", lambda x: (x - x.mean(0)) / (x.std(0) + 1)),
        operators=["layers.1.after"],
    ),
    "height and width exchanged": Fault(
        split=DP,
        model="cnn",
        plant=change_output("2", lambda x: x.transpose(2, 3)),
        operators=["2"],
    ),
    "a sequence put together in another order": Fault(
        split=SP,
        model="encoder",
        plant=change_output("layers.0.before", lambda x: x.flip(1)),
        operators=["layers.0.before"],
    ),
    "halves of a column product exchanged": Fault(
        split=TP,
        plant=change_output("0", lambda x: x.roll(x.shape[1] // 2, 1)),
        operators=["0"],
    ),
    # a slice that is off by one
    "rows of replicas off by one": Fault(
        split=DP, plant=change_output("3", _shifted), operators=["3"]
    ),
    "samples of a replica off by one": Fault(split=DP, plant=shift_rows, operators=["0"]),
    "columns of one rank off by one": Fault(
        split=TP, plant=change_weight("0.weight", _shifted, rank=1), operators=["0"]
    ),
    "a table off by one": Fault(
        split=TP,
        model="two-tower",
        plant=change_weight("users.weight", _shifted),
        operators=["users"],
    ),
    "rows of a stage off by one": Fault(
        split=PP, plant=change_output("5", _shifted), operators=["5"]
    ),
    "a shard off by one": Fault(
        split=Z3, plant=change_weight("6.weight", _shifted, rank=0), operators=["6"]
    ),
    "a sequence off by one": Fault(
        split=SP,
        model="encoder",
        plant=change_output("layers.1.up", _late),
        operators=["layers.1.up"],
    ),
    # weights that are not the newest
    "stale weights of a replica": Fault(
        split=DP, plant=change_weight("2.weight", nudge, rank=1), operators=["2"]
    ),
    "stale weights of a tensor parallel rank": Fault(
        split=TP, plant=change_weight("2.weight", nudge, rank=1), operators=["2"]
    ),
    "stale weights of a shard": Fault(
        split=Z3, plant=change_weight("4.weight", nudge, rank=1), operators=["4"]
    ),
    "stale weights of a stage": Fault(
        split=PP, plant=change_weight("8.weight", nudge, rank=1), operators=["8"]
    ),
    "stale weights of one replica of a stage": Fault(
        split=PP_DP, plant=change_weight("8.weight", nudge, rank=2), operators=["8"]
    ),
    "a parameter that is not updated": Fault(
        split=DP,
        plant=after_update("4.bias", lambda before, _: before),
        kind="parameter",
        operators=["4.bias"],
    ),
    "an update that one replica misses": Fault(
        split=DP,
        plant=after_update("6.weight", lambda before, _: before, rank=1),
        kind="parameter",
        operators=["6.weight"],
    ),
    # the wrong scale of a mean
    "a loss twice as large": Fault(
        split=DP, loss="double", kind="output gradient", operators=["8"]
    ),
    "a stage's loss half as large": Fault(
        split=PP, loss="half", kind="output gradient", operators=["8"]
    ),
    "a loss a little too large": Fault(
        split=TP, loss="more", kind="output gradient", operators=["8"]
    ),
    "micro-batches added up": Fault(
        split=PP, plant=sum_micro_batches, kind="gradient", operators=["*"]
    ),
    "a sum over shards in place of their mean": Fault(
        split=Z2, plant=divide_by(1.0), kind="gradient", operators=["*"]
    ),
    "gradients divided twice by the replicas": Fault(
        split=DP,
        plant=change_gradient([], lambda grad: grad / 2),
        kind="gradient",
        operators=["*"],
    ),
    "gradients clipped by one stage": Fault(
        split=PP,
        plant=change_gradient([], lambda grad: grad / (1 + grad.norm()), rank=1),
        kind="gradient",
        operators=["6.weight", "8.weight"],
    ),
    # dropout that ranks draw unlike
    "replicas that draw their own masks": Fault(
        split=DP, serial=drop("1"), plant=drop("1", seed=lambda rank: 7 + rank), operators=["1"]
    ),
    "replicas that draw the same mask": Fault(
        split=DP, serial=drop("3"), plant=drop("3", begin=lambda _: 0), operators=["3"]
    ),
    "tensor parallel ranks that draw their own masks": Fault(
        split=TP, serial=drop("1"), plant=drop("1", seed=lambda rank: 7 + rank), operators=["1"]
    ),
    "shards that draw their own masks": Fault(
        split=Z2, serial=drop("5"), plant=drop("5", seed=lambda rank: 7 + rank), operators=["5"]
    ),
    "a stage that draws other masks": Fault(
        split=PP, serial=drop("7"), plant=drop("7", seed=lambda rank: 7 + rank), operators=["7"]
    ),
    # the wrong numbers
    "an operator in single precision": Fault(
        split=DP, plant=change_output("4", _single), operators=["4"]
    ),
    "a row product in single precision": Fault(
        split=TP, plant=change_output("2", _single), operators=["2"]
    ),
    "a stage in half precision": Fault(
        split=PP, plant=change_output("6", lambda x: x.bfloat16().double()), operators=["6"]
    ),
    "shards exchanged in single precision": Fault(
        split=Z3,
        plant=change_gradient(["4.weight"], _single),
        kind="gradient",
        operators=["4.weight"],
    ),
    "a parameter kept in single precision": Fault(
        split=Z1,
        plant=after_update("0.weight", lambda _, new: _single(new)),
        kind="parameter",
        operators=["0.weight"],
    ),
    # samples in the wrong place
    "micro-batches exchanged": Fault(split=DP, batch="swapped", operators=["0"]),
    "the micro-batch before handed on": Fault(
        split=PP, plant=earlier_micro_batch("5"), operators=["5"]
    ),
    "targets of another micro-batch": Fault(
        split=PP, batch="targets", kind="output gradient", operators=["8"]
    ),
    "samples of another step": Fault(split=TP, batch="next", operators=["0"]),
    "replicas exchanged": Fault(split=DP, plant=other_replica, operators=["0"]),
    "replicas of a pipeline exchanged": Fault(split=PP_DP, plant=other_replica, operators=["0"]),
    # ties, masks, constants
    "a tied table that is stale on the last stage": Fault(
        split=PP,
        model="gpt",
        plant=change_weight("words.weight", nudge, rank=1),
        operators=["head"],
    ),
    "a causal mask that is missing": Fault(
        split=TP,
        model="gpt",
        plant=set_attribute("layers.1.attention", "causal", False),
        operators=["layers.1.attention.out"],
    ),
    "another constant of a norm": Fault(
        split=DP,
        model="gpt",
        plant=set_attribute("layers.2.after", "eps", 1e-3),
        operators=["layers.2.after"],
    ),
    # the update
    "another rate of one replica": Fault(
        split=DP,
        plant=change_groups("lr", lambda rate: rate * 1.001, rank=1),
        kind="parameter",
        operators=["0.weight"],
    ),
    "another decay of one stage": Fault(
        split=PP,
        plant=change_groups("weight_decay", lambda decay: decay * 2, rank=1),
        kind="parameter",
        operators=["6.weight"],
    ),
    "another memory of the optimizer": Fault(
        split=Z1,
        plant=change_groups("betas", lambda betas: (0.8, betas[1])),
        kind="optimizer",
        operators=["0.weight:exp_avg"],
    ),
    "gradients that are not cleared": Fault(
        split=DP, plant=keep_gradients, kind="gradient", operators=["0.weight"], step=1
    ),
}
"""Name -> the fault. In fp64, where rounding explains least."""

PAIRS: list[tuple[str, dict[str, Any]]] = [
    (model, {**split, "precision": precision, "micro_batch": micro_batch})
    for micro_batch in (4, 2)
    for precision in ("fp64", "fp32")
    for model, splits in {
        "mlp": (DP, Z1, Z2, Z3, TP, PP, {**PP, "schedule": "gpipe"}),
        "cnn": (DP, Z1, Z3, PP),
        "resnet-group": (DP, Z2, PP),
        "resnet-batch": (DP,),
        "lstm": (DP, Z3, PP),
        "encoder": (DP, Z1, TP, SP, PP),
        "gpt": (DP, Z3, TP, PP, {**PP, "virtual_stages": 2, "schedule": "interleaved"}),
        "moe": (DP, Z2, PP, TP),
        "encoder-decoder": (DP, Z1, PP, TP),
        "u-net": (DP, Z3, TP),
        "two-tower": (DP, Z2, TP, PP),
        "frozen-norm": (DP, Z1),
    }.items()
    for split in splits
] + [
    (model, {**split, "precision": precision})
    for precision in ("fp64", "fp32")
    for model in ("mlp", "gpt", "encoder", "cnn", "two-tower")
    for split in (PP_DP, PP_TP, TP_DP, {**PP_DP, "zero": 1}, {**TP_DP, "zero": 3})
    if not (model in ("cnn",) and "tp" in split)
]
"""Model and split of pairs of runs without a fault."""
