"""What a plan is chosen by: seconds per step, money per step, or the time to a token count in a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from airflow_training.documents.problems import unknown_keys
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

Purchase = Literal["on_demand", "spot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeObjective:
    """Fewest seconds per step."""

    purchase: Purchase = "on_demand"
    restart_seconds: float = 900.0
    """Wall time that a restart of a spot device costs on average: start-up, and half the time
    between two checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyObjective:
    """Least money per step."""

    purchase: Purchase = "on_demand"
    restart_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenObjective:
    """Least time until so many tokens were trained on, for no more than a budget."""

    tokens: float
    budget: float
    purchase: Purchase = "on_demand"
    restart_seconds: float = 900.0


Objective: TypeAlias = TimeObjective | MoneyObjective | TokenObjective


def parse(document: Any, *, where: str = "objective") -> Objective:
    """Return the objective of `time`, `money` or `{tokens, budget}`.

    The mapping forms (`{money: {}}` is `money`) also take `purchase` and `restart_seconds`.

    Raises:
        InputError: it is none of these, or a number is not above zero.
    """
    names = ("time", "money")
    if document in ("time", "money"):
        return TimeObjective() if document == "time" else MoneyObjective()
    if not isinstance(document, Mapping):
        raise InputError.of(
            code="not_allowed",
            field=where,
            value=document if isinstance(document, str | int | float) else None,
            message="is no objective",
            allowed=(*names, "{tokens, budget}"),
            hint=did_you_mean(document, names),
        )
    keys = ("by", "tokens", "budget", "purchase", "restart_seconds")
    problems = unknown_keys(document, keys, field=where, message="is no key here")
    problems += _bad_numbers(document, where)
    by = document.get("by", "tokens" if "tokens" in document else "time")
    if by not in (*names, "tokens"):
        problems.append(_bad_choice(by, (*names, "tokens"), f"{where}.by"))
    purchase = document.get("purchase", "on_demand")
    if purchase not in get_args(Purchase):
        problems.append(_bad_choice(purchase, get_args(Purchase), f"{where}.purchase"))
    if by == "tokens":
        problems += [
            Problem(code="missing", field=f"{where}.{key}", message="is required")
            for key in ("tokens", "budget")
            if key not in document
        ]
    if problems:
        raise InputError(problems)
    rest = float(document.get("restart_seconds", TimeObjective().restart_seconds))
    if by == "tokens":
        return TokenObjective(
            tokens=float(document["tokens"]),
            budget=float(document["budget"]),
            purchase=purchase,
            restart_seconds=rest,
        )
    kind = TimeObjective if by == "time" else MoneyObjective
    return kind(purchase=purchase, restart_seconds=rest)


def _bad_numbers(document: Mapping[str, Any], where: str) -> list[Problem]:
    problems = []
    for key in ("tokens", "budget", "restart_seconds"):
        value = document.get(key, 1)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < float("inf"):
            problems.append(
                Problem(
                    code="out_of_range",
                    field=f"{where}.{key}",
                    value=value if isinstance(value, int | float | str) else None,
                    message="must be a number above 0",
                )
            )
    return problems


def _bad_choice(value: Any, allowed: tuple[str, ...], place: str) -> Problem:
    return Problem(
        code="not_allowed",
        field=place,
        value=value if isinstance(value, int | float | str) else None,
        message="is not one of the values that exist",
        allowed=allowed,
        hint=did_you_mean(value, allowed),
    )
