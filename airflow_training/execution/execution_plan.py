"""What a plan says of execution: read from the file that a job's ranks get, and checked. Pure but for the file.

The file is the planner's answer (`planning.answers.report.plan_document`): its key `strategy` counts here,
all else is for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from airflow_training.errors import InputError, Problem
from airflow_training.planning.view.strategy import ParallelConfig

__all__ = ["ExecutionPlan", "check_world", "plan_of", "read_plan"]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp64")
"""Kinds of numbers that torch computes with here; fp64 is for comparing runs."""
SCHEDULES: Mapping[str, str] = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
}
"""A plan's name of a schedule -> that of `torch.distributed.pipelining`."""
LOOPED = frozenset({"interleaved", "zero-bubble"})
"""Schedules that give a rank several stages."""
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "zero": (0, 1, 2, 3),
    "recompute": ("none", "selective", "full"),
    "precision": PRECISIONS,
    "schedule": tuple(SCHEDULES),
}

_LISTS = {"stage_layers": "layers", "replica_samples": "samples"}
"""Fields with a whole number for each stage or replica, and what they count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPlan(ParallelConfig):
    """A split that ranks carry out, with the numbers and schedules that torch has, more than the planner prices."""

    precision: str = "fp32"
    schedule: str = "1f1b"
    replica_samples: tuple[int, ...] | None = None
    """Samples of each replica in a pass, first to last; None: `micro_batch` each."""

    @property
    def stages(self) -> int:
        return self.pp * self.virtual_stages

    @property
    def micro_batches(self) -> int:
        """Passes of each replica in a step."""
        return self.global_batch // self.shared_batch

    @property
    def shared_batch(self) -> int:
        """Samples of all replicas together in a pass: the micro-batch of the serial training."""
        return self.micro_batch * self.dp

    @property
    def samples(self) -> tuple[int, ...]:
        """Samples of each replica in a pass."""
        return self.replica_samples or (self.micro_batch,) * self.dp

    @property
    def is_whole(self) -> bool:
        """Whether each rank holds all of the training's state: plain replicas."""
        return self.tp == self.pp == 1 and (self.zero == 0 or self.dp == 1)

    @property
    def is_replicated(self) -> bool:
        """Whether nothing of the state is lost with one rank: another one has the same part."""
        return self.zero == 0 and self.dp > 1

    @property
    def torch_schedule(self) -> str:
        """What torch calls the schedule; a plan that interleaves may still say `1f1b`.

        With fewer micro-batches than stages 1F1B is GPipe, and torch has it under that name only.
        """
        name = self.schedule
        if self.virtual_stages > 1 and name not in LOOPED:
            name = "interleaved"
        if name == "1f1b" and self.micro_batches < self.pp:
            name = "gpipe"
        return SCHEDULES[name]


def read_plan(path: str | Path) -> ExecutionPlan:
    """Read a plan's file.

    Raises:
        InputError: it is no JSON, lacks a field, or says what cannot be; all mistakes are named.

    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"cannot be read: {error}"
        raise InputError.of(
            code="BadPlan", field="PLAN_FILE", message=message, path=str(path)
        ) from None
    return plan_of(document, path=str(path))


def plan_of(document: Any, *, path: str = "") -> ExecutionPlan:
    """Read what a plan's document says of execution, with every mistake at once.

    Raises:
        InputError: a field is missing, of the wrong kind, or contradicts another.

    """
    strategy = document.get("strategy") if isinstance(document, dict) else None
    if not isinstance(strategy, dict):
        message = "a plan has a mapping `strategy`"
        raise InputError.of(code="BadPlan", field="strategy", message=message, path=path)
    given = {
        each.name: strategy[each.name] for each in fields(ExecutionPlan) if each.name in strategy
    }
    problems = list(_mistakes(given))
    if not problems:
        lists = {name: tuple(given[name]) for name in _LISTS if given.get(name) is not None}
        plan = ExecutionPlan(**{**given, **lists})
        problems = list(_contradictions(plan))
        if not problems:
            return plan
    raise InputError(problems=tuple(problems), path=path)


def check_world(plan: ExecutionPlan, world: int) -> None:
    """Check that as many ranks were started as the plan has devices.

    Raises:
        InputError: names both numbers.

    """
    if plan.devices != world:
        raise InputError.of(
            code="WorldMismatch",
            field="strategy",
            message=(
                f"the plan is for {plan.devices} ranks (tp {plan.tp} x pp {plan.pp} x dp {plan.dp} x cp {plan.cp}),"
                f" and {world} were started"
            ),
            value=world,
            allowed=(plan.devices,),
            hint="let the plan set the replicas (`apply: [replicas, env]`), or start as many ranks",
        )


def _mistakes(given: Mapping[str, Any]) -> Iterator[Problem]:
    for each in fields(ExecutionPlan):
        name = each.name
        if name in ("global_batch", "micro_batch") and name not in given:
            yield _problem(name, "is missing", None)
            continue
        if name not in given:
            continue
        value = given[name]
        if name in _CHOICES:
            if value not in _CHOICES[name]:
                yield _problem(name, f"{value!r} is not supported", value, _CHOICES[name])
        elif name == "sequence_parallel":
            if not isinstance(value, bool):
                yield _problem(name, f"{value!r} is neither true nor false", value)
        elif name in _LISTS:
            whole = isinstance(value, list | tuple) and all(_is_count(item) for item in value)
            if value is not None and not whole:
                yield _problem(name, f"{value!r} is no list of numbers of {_LISTS[name]}", value)
        elif not _is_count(value):
            yield _problem(name, f"{value!r} is no whole number from 1 on", value)


def _contradictions(plan: ExecutionPlan) -> Iterator[Problem]:
    if plan.global_batch % plan.shared_batch:
        message = f"{plan.global_batch} samples are no multiple of {plan.dp} replicas of {plan.micro_batch}"
        yield _problem("global_batch", message, plan.global_batch)
    if len(plan.samples) != plan.dp or sum(plan.samples) != plan.shared_batch:
        message = (
            f"{', '.join(map(str, plan.samples))} are not {plan.dp} numbers that add up to"
            f" {plan.shared_batch}, the samples of all replicas in a pass"
        )
        yield _problem("replica_samples", message, list(plan.samples))
    if plan.virtual_stages > 1 and plan.pp == 1:
        yield _problem("virtual_stages", "more than one needs a pipeline (pp)", plan.virtual_stages)
    if plan.stage_layers is not None and len(plan.stage_layers) != plan.pp:
        message = f"{len(plan.stage_layers)} numbers for {plan.pp} stages"
        yield _problem("stage_layers", message, list(plan.stage_layers))
    if plan.stage_layers is not None and plan.virtual_stages > 1:
        yield _problem("stage_layers", "goes with one virtual stage", list(plan.stage_layers))
    if plan.pp > 1 and plan.schedule == "zero-bubble" and plan.recompute != "none":
        message = "zero-bubble schedules split the backward pass, which recomputation cannot follow"
        yield _problem("recompute", message, plan.recompute, ("none",))
    rounds = max(1, plan.micro_batches // plan.pp)
    if plan.torch_schedule in ("Interleaved1F1B", "InterleavedZeroBubble") and (
        plan.micro_batches % rounds
    ):
        message = f"{plan.micro_batches} micro-batches are not {rounds} equal rounds over {plan.pp} stages"
        yield _problem("micro_batch", message, plan.micro_batch)
    if plan.cp > 1:
        message = "attention over a sequence that ranks share is not carried out"
        yield _problem("cp", message, plan.cp, (1,))
    if plan.ep > 1:
        message = "experts on ranks of their own are not carried out; tp splits their products"
        yield _problem("ep", message, plan.ep, (1,))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _problem(name: str, message: str, value: Any, allowed: tuple[Any, ...] = ()) -> Problem:
    return Problem(
        code="BadPlan", field=f"strategy.{name}", message=message, value=value, allowed=allowed
    )
