"""Who may do what: one dependency per verb, over whatever knows the users. Knows no Airflow.

Each route names a verb, or `known` where it answers with nothing but what the user may read. The
DAG is always the one in the path, never in a query or a body, and `run_of` compares it with the
run's own: a right on one DAG reaches no run of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from fastapi import Depends, Header, HTTPException, Request

from airflow_training.compiler.about import GENERIC_DAG
from airflow_training.settings import load_settings
from airflow_training.state.records import RunRecord
from airflow_training.state.store import open_store
from airflow_training.web.answers import COMMAND_LINE, dag_of

__all__ = [
    "Permit",
    "Rights",
    "RunDep",
    "User",
    "UserDep",
    "Verb",
    "act",
    "from_own_page",
    "keep_user",
    "known",
    "may_act_on",
    "may_submit_new",
    "read",
    "read_logs",
    "rights_of",
    "run_of",
    "submit",
    "submit_new",
]

Verb = Literal["read", "read_logs", "act", "submit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    account: Any = None
    """As whoever knows the users has it."""


class Rights(Protocol):
    """Knows the users. `may`, `may_read_of`, `readable` and `team_of` block."""

    standalone: bool
    """There is one user, whose machine it is."""

    @property
    def authenticate(self) -> Callable[..., Any]:
        """Return a dependency that keeps the User who asks; it raises 401 for a stranger."""

    def may(self, user: User, verb: Verb, dag_id: str | None) -> bool:
        """Return whether the user may do this to runs of a DAG; None: to those of all DAGs."""

    def may_read_of(self, user: User, dag_ids: Collection[str]) -> Collection[str]:
        """Return those of these DAGs whose runs the user may read, "" for the command line: `may`, of many at once."""

    def readable(self, user: User) -> Collection[str] | None:
        """Return the ids of the DAGs whose runs the user may read; None: all that there are."""

    def team_of(self, dag_id: str) -> str | None:
        """Return the team of a DAG, "" for the command line; None: none. Blocks."""

    def sources(self) -> Collection[str] | None:
        """Return the sources of runs whose DAGs these rights are about; None: any source."""


def rights_of(request: Request) -> Rights:
    """Return the rights that this server asks."""
    rights: Rights = request.app.state.rights
    return rights


def keep_user(request: Request, user: User) -> None:
    """Keep who asks, for the dependencies that come after `authenticate`."""
    request.state.training_user = user


def known(request: Request) -> User:
    """Return the user who asks; `authenticate` was before, as on every route of the API."""
    user: User = request.state.training_user
    return user


@dataclass(frozen=True, slots=True)
class Permit:
    """A dependency: the user may do this to runs of the DAG in the path, else 403."""

    verb: Verb

    def __call__(self, request: Request, dag: str) -> User:
        """Return the user."""
        user = known(request)
        dag_id = None if dag == COMMAND_LINE else dag
        if not rights_of(request).may(user, self.verb, dag_id):
            raise HTTPException(403, "Forbidden")
        return user


read, read_logs = Permit("read"), Permit("read_logs")
act, submit = Permit("act"), Permit("submit")


def run_of(request: Request, dag: str, uid: str) -> RunRecord:
    """Return the run in the path; 404 where the DAG in the path has none of this uid."""
    record = open_store().run(uid)
    sources = rights_of(request).sources()
    if (
        record is None
        or dag_of(record) != dag
        or (sources is not None and record.key.source not in sources)
    ):
        raise HTTPException(404, f"there is no training {uid} here")
    return record


def may_act_on(request: Request, run: RunRecord) -> bool:
    """Return whether the user may change this run: by the DAG's rights, and by `[training] act_on`."""
    rights, user = rights_of(request), known(request)
    if not rights.may(user, "act", run.key.dag_id or None):
        return False
    return rights.standalone or load_settings().act_on == "any" or run.submitted_by == user.name


def may_submit_new(request: Request) -> bool:
    """Return whether the user may start trainings that no DAG of their own has: runs of the generic DAG. Blocks."""
    return rights_of(request).may(known(request), "submit", GENERIC_DAG)


def submit_new(request: Request) -> User:
    """Return the user, who may start new trainings; else 403."""
    if not may_submit_new(request):
        raise HTTPException(403, f"you may not start runs of the DAG {GENERIC_DAG}")
    return known(request)


def from_own_page(
    content_type: Annotated[str, Header()] = "",
    sec_fetch_site: Annotated[str, Header()] = "same-origin",
) -> None:
    """Refuse what a page of another site sends with the user's cookie."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Content-Type has to be application/json")
    if sec_fetch_site not in ("same-origin", "none"):
        raise HTTPException(403, "another site asks")


UserDep = Annotated[User, Depends(known)]
RunDep = Annotated[RunRecord, Depends(run_of)]
