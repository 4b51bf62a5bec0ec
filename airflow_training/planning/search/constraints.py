"""What users pin, bound or forbid: `{tp: 8, pp: {max: 16}, zero: {not: [3]}}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from airflow_training.documents.problems import kind_of, unknown_keys
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.planning.search.table import TEXTS
from airflow_training.planning.view.program import Recompute
from airflow_training.planning.view.strategy import Overlap, Schedule

SIZES = ("tp", "pp", "dp", "cp", "ep", "virtual_stages", "micro_batch", "devices")
"""Keys whose values are whole numbers from 1; `devices` is the product of tp, pp, dp and cp."""
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "zero": (0, 1, 2, 3),
    "sequence_parallel": (False, True),
    "recompute": get_args(Recompute),
    "overlap": get_args(Overlap),
    "schedule": get_args(Schedule),
}
LISTS = ("stage_layers", "stage_devices")
KEYS = (*SIZES, *CHOICES, *LISTS)
_FORMS = ("min", "max", "not")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintRule:
    """What one key may be."""

    pinned: Any = None
    """None: not pinned."""
    minimum: int | None = None
    maximum: int | None = None
    forbidden: tuple[Any, ...] = ()

    def allows(self, value: Any) -> bool:
        """Return whether a value keeps the rule."""
        if self.pinned is not None and value != self.pinned:
            return False
        if self.minimum is not None and value < self.minimum:
            return False
        if self.maximum is not None and value > self.maximum:
            return False
        return value not in self.forbidden

    @property
    def named(self) -> tuple[int, ...]:
        """The numbers that the rule names and that may be worth a try for that reason."""
        found = (self.pinned, self.minimum, self.maximum)
        return tuple(n for n in found if isinstance(n, int) and not isinstance(n, bool))

    def __str__(self) -> str:
        if self.pinned is not None:
            return str(self.pinned)
        if self.minimum is not None and self.minimum == self.maximum and not self.forbidden:
            return str(self.minimum)
        parts = [] if self.minimum is None else [f"at least {self.minimum}"]
        parts += [] if self.maximum is None else [f"at most {self.maximum}"]
        parts += [] if not self.forbidden else ["not " + ", ".join(map(str, self.forbidden))]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """The rules of a search, by key; a key without a rule is free."""

    rules: Mapping[str, ConstraintRule] = field(default_factory=dict)

    def rule(self, key: str) -> ConstraintRule:
        return self.rules.get(key, ConstraintRule())

    def keep(self, key: str, values: Iterable[Any]) -> list[Any]:
        """Return those of `values` that the rule of `key` allows."""
        rule = self.rule(key)
        return [value for value in values if rule.allows(value)]

    def mask(self, key: str, column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which rows of a column (codes, where the key is a text) keep its rule."""
        if key not in self.rules:
            return np.ones(len(column), dtype=np.bool_)
        distinct, where = np.unique(column, return_inverse=True)
        texts = TEXTS.get(key)
        rule = self.rule(key)
        kept = [rule.allows(texts[int(v)] if texts else v.item()) for v in distinct]
        return np.asarray(kept, dtype=np.bool_)[where]

    def without(self, key: str) -> Constraints:
        return Constraints(rules={k: rule for k, rule in self.rules.items() if k != key})


def parse(document: Mapping[str, Any], *, where: str = "constraints") -> Constraints:
    """Return the constraints of a document.

    Raises:
        InputError: an unknown key, a value that a key cannot have, or a rule that allows nothing;
            all of them at once.
    """
    message = "is no dimension of a strategy that can be constrained"
    problems = unknown_keys(document, KEYS, field=where, message=message)
    rules: dict[str, ConstraintRule] = {}
    for key in (key for key in document if key in KEYS):
        place = f"{where}.{key}"
        rule, found = _rule(key, document[key], place)
        problems += found
        if rule is not None and not found:
            problems += _contradictions(key, rule, place)
            rules[key] = rule
    if problems:
        raise InputError(problems)
    return Constraints(rules=rules)


def _rule(key: str, value: Any, place: str) -> tuple[ConstraintRule | None, list[Problem]]:
    if not isinstance(value, Mapping):
        pinned, problems = _value(key, value, place)
        return ConstraintRule(pinned=pinned), problems
    problems = unknown_keys(value, _FORMS, field=place, message="is no form of constraint")
    bounds: dict[str, int] = {}
    for form in ("min", "max"):
        if form not in value:
            continue
        if key not in SIZES and key != "zero":
            problems.append(
                Problem(
                    code="not_allowed",
                    field=f"{place}.{form}",
                    value=value[form],
                    message=f"{key} has no order: give a value, or {{not: [...]}}",
                )
            )
            continue
        bounds[form], found = _value(key, value[form], f"{place}.{form}")
        problems += found
    unwanted = value.get("not", [])
    if not isinstance(unwanted, list | tuple):
        unwanted = [unwanted]
    forbidden: list[Any] = []
    for number, item in enumerate(unwanted):
        read, found = _value(key, item, f"{place}.not[{number}]")
        forbidden.append(read)
        problems += found
    rule = ConstraintRule(
        minimum=bounds.get("min"), maximum=bounds.get("max"), forbidden=tuple(forbidden)
    )
    return rule, problems


def _value(key: str, value: Any, place: str) -> tuple[Any, list[Problem]]:
    """Return a value as `Strategy` holds it, and what is wrong with it."""
    if key in CHOICES:
        allowed = CHOICES[key]
        # True == 1: a ZeRO stage is never a boolean
        if any(value == choice and type(value) is type(choice) for choice in allowed):
            return value, []
        return None, [
            Problem(
                code="not_allowed",
                field=place,
                value=value if isinstance(value, int | float | str) else None,
                message="is not one of the values that exist",
                allowed=allowed,
                hint=did_you_mean(value, allowed),
            )
        ]
    if key == "stage_devices":
        if isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
            return tuple(value), []
        wanted = "must be a list with the name of a node group for each stage"
    elif key == "stage_layers":
        if isinstance(value, list | tuple) and value and all(_is_size(v) for v in value):
            return tuple(value), []
        wanted = "must be a list with the number of layers (from 1) of each stage"
    else:
        if _is_size(value):
            return value, []
        wanted = "must be a whole number from 1, or {min, max, not}"
    shown = value if isinstance(value, int | float | str) else None
    return None, [
        Problem(
            code="wrong_type",
            field=place,
            value=shown,
            message=f"{wanted}, not {shown if _is_number(value) else kind_of(value)}",
        )
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _contradictions(key: str, rule: ConstraintRule, place: str) -> list[Problem]:
    if rule.minimum is not None and rule.maximum is not None and rule.minimum > rule.maximum:
        return [
            Problem(
                code="contradiction",
                field=place,
                message=f"min {rule.minimum} is above max {rule.maximum}: no {key} is both",
                hint="swap them, or drop one",
            )
        ]
    if key in CHOICES and not any(rule.allows(choice) for choice in CHOICES[key]):
        return [
            Problem(
                code="contradiction",
                field=place,
                message=f"forbids every value that {key} can have",
                allowed=CHOICES[key],
                hint="leave at least one of them",
            )
        ]
    return []
