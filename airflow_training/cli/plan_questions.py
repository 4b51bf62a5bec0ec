"""From the options of `plan search` and `plan explain` to what the planner is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from airflow_training.cli.output import fail
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from airflow_training.planning.cost.constants import TimeConstants
    from airflow_training.planning.search.constraints import Constraints
    from airflow_training.planning.search.objectives import Objective
    from airflow_training.planning.search.pricing import Pricing
    from airflow_training.planning.view.cluster import ClusterView
    from airflow_training.planning.view.plan import Workload
    from airflow_training.planning.view.strategy import Precision

__all__ = ["Options", "PlanQuestion", "constants_of", "pairs", "pricing_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was typed."""

    model: str
    cluster: Path | None
    global_batch: int | None
    precision: str
    objective: str
    constraint: Sequence[str] | None
    runtime: str
    constants: Path | None

    def question(self) -> PlanQuestion:
        """The question to the planner; raises InputError for options that contradict each other."""
        from airflow_training.admission.plan.history import pricing_of as pricing_after
        from airflow_training.cli.context import history
        from airflow_training.planning.search import constraints, objectives

        given = pairs("--constraint", self.constraint or ())
        workload, cluster = self.workload(), self.view()
        rules = constraints.parse(given, where="--constraint")
        goal = objectives.parse(_value("--objective", self.objective), where="--objective")
        pricing, measurements = pricing_after(
            constants_of(self.constants), workload, cluster, history=history()
        )
        return PlanQuestion(
            workload=workload,
            cluster=cluster,
            constraints=rules,
            objective=goal,
            pricing=pricing,
            measurements=measurements,
        )

    def workload(self) -> Workload:
        """The model and its training, from the options; raises InputError."""
        from airflow_training.planning.sources.models import read_model
        from airflow_training.planning.view.plan import Workload

        if not self.model:
            raise fail("--model", "is required", code="missing")
        if self.global_batch is None:
            raise fail("--global-batch", "is required", code="missing")
        return Workload(
            view=read_model(self.model, at=("model",)),
            global_batch=self.global_batch,
            precision=_precision(self.precision),
            runtime=self.runtime,
        )

    def view(self) -> ClusterView:
        """Return the cluster; raises InputError."""
        from airflow_training.planning.sources.files import read_cluster

        if self.cluster is None:
            raise fail("--cluster", "is required", code="missing")
        return read_cluster(self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """What the planner is asked."""

    workload: Workload
    cluster: ClusterView
    constraints: Constraints
    objective: Objective
    pricing: Pricing
    measurements: Mapping[str, Any]
    """What the pricing learned from runs, as a plan's document says it."""


def _precision(name: str) -> Precision:
    from airflow_training.planning.view.strategy import Precision

    known: tuple[Precision, ...] = get_args(Precision)
    found = next((each for each in known if each == name), None)
    if found is None:
        raise fail(
            "--precision",
            "is not one of the values that exist",
            value=name,
            allowed=known,
            hint=did_you_mean(name, known),
        )
    return found


def constants_of(path: Path | None) -> TimeConstants:
    """Return the constants of a file, else of the settings' file, else the shipped ones."""
    from airflow_training.cli.context import settings
    from airflow_training.planning.sources.calibration import chosen_constants

    return chosen_constants(str(path or settings().planner_constants))


def pricing_of(path: Path | None) -> Pricing:
    """Return the cost model that counts with these constants; raises InputError."""
    from airflow_training.planning.search.calibrated import pricing_with

    return pricing_with(constants_of(path))


def pairs(option: str, given: Sequence[str]) -> dict[str, Any]:
    """Return key -> value of `KEY=VALUE` words, values read as YAML; raises InputError."""
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for word in given:
        key, equals, text = word.partition("=")
        if not equals or not key:
            hint = f"{option} tp=8"
            problems += fail(option, f"{word!r} is no KEY=VALUE", value=word, hint=hint).problems
        elif key in found:
            hint = "once, as a value or a mapping: 'tp={min: 2, max: 8}'"
            message = f"'{key}' is given twice"
            problems += fail(option, message, code="duplicate", value=word, hint=hint).problems
        else:
            try:
                found[key] = _value(option, text)
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(problems=problems)
    return found


def _value(option: str, text: str) -> Any:
    from airflow_training.documents.loading import load_documents

    loaded = load_documents(text)
    if len(loaded) != 1 or loaded[0].problems:
        raise fail(option, f"{text!r} is no YAML value", value=text, hint="quote it")
    return loaded[0].data
