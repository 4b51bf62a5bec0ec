"""What the API server refuses, and whether asking again can help. Pure: one table, the first row that fits counts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_training.documents.resolved import RunRef
from airflow_training.errors import Problem
from airflow_training.runtimes.kubernetes.api import ApiError

__all__ = ["REFUSALS", "Refusal", "may_pass", "problem_of", "refusal_of"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One kind of answer of a server that made nothing."""

    reason: str
    """As the ledger shows it while an instance waits."""
    answer: Literal["never", "later"]
    codes: range
    words: str = ""
    """A regular expression of the server's message; "": any."""

    def fits(self, error: ApiError) -> bool:
        return error.code in self.codes and bool(re.search(self.words, str(error)))


_ANY = range(400, 600)


def _only(code: int) -> range:
    return range(code, code + 1)


REFUSALS: Sequence[Refusal] = (
    Refusal("WebhookUnavailable", "later", _ANY, "failed calling webhook"),
    Refusal("DeniedByWebhook", "never", _ANY, 'admission webhook "[^"]*" denied the request'),
    Refusal("QuotaExceeded", "later", _only(403), "exceeded quota|status unknown for quota"),
    Refusal("QuotaDemandsRequests", "never", _only(403), "failed quota: .*must specify"),
    Refusal("PodSecurity", "never", _only(403), "violates PodSecurity"),
    Refusal("NamespaceTerminating", "never", _only(403), "because it is being terminated"),
    Refusal("ServiceAccountNotFound", "later", _only(403), 'serviceaccount "[^"]*" not found'),
    # our rights: they were there when the run began
    Refusal("NotAllowed", "later", _only(403), "cannot [a-z]+ resource"),
    Refusal("NotAllowed", "later", _only(401)),
    Refusal("DeniedByPolicy", "never", _only(403)),
    Refusal("NotFound", "never", _only(404)),
    Refusal("Conflict", "later", _only(409)),
    Refusal("ServerBusy", "later", _only(429)),
    Refusal("ServerBusy", "later", range(500, 600)),
    Refusal("Invalid", "never", _ANY),  # 422 of a field, 400 of a document that cannot be read, 413
)


def refusal_of(error: ApiError) -> Refusal:
    """Return what an answer of the server means."""
    return next(row for row in REFUSALS if row.fits(error))


def may_pass(error: Exception) -> bool:
    """Return whether the server may accept a moment later what it has refused now."""
    return isinstance(error, ApiError) and refusal_of(error).answer == "later"


_FIELDS: Mapping[str, str] = {
    "metadata.name": "metadata.name",
    "metadata.labels": "metadata.labels",
    "metadata.annotations": "metadata.annotations",
    "spec.ports": "spec.roles",
    "spec.min": "spec.schedulingPolicy",
    "spec.queue": "spec.schedulingPolicy.queue",
    "spec.priorityClassName": "spec.schedulingPolicy.priorityClassName",
}
"""Beginning of a field of an object of the run -> field of the document that it is made from."""


def problem_of(error: ApiError, run: RunRef) -> Problem:
    """Return what is wrong with the job whose Services, ConfigMaps or groups the server will not take."""
    about = error.fields[0] if error.fields else ""
    field = next((ours for theirs, ours in _FIELDS.items() if about.startswith(theirs)), "")
    if not field:
        field = "spec" if error.fields else "metadata.namespace"
    value = {"metadata.name": run.job, "metadata.namespace": run.namespace}.get(field)
    return Problem(
        code="not_allowed",
        field=field,
        value=value,
        message=f"nothing can be created in namespace '{run.namespace}': {error}",
    )
