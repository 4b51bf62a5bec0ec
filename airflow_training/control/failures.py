"""What a failure is: its class, the rule that matches it, and what its exit code says. Pure.

The class comes from the reason and disruption first, then from the signal, then from the
exit code. Whether there is another try is decided in `restarts`, not here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId, AttemptRecord
from airflow_training.control.environment import EnvironmentState
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.reason_facts import ENDED_BY_PLATFORM, NODE_LOST, ReasonFacts
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import (
    ExitCodeTable,
    FailureClass,
    FailureRule,
    ResolvedJob,
    ResolvedRole,
)
from airflow_training.frameworks.exit_codes import TABLES

__all__ = [
    "CANNOT_START_CODES",
    "SIGNAL_CLASSES",
    "Failure",
    "cannot_start",
    "class_decides",
    "classify",
    "ended_by_term",
    "exit_code_says",
    "is_listed",
    "list_of_code",
    "matching_rule",
    "restarts_a_class",
    "rule_matches",
]

SIGNAL_CLASSES: Mapping[int, FailureClass] = {
    1: "infrastructure",  # HUP: the other end of the session went away
    2: "user",  # INT: a person
    3: "user",
    4: "user",
    6: "user",
    7: "user",
    8: "user",
    9: "infrastructure",  # KILL from outside; the OOM killer has a reason of its own
    10: "user",
    11: "user",
    12: "user",
    15: "infrastructure",  # TERM that we did not ask for
}

CANNOT_START_CODES = frozenset({126, 127})
"""What shells, and our agent, say of a command that is not executable, or not there."""
_NOT_RUN = re.compile(
    r"""exec: "?(?P<name>[^":]+)"?: (?:stat [^:]+: )?"""
    r"(?P<why>executable file not found|no such file or directory|permission denied)"
)
"""The same in the words of container runtimes."""

_NO_SCRIPT_CODE = 2
_NO_SCRIPT = re.compile(r"can't open file '.*': \[Errno 2\]")
"""What Python says of a script that is not there, as its only words."""

_OF_LOGS: tuple[FailureClass, ...] = ("user", "infrastructure", "resource")
"""The classes that a log may give a failure."""
_RETRYABLE_CLASSES = frozenset({"infrastructure", "preemption", "resource", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(AttemptRecord):
    """One attempt of one instance that ended badly."""

    key: InstanceKey
    attempt_id: AttemptId
    at: float
    """When it happened as far as known, epoch seconds."""
    reason: str = ""
    known: ReasonFacts | None = None
    """What the reason says, where it says something."""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    failure_class: FailureClass = "unknown"
    said_by_runtime: bool = False
    """Its class comes from more than an exit code or signal: no log speaks against that."""
    node: str = ""
    environment: EnvironmentState | None = None
    """What the instance had around it then; None: nothing was recorded."""
    step: int | None = None
    """The last one that was reported."""
    diagnosed: InstanceDiagnosis | None = None
    """What its log says, where that is known in time."""
    last_line: str = ""
    """The last that it printed, where that is known."""
    silent_since: float | None = None
    """Since when nothing is heard of it; None: its end was seen."""
    waited_for: str = ""
    """Of one that hangs: who it trains with and did not run, in words; "": all did."""
    noticed: Failure | None = None
    """Of one whose end was not seen yet: the failure of whoever lost it, whose log names it."""

    @property
    def exit_status(self) -> int | None:
        """Its exit code, and of a signal what a shell makes of it; None: it has neither."""
        if self.exit_code is None and self.signal is not None:
            return 128 + self.signal
        return self.exit_code

    @property
    def lost_node(self) -> str:
        """Return the node that was lost with all that ran there; "": something else has happened."""
        lost = self.known is not None and self.known.cause == NODE_LOST
        return self.node if lost else ""

    @property
    def is_of_node(self) -> bool:
        """Whether it is one of its node, as its reason or the devices there say."""
        if self.reason == reasons.NODE_UNFIT or self.failure_class == "preemption":
            return False
        if self.environment is not None and self.environment.condition == "deviceLost":
            return True
        known = self.known
        # where another try is said to help perhaps, a volume or an image may be missing everywhere
        return (
            known is not None
            and known.level == "node"
            and known.failure_class == "infrastructure"
            and not known.another_try
        )

    def as_noticed(self) -> Failure:
        """The failure by exit codes and reasons; where there are none yet, by those of its observer."""
        seen = self.noticed
        if seen is None:
            return self
        message = "\n".join(filter(None, (self.message, seen.message)))
        return replace(
            self,
            reason=seen.reason,
            message=message,
            exit_code=seen.exit_code,
            signal=seen.signal,
            noticed=None,
        )

    @property
    def _platform_ended_it(self) -> bool:
        return self.known is not None and self.known.cause in ENDED_BY_PLATFORM

    def describe(self) -> str:
        """Return `exit code 1`, `signal 9 (OOMKilled)`, `NodeLost: ...`, ... for people."""
        if self.signal is not None:
            what = f"signal {self.signal}"
        elif self.exit_code is not None:
            what = f"exit code {self.exit_code}"
        else:
            what = ""
        if not what or self._platform_ended_it:
            return ": ".join(filter(None, (self.reason, self.message))) or what or "no exit code"
        why = [self.reason] if self.reason not in ("", "Error") else []
        if self.diagnosed is not None:
            why.append(self.diagnosed.cause.id)
        return f"{what} ({', '.join(why)})" if why else what


def classify(
    *, known: ReasonFacts | None, disrupted: bool, signal: int | None, exit_code: int | None
) -> FailureClass:
    """Return the class a failure is charged to; `known`: what its reason says."""
    # whoever ended what had not enough, the platform or its node: it would happen again
    if disrupted and (known is None or known.failure_class != "resource"):
        return "preemption"
    if known is not None:
        return known.failure_class
    if signal is None and exit_code is not None and 128 < exit_code <= 128 + 64:
        signal = exit_code - 128  # shells report the signal of their child this way
    if signal is not None:
        return SIGNAL_CLASSES.get(signal, "unknown")
    if exit_code is not None and 0 < exit_code <= 128:
        return "user"
    return "unknown"


def cannot_start(failure: Failure) -> str:
    """Return why a command cannot start, wherever it is tried; empty where it has begun, or may yet."""
    if failure.step or (failure.known is not None and failure.known.failure_class != "user"):
        return ""
    refused = _NOT_RUN.search(failure.message)
    if refused is not None:
        why = refused["why"].replace("executable file not found", "command not found")
        return f"{refused['name']}: {why}"
    if failure.exit_code in CANNOT_START_CODES and failure.failure_class != "preemption":
        return failure.message or "the command cannot start"
    if failure.exit_code == _NO_SCRIPT_CODE and _NO_SCRIPT.search(failure.last_line):
        return failure.last_line
    return ""


def ended_by_term(*, signal: int | None, exit_code: int | None) -> bool:
    """Return whether something was told to end, so that it hardly was the first to fail."""
    return signal == 15 or exit_code == 143


def exit_code_says(table: ExitCodeTable, failure: Failure) -> Literal["retryable", "permanent"]:
    """Class of a failure under `restartPolicy: ExitCode`.

    A reason that names the platform's fault comes before the exit code it left behind; a code in
    neither list falls to the failure's class, of which only `user` is permanent.
    """
    listed = list_of_code(table, failure)
    if listed:
        return listed
    failure = failure.as_noticed()
    return "retryable" if failure.failure_class in _RETRYABLE_CLASSES else "permanent"


def list_of_code(table: ExitCodeTable, failure: Failure) -> Literal["retryable", "permanent", ""]:
    """Return the list of a table that has the exit code of a failure; "" for none."""
    named = TABLES.get(table.name)
    if named is not None and not table.retryable and not table.permanent:
        table = named
    failure = failure.as_noticed()
    code = failure.exit_status
    if failure.known is not None or failure.failure_class == "preemption":
        code = None
    if code in table.retryable:
        return "retryable"
    return "permanent" if code in table.permanent else ""


def matching_rule(rules: tuple[FailureRule, ...], failure: Failure) -> FailureRule | None:
    """Return the first rule that matches, before `restartPolicy` is asked."""
    failure = failure.as_noticed()
    return next((rule for rule in rules if rule_matches(rule, failure)), None)


def class_decides(job: ResolvedJob, failure: Failure) -> bool:
    """Return whether another rule, or another answer of `restartPolicy`, holds if its log gives it another class."""
    if failure.said_by_runtime:
        return False
    others = [replace(failure, failure_class=each) for each in {*_OF_LOGS, failure.failure_class}]
    if len({matching_rule(job.failure_policy.rules, each) for each in others}) > 1:
        return True
    by_code = job.role(failure.role).restart_policy == "ExitCode"
    return by_code and len({exit_code_says(job.restart.exit_codes, each) for each in others}) > 1


def restarts_a_class(rule: FailureRule) -> bool:
    """Return whether a rule restarts whatever is of a class; anything else is the user's own word."""
    named = rule.on_reasons or rule.on_exit_codes or rule.on_message_pattern
    return bool(rule.on_classes) and not named and rule.action not in ("FailJob", "CompleteJob")


def is_listed(table: ExitCodeTable, role: ResolvedRole, exit_code: int | None) -> bool:
    """Return whether the job itself names the exit code as one to try again."""
    return role.restart_policy == "ExitCode" and exit_code in table.retryable


def rule_matches(rule: FailureRule, failure: Failure) -> bool:
    """Return whether every criterion that the rule gives holds; one without criteria matches all."""
    if rule.target_roles and failure.role not in rule.target_roles:
        return False
    if rule.on_classes and failure.failure_class not in rule.on_classes:
        return False
    if rule.on_reasons and failure.reason not in rule.on_reasons:
        return False
    if rule.on_exit_codes and not _code_matches(rule, failure):
        return False
    return not rule.on_message_pattern or bool(
        _pattern(rule.on_message_pattern).search(failure.message)
    )


def _code_matches(rule: FailureRule, failure: Failure) -> bool:
    code = failure.exit_status
    if code is None:  # vanished, never started: no list of codes says anything about it
        return False
    return (code in rule.on_exit_codes) == (rule.exit_code_operator == "In")


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)
