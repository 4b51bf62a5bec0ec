"""What of another training a job starts from: a checkpoint that was verified, or a model.

The reference of a checkpoint, or one for each of the instances that save alone, is kept with the resolved job;
instances use it only while their own run has none. Blocks on the store and on the object store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.control.recovery import is_one_group
from airflow_training.documents.resolved import ResolvedJob, RunKey, RunRef
from airflow_training.documents.resolved_blocks import (
    CheckpointReference,
    FromAsset,
    FromRun,
    ResolvedCheckpoint,
)
from airflow_training.errors import InputError, Problem
from airflow_training.runtimes.rendering import checkpoint_address, initial_model, sees_our_files
from airflow_training.state.store import RunRecord, Store
from airflow_training.supervise.checkpoint_places import (
    CheckpointRoot,
    has_saves,
    newest_valid,
    roots_below,
    whole,
)

__all__ = ["AssetExtras", "hot_start"]

AssetExtras = Callable[[str], Sequence[Mapping[str, Any]]]
"""Returns what the events of an asset carry, the newest first; () where nobody knows any."""

_RESUME = "spec.checkpoint.resume"
_RUNS_LOOKED_AT = 200


def hot_start(
    job: ResolvedJob, *, key: RunKey, store: Store, extras: AssetExtras = lambda _: ()
) -> tuple[ResolvedJob, Sequence[Problem]]:
    """Return the job with the checkpoint that it asks to start from, and warnings.

    `key` is the run that begins, which matters where a step of its own earlier training is asked for.
    Raises InputError: no such run, asset or checkpoint, each with what there is instead; a model that
    should be a file of this machine and is none.
    """
    run = RunRef(uid=key.uid, job=job.name, namespace=job.namespace, controller="")
    _check_model(job, run)
    asked = job.checkpoint
    if asked is None:
        return job, ()
    search = _CheckpointLookup(job, store=store, run=run)
    match asked.resume:
        case int() as step:
            found = dataclasses.replace(asked, initial=search.of_step(step))
        case FromAsset(uri):
            found = dataclasses.replace(asked, initial=search.of_asset(uri, extras))
        case FromRun(name, step):
            found = search.of_named_run(name, asked, step=step)
        case _:  # of the run itself
            return job, ()
    found = dataclasses.replace(found, passed_over=tuple(search.passed_over))
    return dataclasses.replace(job, checkpoint=found), search.warnings


class _CheckpointLookup:
    def __init__(self, job: ResolvedJob, *, store: Store, run: RunRef) -> None:
        self._job = job
        self._store = store
        self._run = run
        self.warnings: list[Problem] = []
        self.passed_over: list[str] = []
        """Damaged checkpoints that are newer than what is taken, in words."""

    def of_step(self, step: int) -> CheckpointReference:
        """Return the step of an earlier lineage of the same run: it was begun anew since."""
        roots = self._roots(checkpoint_address(self._job, self._run), field=_RESUME, value=step)
        found, damaged = newest_valid(roots, step=step)
        self._pass_over(damaged, field=_RESUME, value=step)
        if found is None:
            raise _refused(
                _RESUME,
                step,
                f"this run has no whole checkpoint of step {step}",
                allowed=_steps(roots),
                hint="{fromRun: RUN} starts from the newest checkpoint of another run",
            )
        return found

    def of_named_run(
        self, text: str, asked: ResolvedCheckpoint, *, step: int | None
    ) -> ResolvedCheckpoint:
        """Return the block with `initial`, or `initial_of_each` where both runs have independent instances."""
        field = f"{_RESUME}.fromRun"
        try:
            record = self._store.find_run(text)
        except InputError as error:
            problems = [dataclasses.replace(each, field=field) for each in error.problems]
            raise InputError(problems=problems) from None
        if is_one_group(self._job) or is_one_group(self._store.job(record.uid)):
            initial = self._of_run(record, field=field, value=text, step=step)
            return dataclasses.replace(asked, initial=initial)
        of_each = self._of_each(record, field=field, value=text, step=step)
        return dataclasses.replace(asked, initial_of_each=of_each)

    def _of_each(
        self, record: RunRecord, *, field: str, value: str, step: int | None
    ) -> Mapping[str, CheckpointReference]:
        """Return the newest whole checkpoint of each instance by its name, for those that the run had too."""
        name = record.key.run_id
        job = self._store.job(record.uid)
        if job.checkpoint is None:
            raise _keeps_none(name, field=field, value=value)
        there = self._roots(checkpoint_address(job, record.ref()), field=field, value=value)
        found: dict[str, CheckpointReference] = {}
        wanted = [
            f"{role.name}-{index}" for role in self._job.roles for index in range(role.replicas)
        ]
        for instance in wanted:
            roots = [root for root in there if root.instance == instance]
            try:
                newest, passed = newest_valid(roots, step=step)
                damaged = newest is None and any(has_saves(root) for root in roots)
            except (CheckpointError, OSError) as error:
                message = f"the checkpoints of {instance} cannot be read from here: {error}"
                raise _refused(field, value, message) from None
            if damaged:
                message = f"{instance} of run {name!r} has no whole checkpoint"
                raise _refused(
                    field, value, message, hint=f"airflow-training checkpoints verify {name}"
                )
            if newest is not None:
                found[instance] = newest
                said = [f"{instance}: {each}" for each in passed]
                self._pass_over(said, field=field, value=value)
        if not found:
            message = f"run {name!r} has no whole checkpoint of any of {', '.join(wanted)}"
            raise _refused(field, value, message, allowed=sorted({r.instance for r in there}))
        if lacking := [instance for instance in wanted if instance not in found]:
            message = (
                f"{', '.join(lacking)} begins with nothing: run {name!r} has no checkpoint of it"
            )
            self.warnings.append(Problem(code="missing", field=field, value=value, message=message))
        return found

    def of_asset(self, uri: str, extras: AssetExtras) -> CheckpointReference:
        """Return what the newest event of an asset names, else the newest run that updates it."""
        field = f"{_RESUME}.asset"
        for extra in extras(uri):
            reference = _reference(extra.get("checkpoint"))
            if reference is not None:
                return self._verified(reference, field=field, value=uri)
        record = self._newest_run_with_outlet(uri)
        if record is None:
            raise _refused(
                field,
                uri,
                f"nothing is known of a checkpoint of the asset {uri!r}",
                hint="a job names it in spec.dag.outlets, and has checkpoint; or {fromRun: RUN}",
            )
        return self._of_run(record, field=field, value=uri)

    def _newest_run_with_outlet(self, uri: str) -> RunRecord | None:
        for record in self._store.runs(limit=_RUNS_LOOKED_AT, states=["Succeeded"]):
            job = self._store.job(record.uid)
            spec = job.document.get("spec") or {}
            if job.checkpoint and uri in ((spec.get("dag") or {}).get("outlets") or ()):
                return record
        return None

    def _of_run(
        self, record: RunRecord, *, field: str, value: str, step: int | None = None
    ) -> CheckpointReference:
        """Return the newest checkpoint of a run that is whole, or that of a step."""
        name = record.key.run_id
        job = self._store.job(record.uid)
        if job.checkpoint is None:
            raise _keeps_none(name, field=field, value=value)
        entry = self._store.ledger(record.uid).job
        newest_first = (entry.checkpoint, *reversed(entry.recovery.older))
        reported = next(
            (each.reference for each in newest_first if each and step in (None, each.step)), None
        )
        try:
            roots = roots_below(checkpoint_address(job, record.ref()))
            newest = [root for root in roots if root.lineage == roots[0].lineage]
            if len({root.instance for root in newest}) > 1:
                message = f"each instance of run {name!r} has checkpoints of its own"
                raise _refused(field, value, message, allowed=[root.instance for root in newest])
            found, damaged = newest_valid(roots, step=step)
        except (CheckpointError, OSError) as error:
            return self._unverified(reported, field=field, value=value, why=str(error))
        if found is not None:
            self._pass_over(damaged, field=field, value=value)
            return found
        if not roots and reported is not None:
            why = f"nothing is seen in {reported.uri}"
            return self._unverified(reported, field=field, value=value, why=why)
        hint = f"airflow-training checkpoints verify {name}"
        if step is not None:
            message = f"run {name!r} has no whole checkpoint of step {step}"
            raise _refused(field, value, message, allowed=_steps(roots), hint=hint)
        message = f"run {name!r} has no whole checkpoint"
        raise _refused(field, value, message, hint=hint)

    def _pass_over(self, damaged: Sequence[str], *, field: str, value: object) -> None:
        """Warn of what is damaged and newer than the checkpoint that is taken."""
        self.passed_over += damaged
        for each in damaged:
            message = f"an older checkpoint is taken, as {each}"
            shown = value if isinstance(value, int | str) else None
            problem = Problem(code="not_verified", field=field, value=shown, message=message)
            self.warnings.append(problem)

    def _verified(
        self, reference: CheckpointReference, *, field: str, value: str
    ) -> CheckpointReference:
        try:
            if whole(reference):
                return reference
        except (CheckpointError, OSError) as error:
            return self._unverified(reference, field=field, value=value, why=str(error))
        message = f"the checkpoint of step {reference.step} in {reference.uri} is damaged"
        raise _refused(field, value, message)

    def _roots(self, address: str, *, field: str, value: object) -> list[CheckpointRoot]:
        try:
            return roots_below(address)
        except (CheckpointError, OSError) as error:
            message = f"the checkpoints cannot be read from here: {error}"
            raise _refused(field, value, message) from None

    def _unverified(
        self, reference: CheckpointReference | None, *, field: str, value: str, why: str
    ) -> CheckpointReference:
        """Return what was reported once, for instances elsewhere: they verify it before they start.

        Those on this machine see no more than we do.
        """
        if reference is None or sees_our_files(self._job):
            raise _refused(field, value, f"the checkpoint cannot be read from here: {why}")
        message = f"step {reference.step} is verified by the instances only, not from here: {why}"
        self.warnings.append(
            Problem(code="not_verified", field=field, value=value, message=message)
        )
        return reference


def _check_model(job: ResolvedJob, run: RunRef) -> None:
    """Refuse a model whose file instances on this machine would not find."""
    model = initial_model(job, run)
    path = model.removeprefix("file://")
    if sees_our_files(job) and path.startswith("/") and not Path(path).exists():
        raise _refused("spec.data.initialModel", model, "there is no such file")


def _reference(found: Any) -> CheckpointReference | None:
    """Return what names a checkpoint, of what somebody's asset event says; else None."""
    if not isinstance(found, Mapping) or not {"uri", "step", "digest"} <= found.keys():
        return None
    return CheckpointReference.from_document(found)


def _steps(roots: Sequence[CheckpointRoot]) -> list[int]:
    """Return the steps of checkpoints that are whole: others would be refused next."""
    from airflow_training.checkpoints import reading

    return sorted(
        {
            each.step
            for root in roots
            for each in reading.verify(root.uri)
            if each.state == "committed"
        }
    )


def _keeps_none(name: str, *, field: str, value: str) -> InputError:
    message = f"run {name!r} keeps no checkpoints: its job has no spec.checkpoint"
    return _refused(field, value, message, hint="data.initialModel starts from a model file")


def _refused(
    field: str, value: object, message: str, *, allowed: Sequence[object] = (), hint: str = ""
) -> InputError:
    return InputError.of(
        code="bad_reference", field=field, value=value, message=message, allowed=allowed, hint=hint
    )
