"""A tuning that a page begins: what is tried of which parameter, as its user types it, and how its trials stand. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from pydantic import BaseModel, Field

from airflow_training.compiler.search_space import Range, trials_of
from airflow_training.documents.dag import Param
from airflow_training.documents.loading import load_documents
from airflow_training.errors import InputError, Problem
from airflow_training.web.document_check import CheckAnswer
from airflow_training.web.models import Summary
from airflow_training.web.new_runs import trial_name

__all__ = [
    "MOST_TRIALS",
    "TrialAnswer",
    "TunedParameter",
    "Tuning",
    "TuningAnswer",
    "TuningCheckAnswer",
    "TuningPage",
    "differing",
    "place_of",
    "planned_trials",
    "shared_output",
]

MOST_TRIALS = 50
"""Of a tuning that a page begins: each is a run of its own. A DAG with `tune` has more."""
_MOST_PARAMETERS = 20


class TunedParameter(BaseModel):
    """What is tried of one parameter of `dag.params`: values, or a range."""

    name: str = Field(max_length=200)
    values: str | None = Field(None, max_length=4000)
    """As typed: values in YAML with commas between them. None: a range."""
    low: str = Field("", max_length=100)
    high: str = Field("", max_length=100)
    """As typed, so that 1.0 is no whole number."""
    log: bool = False
    """Every power of ten of the range is equally likely."""


class Tuning(BaseModel):
    parameters: list[TunedParameter] = Field(max_length=_MOST_PARAMETERS)
    trials: int | None = None
    """How many random sets are tried; None: every combination."""
    seed: int = 0


class TuningCheckAnswer(CheckAnswer):
    trials: int
    """How many runs it begins; 0: there are mistakes."""


class TuningAnswer(BaseModel):
    """A tuning that has begun."""

    tuning: str
    begun: int
    """Trials whose runs were taken."""
    trials: int
    why: str
    """Why some were not; empty: none was refused."""
    pending: int
    """Trials that are still being begun; their runs come by and by."""


class TrialAnswer(BaseModel):
    number: int
    """From 0."""
    params: dict[str, Any]
    """Those that are not equal in all trials."""
    value: float | None
    """Newest value of the metric that was asked for; None: it was not told."""
    summary: Summary


class TuningPage(BaseModel):
    """How the trials stand, of those that the user may read."""

    trials: list[TrialAnswer]
    planned: int
    """How many there are to be; those without a run yet are not in `trials`."""
    metrics: list[str]
    """Names of what they have told."""
    best: int | None
    """Number of the trial that won so far; None: none has succeeded with the metric."""


def planned_trials(
    tuning: Tuning, declared: Mapping[str, Param]
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Problem]]:
    """Return the parameters of each trial, or every mistake, in the words of `tune`."""
    problems: list[Problem] = []
    space: dict[str, Sequence[Any] | Range] = {}
    for each in tuning.parameters:
        field = f"space.{each.name}"
        if each.name in space:
            problems.append(Problem(code="duplicate", field=field, message="is named twice"))
            continue
        try:
            space[each.name] = _values(each, field)
        except InputError as error:
            problems += error.problems
    trials: Sequence[Mapping[str, Any]] = ()
    if space or not problems:
        try:
            trials = trials_of(space, declared=declared, trials=tuning.trials, seed=tuning.seed)
        except InputError as error:
            problems += error.problems
    if len(trials) > MOST_TRIALS:
        problems.append(
            Problem(
                code="out_of_range",
                field="trials",
                value=len(trials),
                message=f"would be {len(trials)} runs, at most {MOST_TRIALS} are begun from here",
                hint=f"say how many to try, {MOST_TRIALS} or fewer; tune() in a DAG tries more",
            )
        )
    return ((), problems) if problems else (trials, ())


def _values(tuned: TunedParameter, field: str) -> Sequence[Any] | Range:
    """Read what was typed; raises InputError."""
    if tuned.values is not None:
        found = _read(f"[{tuned.values}]")
        if not isinstance(found, list) or not found:
            raise InputError.of(
                code="wrong_type",
                field=field,
                value=tuned.values,
                message="must be values with commas between them",
                hint="0.1, 0.01, 0.001",
            )
        return [_finite(value, f"{field}[{place}]") for place, value in enumerate(found)]
    ends = {name: _read(text) for name, text in (("low", tuned.low), ("high", tuned.high))}
    problems = [
        Problem(
            code="wrong_type",
            field=f"{field}.{name}",
            value=value,
            message="must be a number",
        )
        for name, value in ends.items()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value)
    ]
    if problems:
        raise InputError(problems=problems)
    return Range(**ends, log=tuned.log)


def _finite(value: Any, field: str) -> Any:
    """Return the value; raises InputError for a number that JSON, and so no run of it, can have."""
    if isinstance(value, float) and not isfinite(value):
        raise InputError.of(
            code="out_of_range", field=field, value=str(value), message="must be a finite number"
        )
    if isinstance(value, dict):
        for name, each in value.items():
            _finite(each, f"{field}.{name}")
    elif isinstance(value, list):
        for place, each in enumerate(value):
            _finite(each, f"{field}[{place}]")
    return value


def _read(text: str) -> Any:
    """Return the value of a text, as the command line reads a parameter; None where it is no YAML."""
    loaded = load_documents(text)
    if len(loaded) != 1 or loaded[0].problems:
        return None
    return loaded[0].data


def shared_output(uri: str, trials: Sequence[Mapping[str, Any]]) -> Sequence[Problem]:
    """Return that trials would put their result into one place; nothing where each has its own."""
    inserted = " ".join(re.findall(r"\{\{(.*?)\}\}", uri, re.DOTALL))
    if len(trials) < 2 or not uri or re.search(r"\brun_id\b", inserted):
        return ()
    named = [name for name in trials[0] if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", inserted)]
    places = {repr([each[name] for name in named]) for each in trials}
    if len(places) == len(trials):
        return ()
    return [
        Problem(
            code="conflict",
            field="spec.output.uri",
            value=uri,
            message=f"is one place for several of {len(trials)} trials: each would write over the one before",
            hint=f"{uri.rstrip('/')}/{{{{ run_id }}}}",
        )
    ]


def place_of(run_id: str, tuning: str) -> tuple[int, int] | None:
    """Return which trial of a tuning a run is, and of how many; None: it is none of it."""
    found = re.search(r"(\d{3})of(\d{3})$", run_id)
    if found is None:
        return None
    number, trials = int(found[1]), int(found[2])
    is_one = number < trials and run_id.endswith(trial_name(tuning, number, trials))
    return (number, trials) if is_one else None


def differing(params: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """Return the names of the parameters that are not equal in all trials, in their order."""
    names = dict.fromkeys(name for each in params for name in each)
    return [name for name in names if any(each.get(name) != params[0].get(name) for each in params)]
