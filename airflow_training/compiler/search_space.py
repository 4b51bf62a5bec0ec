"""Which sets of parameters a tuning tries: every combination, or a random part of them. Runs nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.dag import Param
from airflow_training.documents.params import check_value
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

__all__ = ["Range", "trials_of"]

_MOST = 1000
"""Airflow maps a task over at most 1024 values unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `low` to `high`, both included. `log`: equally likely in every power of ten.

    Whole numbers where both ends are whole. `tune` takes it as the values of one parameter, and
    raises InputError where `low` is not below `high`, or not above 0 with `log`.

    >>> import random
    >>> Range(16, 256).draw(random.Random(1))
    48
    >>> 1e-4 <= Range(1e-4, 0.1, log=True).draw(random.Random(1)) <= 0.1
    True
    """

    low: float
    high: float
    log: bool = False

    def draw(self, dice: random.Random) -> float:
        """Return a value between the bounds, at random: whole where both bounds are."""
        if self.log:
            value = math.exp(dice.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = dice.uniform(self.low, self.high)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return min(max(round(value), self.low), self.high)
        return float(f"{value:.6g}")  # as a person would type it


Space = Mapping[str, Sequence[Any] | Range]


def trials_of(
    space: Space, *, declared: Mapping[str, Param], trials: int | None, seed: int
) -> list[dict[str, Any]]:
    """Return the parameters of each trial; the same arguments give the same trials.

    Without `trials` these are all combinations of a space of lists; with it as many random
    ones, none twice where the space has lists only. `declared` are the job's own parameters.

    Raises InputError for a space that is empty, too large, or that the job would refuse.
    """
    problems = [*_problems(space, declared=declared, trials=trials)]
    if problems:
        raise InputError(problems=problems)
    lists = {name: list(values) for name, values in space.items() if not isinstance(values, Range)}
    if len(lists) < len(space):
        dice = random.Random(seed)  # noqa: S311 - no secret: a tuning is to be repeatable
        return [_draw(space, dice) for _ in range(trials or 0)]
    combinations = math.prod(len(values) for values in lists.values())
    chosen: Sequence[int] = range(combinations)
    if trials is not None and trials < combinations:
        chosen = random.Random(seed).sample(chosen, trials)  # noqa: S311 - as above
    elif combinations > _MOST:
        raise InputError.of(
            code="out_of_range",
            field="space",
            value=combinations,
            message=f"has {combinations} combinations, at most {_MOST} can be tried",
            hint="trials=50 takes 50 of them at random",
        )
    return [_combination(lists, number) for number in chosen]


def _draw(space: Space, dice: random.Random) -> dict[str, Any]:
    return {
        name: values.draw(dice) if isinstance(values, Range) else dice.choice(list(values))
        for name, values in space.items()
    }


def _combination(lists: Mapping[str, Sequence[Any]], number: int) -> dict[str, Any]:
    """Return the `number`-th combination in the order of nested loops, the last name fastest."""
    picked = {}
    for name in [*lists][::-1]:
        number, place = divmod(number, len(lists[name]))
        picked[name] = lists[name][place]
    return {name: picked[name] for name in lists}


def _problems(space: Space, *, declared: Mapping[str, Param], trials: int | None) -> list[Problem]:
    if not space:
        return [Problem(code="missing", field="space", message="names no parameter to vary")]
    problems = []
    if trials is not None and not 1 <= trials <= _MOST:
        message = f"must be between 1 and {_MOST}"
        problems.append(Problem(code="out_of_range", field="trials", value=trials, message=message))
    for name, values in space.items():
        field = f"space.{name}"
        if name not in declared:
            problems.append(
                Problem(
                    code="bad_parameter",
                    field=field,
                    value=name,
                    message=f"the job declares no parameter '{name}' in dag.params",
                    allowed=sorted(declared),
                    hint=did_you_mean(name, declared),
                )
            )
        elif isinstance(values, Range):
            problems += _of_range(values, declared[name], field=field, trials=trials)
        elif not _is_list(values):
            problems.append(
                Problem(
                    code="wrong_type",
                    field=field,
                    message="must be a list of values or a Range, with at least one value",
                )
            )
        else:
            for place, value in enumerate(values):
                problems += check_value(declared[name], value, ("space", name, place))
    return problems


def _is_list(values: Any) -> bool:
    """Return whether this is a list with something in it; callers may give anything."""
    return isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0


def _of_range(values: Range, param: Param, *, field: str, trials: int | None) -> list[Problem]:
    if values.low >= values.high or (values.log and values.low <= 0):
        message = "low must be less than high" + (", and greater than 0 with log" * values.log)
        return [Problem(code="out_of_range", field=field, value=str(values), message=message)]
    if trials is None:
        message = "a Range has no end of values: say how many to try"
        return [Problem(code="missing", field="trials", message=message, hint="trials=20")]
    ends = [("low", values.low), ("high", values.high)]
    return [
        problem
        for end, value in ends
        for problem in check_value(param, value, (*field.split("."), end))
    ]
