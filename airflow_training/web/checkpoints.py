"""What a run has saved: where, how long it took, whether it was read back, and what a restore finds. Pure.

Nobody looks at the store of the checkpoints for it: this is what the run has told. A restore reads and compares
everything before it uses any of it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from airflow_training.control import reasons
from airflow_training.control.model import Event, Ledger, Recovery
from airflow_training.control.recovery import is_one_group, run_address
from airflow_training.control.rollup import timestamp
from airflow_training.control.subtask_snapshot import SnapshotDamaged, read_snapshot
from airflow_training.control.subtasks import Subtasks
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import (
    CheckpointCommit,
    CheckpointReference,
    FromAsset,
    FromRun,
    ResolvedCheckpoint,
    SaveEverySeconds,
    SaveEverySteps,
)
from airflow_training.state.records import RunRecord, RunState

__all__ = ["CheckpointPage", "RunLink", "checkpoint_page", "has_saved_initial", "source_run"]

_FEWEST = 2
"""Stay, whatever `keep` says."""
_STEPPED_TO = re.compile(r"to step (?P<step>[0-9]+)")
_ROOT = re.compile(r"/(?P<lineage>[0-9]+)(?:/(?P<instance>[^/]+-[0-9]+))?/?$")


_MAY_BE_GONE = (
    "may be gone: an older version wrote it, and did not say whether it is one that stays"
)


class SavedCheckpoint(BaseModel):
    step: int
    at: str
    uri: str
    instance: str | None
    """Whose it is, where each instance saves alone."""
    bytes: int | None
    seconds: float | None
    """How long saving took."""
    stall_seconds: float | None
    """For how much of that training stood still."""
    state: Literal["read back", "partly read back", "not read back", "damaged"]
    told: str
    """How that is known, in words: by which ranks, or why it was not restored."""
    kept: bool
    """The job's `keep` or `keepEvery` lets it stay, or may do so; others are removed as newer ones are saved."""
    restorable: bool
    """It is what a restore of its step finds."""


class CheckpointTurn(BaseModel):
    """Something that made a run restore another checkpoint than its newest."""

    at: str
    text: str


class CheckpointLineage(BaseModel):
    """What was saved since training was begun, or begun anew."""

    number: int | None
    """From 0; None: the address does not tell."""
    began: str
    began_at: str | None
    checkpoints: list[SavedCheckpoint]
    """The newest first."""
    turns: list[CheckpointTurn]
    """The newest first."""


class RunLink(BaseModel):
    dag: str
    uid: str
    run_id: str


class ResumedFrom(BaseModel):
    """What the run began with, while it had nothing of its own."""

    step: int
    uri: str
    instance: str | None
    text: str
    """What the document asked for."""
    run: RunLink | None


class CheckpointPage(BaseModel):
    asked: bool
    """The job keeps checkpoints."""
    uri: str
    every: str
    keep: int
    keep_every: int | None
    resumed_from: list[ResumedFrom]
    passed_over: list[str]
    """What was newer than that and damaged."""
    lineages: list[CheckpointLineage]
    """The newest first."""

    @property
    def restorable_steps(self) -> set[int]:
        """Return the steps that a new run of the job can begin from."""
        return {each.step for of in self.lineages for each in of.checkpoints if each.restorable}


@dataclass(frozen=True, slots=True)
class _RootAddress:
    lineage: int | None
    instance: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _AboutStep:
    """What became of a step, as the story tells it."""

    at: float
    step: int
    instance: str | None
    """Whose; None: nobody said."""
    why: str = ""

    def concerns(self, commit: CheckpointCommit, instance: str | None) -> bool:
        """Return whether it was said after this commit, of its group."""
        return self.at >= commit.at and (instance is None or self.instance in (instance, None))


def source_run(job: ResolvedJob) -> str | None:
    """Return the run that a job asked to go on from, as its document names it."""
    asked = job.checkpoint and job.checkpoint.resume
    return asked.run if isinstance(asked, FromRun) else None


def has_saved_initial(asked: ResolvedCheckpoint, run: RunRecord) -> bool:
    """Return whether what a job began with lies where this run saves: names of runs come back."""
    began_with = [*asked.initial_of_each.values(), *filter(None, [asked.initial])]
    end = run_address("", run_id="", run_uid=run.uid).strip("/")
    return any(_ROOT.sub("", each.uri).endswith(end) for each in began_with)


def checkpoint_page(
    state: RunState,
    events: Sequence[Event],
    snapshots: Mapping[str, Any],
    *,
    source: RunLink | None,
    address: str,
) -> CheckpointPage:
    """Checkpoints of a run with their lineage, from its state, events and snapshots.

    `events`: those that tell of checkpoints, oldest first. `snapshots`: of its processes, by group.
    `source`: the run that it went on from, where the user may read that. `address`: below which a new run
    looks for its checkpoints, "" where nobody can tell.
    """
    job, ledger = state.job, state.ledger
    asked = job.checkpoint or ResolvedCheckpoint()
    by_lineage: dict[int | None, list[CheckpointCommit]] = {}
    for each in _commits(ledger, events):
        by_lineage.setdefault(_place(each.uri).lineage, []).append(each)
    if by_lineage.keys() - {None}:
        by_lineage.setdefault(ledger.job.recovery.lineage, [])
    seen: set[tuple[str | None, int]] = set()
    lineages = []
    until = float("inf")
    for number in sorted(by_lineage, key=lambda each: -1 if each is None else each, reverse=True):
        commits = by_lineage[number]
        older = [
            each.at
            for other, of in by_lineage.items()
            if (other or 0) < (number or 0)
            for each in of
        ]
        during = [each for each in events if max(older, default=-1.0) < each.at < until]
        until = min((each.at for each in commits), default=until)
        is_current = number in (None, ledger.job.recovery.lineage)
        recovery = ledger.job.recovery if is_current else Recovery()
        rejected = _rejections(during, recovery)
        turned_back = _turned_back(during, recovery)
        began_at, began = _beginning(
            during, number, before=until, submitted_at=ledger.job.submitted_at
        )
        lineages.append(
            CheckpointLineage(
                number=number,
                began=began,
                began_at=timestamp(began_at),
                checkpoints=_saved(
                    commits,
                    _verified(snapshots) if is_current else {},
                    rejected,
                    turned_back,
                    asked,
                    seen,
                ),
                turns=_turns(during),
            )
        )
    _withdraw([each for of in lineages for each in of.checkpoints], job, address)
    return CheckpointPage(
        asked=job.checkpoint is not None,
        uri=asked.uri,
        every=_every(asked),
        keep=max(asked.keep, _FEWEST),
        keep_every=asked.keep_every,
        resumed_from=[*_resumed(asked, source)],
        passed_over=[*asked.passed_over],
        lineages=lineages,
    )


def _commits(ledger: Ledger, events: Sequence[Event]) -> list[CheckpointCommit]:
    """Return the commits that the story and the ledger tell, each once, the newest first."""
    found = [commit for each in events if (commit := _told(each)) is not None]
    found += ledger.job.recovery.older
    found += [] if ledger.job.checkpoint is None else [ledger.job.checkpoint]
    for entry in ledger.instances.values():
        if entry.own is not None:
            found += [*entry.own.recovery.older, entry.own.newest]
    known = {(each.uri, each.step, each.digest): each for each in found}
    return sorted(known.values(), key=lambda each: (each.at, each.step), reverse=True)


def _told(event: Event) -> CheckpointCommit | None:
    told = event.data.get("checkpoint")
    if event.reason != reasons.CHECKPOINT_COMMITTED or not isinstance(told, Mapping):
        return None
    if not {"uri", "step", "digest", "at"} <= told.keys():
        return None
    fields = ("uri", "step", "digest", "at", "seconds", "stall_seconds", "bytes", "number")
    return CheckpointCommit(**{name: told[name] for name in fields if name in told})


def _saved(
    commits: Sequence[CheckpointCommit],
    verified: Mapping[str, Subtasks],
    rejected: Sequence[_AboutStep],
    turned_back: Sequence[_AboutStep],
    asked: ResolvedCheckpoint,
    seen: set[tuple[str | None, int]],
) -> list[SavedCheckpoint]:
    whole: dict[str | None, int] = {}
    lowest: dict[str | None, int] = {}
    """Of the newer ones; what is not before it was left behind when training went back."""
    found = []
    for each in commits:
        instance = _place(each.uri).instance
        why = next(
            (one.why for one in rejected if one.step == each.step and one.concerns(each, instance)),
            "",
        )
        is_left = each.step >= lowest.get(instance, each.step + 1) or any(
            one.step < each.step and one.concerns(each, instance) for one in turned_back
        )
        lowest[instance] = min(each.step, lowest.get(instance, each.step))
        is_new = whole.get(instance, 0) < max(asked.keep, _FEWEST)
        may_be_gone = not is_new and asked.keep_every is not None and each.number is None
        kept = not is_left and (is_new or may_be_gone or _stays_for_good(each, asked))
        if not why and not is_left:  # a damaged one is left where it lies, and does not count
            whole[instance] = whole.get(instance, 0) + 1
        is_first = (instance, each.step) not in seen
        seen.add((instance, each.step))
        state, told = _verification(each.step, verified.get(instance or "") or verified.get(""))
        if kept and may_be_gone:
            told = "; ".join(filter(None, [told, _MAY_BE_GONE]))
        found.append(
            SavedCheckpoint(
                step=each.step,
                at=timestamp(each.at) or "",
                uri=each.uri,
                instance=instance,
                bytes=None if each.bytes is None else int(each.bytes),
                seconds=each.seconds,
                stall_seconds=each.stall_seconds,
                state="damaged" if why else state,
                told=why or told,
                kept=kept or bool(why),
                restorable=is_first and not why and kept,
            )
        )
    return found


def _stays_for_good(commit: CheckpointCommit, asked: ResolvedCheckpoint) -> bool:
    """Return whether every Nth is kept and this is known to be one."""
    every, number = asked.keep_every, commit.number
    return every is not None and number is not None and number % every == 0


def _withdraw(saved: Sequence[SavedCheckpoint], job: ResolvedJob, address: str) -> None:
    """Offer nothing that a new run of the job would not find or refuse.

    Where instances save alone, each that has saved anything goes on from the same step.
    """
    for each in saved:
        below = address != "" and each.uri.startswith(f"{address}/")
        each.restorable &= below and _place(each.uri).lineage is not None
    if is_one_group(job):
        return
    names = {f"{role.name}-{index}" for role in job.roles for index in range(role.replicas)}
    steps: dict[str | None, set[int]] = {each.instance: set() for each in saved}
    for each in saved:
        if each.restorable:
            steps[each.instance].add(each.step)
    wanted = [of for instance, of in steps.items() if instance in names]
    common = set[int]().union(*wanted).intersection(*wanted)
    for each in saved:
        each.restorable &= each.instance in names and each.step in common


def _verification(
    step: int, subtasks: Subtasks | None
) -> tuple[Literal["read back", "partly read back", "not read back"], str]:
    if subtasks is not None and step in subtasks.full:
        return (
            "read back",
            "by its process" if subtasks.world == 1 else f"by all {subtasks.world} ranks",
        )
    ranks = 0 if subtasks is None else subtasks.partial.get(step, 0).bit_count()
    if subtasks is not None and ranks:
        return "partly read back", f"by {ranks} of {subtasks.world} ranks"
    return "not read back", ""


def _verified(snapshots: Mapping[str, Any]) -> Mapping[str, Subtasks]:
    found = {}
    for group, document in snapshots.items():
        with contextlib.suppress(SnapshotDamaged):  # the loop tells of it; nothing is known then
            found[group] = read_snapshot(document or {})
    return found


def _rejections(events: Sequence[Event], recovery: Recovery) -> list[_AboutStep]:
    """Return what the story tells of damaged checkpoints, and what the ledger alone still knows."""
    found = [
        _AboutStep(
            at=each.at,
            step=step,
            instance=_instance_of(each),
            why=each.message.partition("is not restored: ")[2] or each.message,
        )
        for each in events
        if each.reason == reasons.CHECKPOINT_REJECTED
        and isinstance(step := each.data.get("step"), int)
    ]
    told = {(each.step, each.why) for each in found}
    found += [
        _AboutStep(at=each.at, step=each.step, instance=None, why=each.why)
        for each in recovery.rejected
        if each.step is not None and (each.step, each.why) not in told
    ]
    return found


def _turned_back(events: Sequence[Event], recovery: Recovery) -> list[_AboutStep]:
    """Return behind which steps training went back: a restore never finds what was saved after them before."""
    found = [
        _AboutStep(at=each.at, step=int(to["step"]), instance=_instance_of(each))
        for each in events
        if each.reason == reasons.STEPPED_BACK and (to := _STEPPED_TO.search(each.message))
    ]
    if recovery.at_most is not None:
        found.append(_AboutStep(at=recovery.stepped_back_at, step=recovery.at_most, instance=None))
    return found


def _instance_of(event: Event) -> str | None:
    return f"{event.role}-{event.index}" if event.role and event.index is not None else None


def _turns(events: Sequence[Event]) -> list[CheckpointTurn]:
    turns = [
        each
        for each in events
        if each.reason in (reasons.STEPPED_BACK, reasons.CHECKPOINT_REJECTED)
    ]
    return [
        CheckpointTurn(at=timestamp(each.at) or "", text=each.message) for each in reversed(turns)
    ]


def _beginning(
    events: Sequence[Event], number: int | None, *, before: float, submitted_at: float
) -> tuple[float | None, str]:
    """Return when a lineage was begun, and by what, in words."""
    if not number:
        return submitted_at, "since the run began"
    fresh = [each for each in events if each.reason == reasons.FRESH_JOB and each.at <= before]
    if not fresh:
        return None, "begun anew when the run was planned again"
    return fresh[-1].at, f"begun anew: {fresh[-1].message}"


def _resumed(asked: ResolvedCheckpoint, source: RunLink | None) -> Iterator[ResumedFrom]:
    def told(reference: CheckpointReference, instance: str | None) -> ResumedFrom:
        return ResumedFrom(
            step=reference.step,
            uri=reference.uri,
            instance=instance,
            text=_asked_for(asked),
            run=source,
        )

    if asked.initial is not None:
        yield told(asked.initial, None)
    for instance, each in asked.initial_of_each.items():
        yield told(each, instance)


def _asked_for(asked: ResolvedCheckpoint) -> str:
    match asked.resume:
        case int() as step:
            return f"step {step} of an earlier beginning of this run"
        case FromRun(run, _):
            return f"run {run}"
        case FromAsset(uri):
            return f"asset {uri}"
        case _:
            return ""


def _every(asked: ResolvedCheckpoint) -> str:
    match asked.every:
        case SaveEverySteps(1):
            return "every step"
        case SaveEverySteps(steps):
            return f"every {steps} steps"
        case SaveEverySeconds(seconds) if seconds >= 60 and seconds % 60 == 0:
            return f"every {seconds / 60:g} min"
        case SaveEverySeconds(seconds):
            return f"every {seconds:g} s"
        case _:
            return "as often as loses least"


def _place(uri: str) -> _RootAddress:
    """Return what the address of a root says, as `control.recovery.checkpoint_root` makes it."""
    found = _ROOT.search(uri)
    if found is None:
        return _RootAddress(None, None)
    return _RootAddress(int(found["lineage"]), found["instance"])
