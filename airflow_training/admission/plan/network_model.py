"""The model of a job that trains a network: what is trained is what is planned for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.plan import Plan
from airflow_training.documents.resolved_blocks import ResolvedTrainer
from airflow_training.errors import Problem

if TYPE_CHECKING:
    from airflow_training.planning.search.constraints import Constraints

__all__ = [
    "DATA_ONLY",
    "axis_problems",
    "model_problems",
    "network_obstacles",
    "pinned_problems",
    "with_network",
]

DATA_ONLY = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "zero": 0, "recompute": "none"}
"""What plans may not vary for the trainer without `engine`: each process has the whole network and a share of the samples."""


NOT_SPLIT = {"cp": 1, "ep": 1}
"""What plans may not vary for the trainer with `engine`."""


def axis_problems(plan: Plan) -> list[Problem]:
    """Every constraint of a plan that the trainer does not carry out."""
    split = "engine" in plan.apply
    without = "" if split else " without engine in apply"
    return [
        Problem(
            code="conflict",
            field=f"spec.plan.constraints.{axis}",
            value=plan.constraints[axis],
            message=f"spec.trainer carries out no other than {only}{without}",
            allowed=(only,),
        )
        for axis, only in (NOT_SPLIT if split else DATA_ONLY).items()
        if plan.constraints.get(axis, only) != only
    ]


def with_network(job: TrainingJob, trainer: ResolvedTrainer | None) -> TrainingJob:
    """Return the job with the network that it trains as the model of its plan, where it plans and names no other."""
    plan = job.spec.plan
    if trainer is None or plan.model is not None or not plan.model_fields_set:
        return job
    planned = plan.model_copy(update={"model": dict(trainer.network.document)})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"plan": planned})})


def model_problems(plan: Plan, trainer: ResolvedTrainer | None) -> list[Problem]:
    """Return that a plan names another network than the one that it splits for the trainer."""
    if trainer is None or "engine" not in plan.apply or not isinstance(plan.model, Mapping):
        return []
    if plan.model.get("kind") != "Network" or plan.model == dict(trainer.network.document):
        return []  # what is no network was found to be wrong before
    message = "is another network than that of trainer, which is what engine trains: leave it out"
    return [Problem(code="conflict", field="spec.plan.model", message=message)]


def pinned_problems(plan: Plan, constraints: Constraints) -> list[Problem]:
    """Every reason why what the constraints pin of a split is none for the network that the job trains."""
    network = plan.model
    if "engine" not in plan.apply or not isinstance(network, Mapping):
        return []
    if network.get("kind") != "Network":
        return []
    pinned = {key: rule.pinned for key, rule in constraints.rules.items()}
    strategy = {key: value for key, value in pinned.items() if value is not None}
    if plan.global_batch is not None:
        strategy["global_batch"] = plan.global_batch
    return [
        Problem(code="conflict", field=f"spec.plan.{field}", message=message)
        for field, message in network_obstacles(network, strategy, precision=plan.precision)
    ]


def network_obstacles(
    network: Any, strategy: Mapping[str, Any], *, precision: str | None
) -> Iterator[tuple[str, str]]:
    """Yield why a network cannot be trained by a strategy, with the layer: what its ranks would find before they begin.

    A field of `plan` comes first. Of a strategy that says not all, only what follows from what it says.
    """
    layers = [*_layers(network["spec"]["layers"])]
    told = {each["type"]: f"layer '{each['name']}' ({each['type']})" for each in reversed(layers)}
    dp, micro_batch = strategy.get("dp"), strategy.get("micro_batch")
    replicas = dp or 1
    for norm in (told[each] for each in told if each.startswith("BatchNorm")):
        if replicas > 1 and strategy.get("pp", 1) > 1:
            yield (
                "constraints",
                f"{norm} needs the whole micro-batch, of which {dp} replicas of a pipeline's stage hold a part each",
            )
        if strategy.get("recompute", "none") != "none":
            yield (
                "constraints",
                f"{norm} counts what passes it, and recompute {strategy['recompute']} would pass it twice",
            )
        if dp and micro_batch and micro_batch * dp < 2:
            yield "constraints", f"{norm} needs two samples at once, and a micro-batch has one"
    batch = strategy.get("global_batch")
    cut = micro_batch and batch and micro_batch < batch
    if (ranking := told.get("PairwiseRankingLoss")) and (replicas > 1 or cut):
        yield (
            "constraints",
            (
                f"{ranking} is a mean over pairs, of which parts of a batch have unlike numbers: "
                "take dp 1 and a microBatch of all of globalBatch, or ListwiseRankingLoss"
            ),
        )
    if precision in ("bf16", "fp16") and (entropy := told.get("BCELoss")):
        yield (
            "precision",
            f"{entropy} is not safe in {precision}: take fp32, or BCEWithLogitsLoss without the Sigmoid",
        )


def _layers(layers: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the layers of a network, those of blocks too."""
    for each in layers:
        yield from _layers(each["layers"]) if "layers" in each else [each]
