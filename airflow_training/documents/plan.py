"""Model of the `plan` block: what to plan, for which cluster, and what of the answer to apply.

Models, clusters and constraints have a schema of their own, the planner's, which checks what is in
them: the same text works inside a job and in a file beside it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from airflow_training.documents.base import DnsLabel, Many, Model, Number, discriminate_by_kind

__all__ = ["APPLY", "Applied", "Engine", "Objective", "Plan"]

Applied = Literal["replicas", "env", "microBatch", "engine"]
APPLY: tuple[Applied, ...] = ("replicas", "env", "microBatch")
"""What a plan applies where it does not say."""


class Objective(Model):
    """What a plan is chosen by, where one word does not say it all."""

    by: Literal["time", "money", "tokens"] | None = None
    """None: `tokens` where they are given, else `time`."""
    tokens: Annotated[Number, Field(gt=0)] | None = None
    """To train on as fast as the budget allows."""
    budget: Annotated[Number, Field(gt=0)] | None = None
    """In the currency of the cluster's prices."""
    purchase: Literal["on_demand", "spot"] = "on_demand"
    restart_seconds: Annotated[Number, Field(gt=0)] = 900.0
    """What losing a spot device costs: start-up, and half the time between two checkpoints."""


class Engine(Model):
    """What is trained where the plan starts the training itself: functions of one Python module."""

    model: str | None = None
    """`module:function`, which returns the module and example inputs; None: that of `plan.model`."""
    loss: str = "loss"
    """Of the module's output and the target."""
    optimizer: str = "optimizer"
    """Of a list of parameters."""
    data: str = "data"
    """Of nothing; returns the samples, pairs of input and target, by number."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Of the whole training; either these or `epochs`."""
    epochs: Annotated[int, Field(ge=1)] | None = None
    seed: int = 0
    """Of the weights and of the order of samples."""
    shuffle: bool = True
    randomness: Literal["refuse", "independent"] = "refuse"
    """`independent`: modules may draw random numbers that differ from those of one device."""
    rebalance: Annotated[Number, Field(gt=0)] | None = None
    """How far the slowest replica may be above the mean before samples are dealt out by speed; None: they never are."""
    precision: Literal["fp64"] | None = None
    """What is computed in instead of what was planned, to compare runs."""
    python: Many[str] = Field(default_factory=lambda: ["python"])
    """Words that start Python."""


class Plan(Model):
    model: (
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[dict[str, Any], Tag("<object>")],
            discriminate_by_kind(
                "the description of a transformer, a file, or module:function to trace",
                kinds=("<text>", "<object>"),
            ),
        ]
        | None
    ) = None
    """Description of a transformer, a file with one, or `module:function` to trace."""
    cluster: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[dict[str, Any], Tag("<object>")],
        discriminate_by_kind(
            "request, nodes, a file or a cluster document", kinds=("<text>", "<object>")
        ),
    ] = "nodes"
    """`nodes`: what the runtime sees; `request`: what the job asks for; a file; a cluster document."""
    global_batch: Annotated[int, Field(ge=1)] | None = None
    """Samples per step."""
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"] | None = None
    """None: bf16 where the devices compute in it, unless the plan splits the network of a trainer; else fp32."""
    objective: Annotated[
        Annotated[Literal["time", "money"], Tag("<text>")] | Annotated[Objective, Tag("<object>")],
        discriminate_by_kind("time, money, or {tokens, budget}", kinds=("<text>", "<object>")),
    ] = "time"
    constraints: dict[str, Any] = Field(default_factory=dict)
    """Part of the strategy -> a value, `{min, max}` or `{not: [...]}`."""
    apply: Many[Applied] = Field(default_factory=lambda: list(APPLY))
    """What of the plan the run gets; empty: it is only shown."""
    replan: Literal["OnChange", "Never"] = "OnChange"
    """Whether a run whose plan was applied is planned again when its cluster changes."""
    role: DnsLabel | None = None
    """Whose replicas are set; None: the last role that takes ranks."""
    engine: Engine | None = None
    """Needs `engine` in `apply`."""
