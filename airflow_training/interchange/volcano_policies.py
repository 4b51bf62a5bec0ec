"""What a Volcano Job does about failures and ends of its pods, and when it has succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField

__all__ = ["policies_of", "success_of"]

_ACTIONS = {
    "RestartJob": "RestartJob",
    "RestartTask": "RestartRole",
    "RestartPod": "RestartInstance",
    "AbortJob": "FailJob",
    "TerminateJob": "FailJob",
    "CompleteJob": "CompleteJob",
}
_ALL_ACTIONS = (*_ACTIONS, "RestartPartition", "ResumeJob", "EnqueueJob", "SyncJob")
_EVENTS = (
    "*", "PodFailed", "PodEvicted", "PodPending", "PodRunning", "Unknown", "JobUnknown", "TaskCompleted", "TaskFailed", "OutOfSync",
    "CommandIssued", "JobUpdated",
)  # fmt: skip
_CONDITIONS: dict[str, dict[str, Any]] = {
    "*": {},
    "PodFailed": {},
    "PodEvicted": {"onClasses": ["preemption", "infrastructure"]},
}


def policies_of(
    spec: SourceField, tasks: Sequence[tuple[SourceField, str]], roles: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return our rules, and the roles whose end completes the job. Policies of a task come before those of the job."""
    found: list[dict[str, Any]] = []
    completes: list[str] = []
    policy_of = {role["name"]: role["restartPolicy"] for role in roles}
    for task, name in tasks:
        for each in task["policies"].items():
            _policy(each, [name], found, completes, fails=policy_of[name] == "Never")
    fails = any(value == "Never" for value in policy_of.values())
    for each in spec["policies"].items():
        _policy(each, [], found, completes, fails=fails, names=[name for _, name in tasks])
    return found, completes


def _policy(
    source: SourceField,
    targets: list[str],
    found: list[dict[str, Any]],
    completes: list[str],
    *,
    fails: bool,
    names: Sequence[str] = (),
) -> None:
    events = [source["event"].one_of(_EVENTS, "*")] if source["event"] else []
    events += [each.one_of(_EVENTS, "*") for each in source["events"].items()]
    code = source["exitCode"]
    action = source["action"].one_of(_ALL_ACTIONS, "SyncJob")
    if code and events:
        source.accounts.mistake(
            code.loc, "conflict", "a policy is about events, or about an exit code"
        )
    if not code and not events:
        source.accounts.mistake(source.loc, "missing", "a policy needs an event or an exitCode")
    if source["timeout"]:
        source.refuse("acts only after some time; rules act at once")
        return
    if events == ["TaskCompleted"] and action == "CompleteJob":
        completes += targets or names
        to: Loc = ("spec", "successPolicy", "targetRoles")
        source.translate(
            to, "the job has succeeded when all of this task have; what still runs is ended"
        )
        return
    if action not in _ACTIONS:
        source.refuse("no rule does that")
        return
    if code:
        if not code.whole(0):
            source.accounts.mistake(code.loc, "out_of_range", "an exit code of 0 is no failure")
        _add(
            source,
            _ACTIONS[action],
            {"onExitCodes": {"values": [code.whole(1)]}},
            targets,
            found,
            fails=fails,
        )
        return
    unknown = [event for event in events if event not in _CONDITIONS]
    if unknown:
        source.refuse(f"no rule is about {unknown[0]}")
        return
    for event in events:
        # where containers restart in their pods, an eviction is all that is left of any event
        conditions = _CONDITIONS[event if fails or event != "*" else "PodEvicted"]
        known = fails or event != "PodFailed"
        _add(source, _ACTIONS[action], dict(conditions), targets, found, fails=known)


def _add(
    source: SourceField,
    action: str,
    conditions: dict[str, Any],
    targets: Sequence[str],
    found: list[dict[str, Any]],
    *,
    fails: bool,
) -> None:
    if not fails:
        source.drop("a pod whose containers are started again in it does not fail")
        return
    to: Loc = ("spec", "failurePolicy", "rules", len(found))
    why = {
        "FailJob": "a job that was aborted could be resumed; begin a failed run anew",
        "RestartJob": "the job, with all its instances",
    }.get(action, "judged at the failure of an instance")
    source.translate(to, why)
    found.append(
        {"action": action, **conditions, **({"targetRoles": list(targets)} if targets else {})}
    )


def success_of(
    spec: SourceField,
    tasks: Sequence[tuple[str, int]],
    roles: Sequence[dict[str, Any]],
    completes: Sequence[str],
) -> dict[str, Any]:
    """Return when the job has succeeded: a task that completes it, or so many of all pods."""
    total = sum(count for _, count in tasks)
    needed = spec["minSuccess"]
    if needed and len(roles) == 1 and roles[0]["replicas"]:
        roles[0]["minSucceeded"] = min(needed.whole(total, least=1), total)
        needed.translate(
            ("spec", "roles", 0, "minSucceeded"), "the others are ended then, as before"
        )
    elif needed and needed.whole(total) < total:
        needed.refuse(
            "pods of all tasks were counted together; a role counts its own: minSucceeded"
        )
    else:
        needed.drop("all pods have to succeed")
    least = spec["minAvailable"].whole(total) or total
    if not needed and not completes and least < total:
        spec.accounts.default(
            ("spec", "minSuccess"),
            f"{least} of {total} pods, once all have ended",
            "refused",
            why="minAvailable pods had to succeed; here all have to: minSuccess says how many, and ends the others",
        )
    if not completes:
        return {}
    operator = "Any" if len(set(completes)) > 1 else "All"
    return {"successPolicy": {"operator": operator, "targetRoles": list(dict.fromkeys(completes))}}
