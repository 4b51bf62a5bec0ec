"""What Megatron-LM, DeepSpeed and torchtitan understand of ours is the plan: their own parsers read it."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_training.planning.answers.launchers import (
    deepspeed_config,
    megatron_arguments,
    megatron_variables,
    micro_batches,
    torchtitan_config,
)
from airflow_training.planning.view.stages import even_layers
from airflow_training.planning.view.strategy import Strategy
from tests.trainings.jobs import ENVIRONMENTS
from tests.trainings.launchers.plans import RandomPlan, plans

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
PYTHON = ENVIRONMENTS / "launchers" / "bin" / "python"
MEGATRON = os.environ.get("MEGATRON_LM", "")
PLANS = list(plans(200))
TYPES = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "bfloat16",
}

pytestmark.append(
    pytest.mark.skipif(
        not PYTHON.exists(), reason="`make frameworks` brings DeepSpeed and torchtitan"
    )
)


def read(program: str, cases: Iterable[dict[str, Any]], **env: str) -> list[dict[str, Any]]:
    """Return what a program understood of each case."""
    done = subprocess.run(
        [PYTHON, HERE / program],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def layers_of(plan: RandomPlan) -> list[int]:
    strategy = plan.strategy
    stages = strategy.pp * strategy.virtual_stages
    return list(strategy.stage_layers or even_layers(plan.model.layers, stages).tolist())


def words_of(plan: RandomPlan) -> list[str]:
    """Return the arguments that are the plan's, and those that are the model's."""
    model = plan.model
    words = [
        *megatron_arguments(plan.strategy, model.layers),
        *("--num-layers", model.layers, "--hidden-size", model.hidden),
        *("--num-attention-heads", model.heads, "--seq-length", model.seq),
        *("--max-position-embeddings", model.seq, "--untie-embeddings-and-output-weights"),
    ]
    if model.experts:
        words += ["--num-experts", model.experts, "--moe-router-topk", 2, "--disable-bias-linear"]
    return [str(word) for word in words]


def differences(
    plans: Iterable[RandomPlan], wanted: Iterable[dict[str, Any]], understood: list[dict[str, Any]]
) -> list[str]:
    """Return what was understood otherwise, with its plan."""
    return [
        f"{key}: {answer.get('refused', answer.get(key))}, not {value}: {plan.strategy}"
        for plan, meant, answer in zip(plans, wanted, understood, strict=True)
        for key, value in meant.items()
        if answer.get(key) != value
    ]


def said(strategy: Strategy, *names: str) -> dict[str, Any]:
    return {name: getattr(strategy, name) for name in names}


def test_the_plans_are_of_every_kind():
    strategies = [plan.strategy for plan in PLANS]
    for axis in ("tp", "pp", "cp", "ep", "dp", "virtual_stages"):
        assert sum(getattr(each, axis) > 1 for each in strategies) >= 20, axis
    for name in ("zero", "recompute", "overlap", "precision"):
        assert min(Counter(getattr(each, name) for each in strategies).values()) >= 5, name
    assert sum(len(set(layers_of(plan))) > 1 for plan in PLANS) >= 20


@pytest.mark.skipif(not MEGATRON, reason="MEGATRON_LM names no checkout of Megatron-LM")
def test_megatron_understands_the_plan():
    cases = [
        {
            "words": words_of(plan),
            "world": plan.strategy.devices,
            "env": megatron_variables(plan.strategy),
        }
        for plan in PLANS
    ]
    wanted = [as_megatron_does(plan) for plan in PLANS]
    understood = read("read_megatron.py", cases, PYTHONPATH=MEGATRON)
    assert differences(PLANS, wanted, understood) == []


def as_megatron_does(plan: RandomPlan) -> dict[str, Any]:
    strategy = plan.strategy
    overlaps = strategy.overlap != "none"
    return {
        **said(strategy, "tp", "pp", "cp", "ep", "dp", "virtual_stages"),
        **said(strategy, "micro_batch", "global_batch", "zero", "recompute"),
        "sequence_parallel": strategy.sequence_parallel or (strategy.ep > 1 and strategy.tp > 1),
        "overlap": overlaps,
        "prefetch": overlaps and strategy.zero > 0,
        "precision": "fp8" if strategy.precision == "fp8" else TYPES[strategy.precision],
        "stage_layers": layers_of(plan),
    }


def test_deepspeed_understands_the_plan():
    cases = [
        {
            "text": deepspeed_config(plan.strategy),
            "world": plan.strategy.devices,
            "replicas": plan.strategy.dp if splits_by_script(plan.strategy) else None,
        }
        for plan in PLANS
    ]
    understood = read("read_deepspeed.py", cases)
    wanted = [as_deepspeed_does(plan.strategy) for plan in PLANS]
    assert differences(PLANS, wanted, understood) == []


def splits_by_script(strategy: Strategy) -> bool:
    """Whether DeepSpeed needs groups that only the script can make."""
    return (
        sum(size > 1 for size in (strategy.tp, strategy.cp, 2 * strategy.pp - 1)) > 1
        or strategy.pp > 1
    )


def as_deepspeed_does(strategy: Strategy) -> dict[str, Any]:
    axes = () if splits_by_script(strategy) else ("tp", "cp")
    return {
        **said(strategy, "dp", "micro_batch", "global_batch", "zero", *axes),
        "rounds": micro_batches(strategy),
        "overlap": strategy.overlap != "none",
        "precision": TYPES[strategy.precision],
        "offload": False,
    }


def test_deepspeed_refuses_a_split_that_only_a_script_can_make():
    plans = [plan for plan in PLANS if splits_by_script(plan.strategy)]
    cases = [
        {"text": deepspeed_config(p.strategy), "world": p.strategy.devices, "replicas": None}
        for p in plans
    ]
    answers = read("read_deepspeed.py", cases)
    assert [a for a in answers if "train_batch_size is not equal" not in a.get("refused", "")] == []


def test_torchtitan_understands_the_plan():
    cases = [
        {
            "text": torchtitan_config(plan.strategy, plan.model.layers),
            "world": plan.strategy.devices,
            "layers": plan.model.layers,
        }
        for plan in PLANS
    ]
    understood = read("read_torchtitan.py", cases)
    wanted = [as_torchtitan_does(plan) for plan in PLANS]
    assert differences(PLANS, wanted, understood) == []
    for plan, answer in zip(PLANS, understood, strict=True):
        if plan.strategy.zero >= 2:
            assert answer["shards"] == plan.strategy.dp
        elif plan.strategy.devices == plan.strategy.dp and plan.strategy.ep == 1:
            assert answer["shards"] == 1


def as_torchtitan_does(plan: RandomPlan) -> dict[str, Any]:
    strategy = plan.strategy
    schedules = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
    return {
        **said(strategy, "tp", "pp", "cp", "ep", "dp", "virtual_stages"),
        **said(strategy, "micro_batch", "global_batch", "recompute"),
        "rounds": micro_batches(strategy),
        "reshards": "always" if strategy.zero == 3 else "never",
        "schedule": schedules[strategy.schedule],
        "stage_layers": layers_of(plan),
        "precision": TYPES[strategy.precision],
        "offload": False,
        **({"experts_tp": strategy.tp} if strategy.ep > 1 else {}),
    }
