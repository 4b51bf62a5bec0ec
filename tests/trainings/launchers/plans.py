"""Random plans: strategies that the planner's own space holds, of random transformers and clusters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

from airflow_training.planning.search import space, table
from airflow_training.planning.search.constraints import parse
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import Precision, Strategy, TransformerModel
from airflow_training.planning.view.transformer import computation
from tests.planning.standin import cluster

__all__ = ["RandomPlan", "plans"]

ANY = parse({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPlan:
    model: TransformerModel
    strategy: Strategy


def plans(number: int, *, seed: int = 18) -> Iterator[RandomPlan]:
    """Yield so many plans; every axis, mode, precision and kind of stage comes up."""
    dice = random.Random(seed)
    while number:
        if plan := _plan(dice):
            number -= 1
            yield plan


def _plan(dice: random.Random) -> RandomPlan | None:
    heads = dice.choice([4, 8, 12, 16])
    model = TransformerModel(
        hidden=64 * heads,
        layers=dice.choice([2, 4, 6, 7, 12, 24]),
        heads=heads,
        seq=dice.choice([1024, 2048]),
        vocab=1024,
        experts=dice.choice([0, 8]),
        experts_per_token=2,
        tied_embeddings=False,
    )
    if not model.experts:
        model = replace(model, experts_per_token=0)
    workload = Workload(
        view=computation(model),
        global_batch=dice.choice([8, 16, 32, 48]),
        precision=dice.choice(get_args(Precision)),
    )
    limits = space.limits_of(workload, cluster(nodes=dice.choice([1, 2, 4]), per_node=8))
    splits = space.splits(limits, ANY)
    # one of each size of a group is as likely as another, though most splits are wide
    wanted = {
        name: dice.choice([1, 1, 2, 4]) for name in ("tp", "pp", "cp", "dp", "ep", "virtual_stages")
    }
    near = [
        sum(getattr(splits, n)[row] != v for n, v in wanted.items())
        for row in range(table.size(splits))
    ]
    least = min(near)
    row = dice.choice([row for row, far in enumerate(near) if far == least])
    candidates = space.expand(table.take(splits, slice(row, row + 1)), space.modes(ANY))
    strategy = table.strategy_at(candidates, dice.randrange(table.size(candidates)), workload)
    more: dict[str, Any] = {}
    if strategy.pp > 1 and strategy.virtual_stages == 1:
        more["schedule"] = dice.choice(["gpipe", "1f1b"])
        if dice.random() < 0.3:
            more["stage_layers"] = _stages(dice, model.layers, strategy.pp)
    return RandomPlan(model=model, strategy=replace(strategy, **more))


def _stages(dice: random.Random, layers: int, stages: int) -> tuple[int, ...]:
    cuts = sorted(dice.sample(range(1, layers), stages - 1))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, layers], strict=True))
