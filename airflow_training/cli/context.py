"""What most commands need: settings, the store and a run in it. Opens lazily, prints nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.output import note
from airflow_training.errors import InputError, Problem
from airflow_training.settings import Settings, load_settings

if TYPE_CHECKING:
    from airflow_training.state.store import Store
    from airflow_training.supervise.plan_history import History

__all__ = ["RunArgument", "check_role", "history", "open_store", "settings"]

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run id, or the beginning of its uid (see `list`).")
]


def settings() -> Settings:
    """Return the settings; raises InputError for what cannot be read."""
    try:
        return load_settings()
    except ValueError as error:
        problem = Problem(code="wrong_type", field="", message=str(error))
        raise InputError(problems=[problem], path="configuration") from None


def open_store() -> Store:
    """Return the store that the settings name; the first use of a database upgrades it."""
    from airflow_training.state import store

    settings()  # says what is wrong with them before the store trips over it
    return store.open_store()


def history() -> History:
    """Return where a plan finds what runs measured: nowhere, if there is no store or it is away."""
    from airflow_training.errors import RuntimeUnavailable
    from airflow_training.state.upgrade import check
    from airflow_training.supervise.plan_history import NO_HISTORY, history_of

    try:
        revision, _ = check(settings().sql_alchemy_conn)
    except RuntimeUnavailable as error:
        note(f"warning: planned without what runs measured: {error}")
        return NO_HISTORY
    return NO_HISTORY if revision is None else history_of(open_store())


def check_role(name: str, known: Collection[str]) -> None:
    """Raise InputError (`unknown_role`) unless a run has this role."""
    if name in known:
        return
    from airflow_training.spec.problems import did_you_mean

    problem = Problem(
        code="unknown_role",
        field="--role",
        value=name,
        message=f"no role is called {name!r}",
        allowed=sorted(known),
        hint=did_you_mean(name, known),
    )
    raise InputError(problems=[problem])
