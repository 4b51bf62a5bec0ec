"""What the API server refuses, and whether asking again can help. Pure: one table, the first row that fits counts."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

from airflow_training.control import reasons
from airflow_training.documents.paths import format_path
from airflow_training.documents.resolved import ResolvedRole, RunRef
from airflow_training.errors import InputError, Problem, RefusedForNow, RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api_errors import ApiError
from airflow_training.runtimes.kubernetes.observing import CANNOT_START_SECONDS
from airflow_training.runtimes.port import InstanceRef, Outcome

__all__ = [
    "QUOTA_EXCEEDED",
    "REFUSALS",
    "Refusal",
    "as_mistakes_of_document",
    "field_of",
    "in_words_of_port",
    "is_final",
    "not_now",
    "outcome_of",
    "problem_of",
    "refusal_of",
    "words_of",
]

QUOTA_EXCEEDED = reasons.QUOTA_EXCEEDED
_REFUSED_SECONDS = 60.0
"""Between two tries of what the server refuses for now."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One kind of answer of a server that made nothing."""

    reason: str
    """As the ledger shows it while an instance waits."""
    answer: Literal["never", "perhaps", "later"]
    codes: range
    words: str = ""
    """A regular expression of the server's message; "": any."""

    def fits(self, error: ApiError) -> bool:
        return error.code in self.codes and bool(re.search(self.words, str(error)))


_ANY = range(400, 600)


def _only(code: int) -> range:
    return range(code, code + 1)


_POLICIES = "|".join(
    (
        "(?:minimum|maximum) .* usage per|max limit to request ratio per",  # LimitRange
        "insufficient quota to (?:match these scopes|consume)",
        "unable to validate against any security context constraint",
        "conflicts? with its namespace",  # node selectors and tolerations of a namespace
        "integer value of priority",
        "image policy webhook backend denied",
    )
)
"""Of admission plugins that say no to what an object is, whenever they are asked."""

REFUSALS: Sequence[Refusal] = (
    Refusal("WebhookUnavailable", "later", _ANY, "failed calling webhook"),
    Refusal("DeniedByWebhook", "never", _ANY, 'admission webhook "[^"]*" denied the request'),
    Refusal(QUOTA_EXCEEDED, "later", _only(403), "exceeded quota|status unknown for quota"),
    Refusal("QuotaDemandsRequests", "never", _only(403), "failed quota: .*must specify"),
    Refusal("PodSecurity", "never", _only(403), "violates PodSecurity"),
    Refusal("NamespaceTerminating", "never", _only(403), "because it is being terminated"),
    Refusal(
        "ServiceAccountNotFound",
        "later",
        _only(403),
        r'service ?account "?\S+"? (?:was )?not found|no API token found for service account',
    ),
    # our rights: they were there when the run began
    Refusal(
        "NotAllowed",
        "later",
        _only(403),
        r"cannot [a-z]+ resource|cannot set (?:an ownerRef|block)",
    ),
    Refusal("NotAllowed", "later", _only(401)),
    # a server that has just begun does not know its rules yet
    Refusal("ServerBusy", "later", _only(403), "not yet ready to handle request"),
    Refusal("DeniedByPolicy", "never", _ANY, "ValidatingAdmissionPolicy '[^']*'.* denied request"),
    Refusal("DeniedByPolicy", "never", _only(403), _POLICIES),
    Refusal("Forbidden", "perhaps", _only(403)),
    Refusal("NotFound", "never", _only(404)),
    Refusal("Conflict", "later", _only(409)),
    Refusal("ServerBusy", "later", _only(429)),
    # server-side apply tells of a field that it does not know as of an error of its own
    Refusal("Invalid", "never", _only(500), "field not declared in schema"),
    Refusal("ServerBusy", "later", range(500, 600)),
    Refusal("Invalid", "never", _ANY),  # 422 of a field, 400 of a document that cannot be read, 413
)


def refusal_of(error: ApiError) -> Refusal:
    """Classify an answer of the server."""
    return next(row for row in REFUSALS if row.fits(error))


def is_final(error: ApiError) -> bool:
    """Return whether the server will never accept what it has refused."""
    return refusal_of(error).answer == "never"


def not_now(error: ApiError) -> RefusedForNow:
    """A refusal of something all instances need that the server may lift later; None for any other."""
    refusal = refusal_of(error)
    return RefusedForNow(
        words_of(error),
        reason=refusal.reason,
        patience_seconds=_REFUSED_SECONDS,
        grace_seconds=_grace_of(refusal),
    )


def outcome_of(ref: InstanceRef, error: ApiError, *, at: str = "") -> Outcome:
    """Outcome of an attempt by the server's answer; `at`: the field of the document."""
    refusal = refusal_of(error)
    if refusal.answer == "never":
        message = f"{at}: {error}" if at else str(error)
        return Outcome(ref=ref, result="impossible", message=message)
    return Outcome(
        ref=ref,
        result="refused",
        reason=refusal.reason,
        message=words_of(error),
        patience_seconds=_REFUSED_SECONDS,
        grace_seconds=_grace_of(refusal),
    )


def _grace_of(refusal: Refusal) -> float | None:
    return CANNOT_START_SECONDS if refusal.answer == "perhaps" else None


def words_of(error: ApiError) -> str:
    """The server's message, with the rule to add to a Role where a right is missing."""
    missing = _RIGHT.search(str(error))
    if missing is None:
        return str(error)
    rule = '{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{verb}]}}'
    return f"{error}; add to its Role there: {rule.format_map(missing.groupdict())}"


_RIGHT = re.compile(
    r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
)

# where the document says it ------------------------------------------------------------------------
_FIELDS: Mapping[str, str] = {
    "metadata.name": "metadata.name",
    "metadata.labels": "metadata.labels",
    "metadata.annotations": "metadata.annotations",
    "spec.ports": "spec.roles",
    "spec.min": "spec.schedulingPolicy",
    "spec.scheduleTimeoutSeconds": "spec.schedulingPolicy.scheduleTimeoutSeconds",
    "spec.queue": "spec.schedulingPolicy.queue",
    "spec.priorityClassName": "spec.schedulingPolicy.priorityClassName",
}
"""Beginning of a field of an object of the run -> field of the document that it is made from."""


def problem_of(error: ApiError, run: RunRef) -> Problem:
    """The problem of a job whose Services, ConfigMaps or groups the server rejects."""
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


_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")


def field_of(error: ApiError, pod: Mapping[str, Any], role: ResolvedRole) -> str:
    """Return the field of the document from which the refused field of a pod comes.

    Items of lists are named as `--set` does, since the pod has more of them than the document: its own
    variables, volumes and containers. Where one of those is meant it is the whole role.
    """
    from airflow_training.documents.roles import SHORTHAND  # with the models, needed only here

    whole = f"spec.roles.{role.name}"
    if not error.fields:
        return whole
    parts: list[str] = []
    made: Any = pod
    written: Any = role.template
    for step in _STEP.findall(error.fields[0]):
        key = step.strip("[]")
        if isinstance(made, list):
            made = made[int(key)] if key.isdecimal() and int(key) < len(made) else {}
            name = made.get("name") if isinstance(made, Mapping) else None
            ours = written if isinstance(written, list) else []
            written = next(
                (x for x in ours if name and isinstance(x, Mapping) and x.get("name") == name), None
            )
            if written is None:
                return whole
            parts.append(str(name))
        else:
            made = made.get(key) if isinstance(made, Mapping) else None
            written = written.get(key) if isinstance(written, Mapping) else None
            parts.append(key)
    head = ["spec", "containers", role.container]
    if parts[:3] == head and parts[3:4] and parts[3] in SHORTHAND:
        return format_path(["spec", "roles", role.name, *parts[3:]])
    return format_path(["spec", "roles", role.name, "template", *parts])


# in the words of the port --------------------------------------------------------------------------
def in_words_of_port(call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Tell what the server refuses unexpectedly (rights that were taken away) in the port's words."""

    @functools.wraps(call)
    async def spoken(*args: P.args, **values: P.kwargs) -> T:
        try:
            return await call(*args, **values)
        except ApiError as error:
            raise RuntimeUnavailable(f"the cluster refuses: {error}") from error

    return spoken


@contextlib.contextmanager
def as_mistakes_of_document(run: RunRef) -> Iterator[None]:
    """Tell what the server will never take of the run's objects as a mistake in its document.

    What it does not take for now is waited for, by all instances.
    """
    try:
        yield
    except ApiError as error:
        if is_final(error):
            raise InputError(problems=[problem_of(error, run)]) from error
        raise not_now(error) from error
