"""A job that starts from another training's checkpoint: which one, and what is said where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_training.admission.launch import describe_start, launch
from airflow_training.checkpoints.group import Group
from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import Event, JobEntry, Recovery
from airflow_training.control.recovery import order
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.documents.resolved_blocks import CheckpointCommit, CheckpointReference
from airflow_training.errors import InputError, Problem
from airflow_training.runtimes.rendering import checkpoint_address
from airflow_training.state.store import RunRecord, Store, open_store
from airflow_training.supervise.hot_start import hot_start
from airflow_training.supervise.status import rejected_checkpoints
from airflow_training.web.checkpoint_loading import load_checkpoint_page
from tests.builders import job, role
from tests.checkpoints.groups import train

NEW = RunKey(source="cli", run_id="new")


@pytest.fixture
def store(airflow_home: Path) -> Store:
    return open_store()


def training(folder: Path, resume: Any = "latest", **fields: Any) -> ResolvedJob:
    """Return a job that keeps checkpoints in a folder."""
    fields.setdefault("scope", "Job")
    checkpoint = {"uri": str(folder / "ckpt"), "keep": 3, "resume": resume}
    return job(checkpoint=checkpoint, **fields)


def ran(
    store: Store,
    spec: ResolvedJob,
    run_id: str = "tuesday",
    *,
    lineages: Mapping[str, tuple[int, ...]] | None = None,
    **entry: Any,
) -> RunRecord:
    """Store a run whose training has saved these steps, by the folder of its root."""
    record = launch(
        spec,
        key=RunKey(source="cli", run_id=run_id),
        store=store,
        controller="c",
        activate_all=True,
    )
    for folder, steps in ({"0": (10, 20)} if lineages is None else lineages).items():
        train(Group.open(f"{checkpoint_address(spec, record.ref())}/{folder}", keep=9), *steps)
    if entry:
        ledger = store.ledger(record.uid)
        lease = store.acquire(record.uid, owner="test", seconds=60)
        assert lease is not None
        new = dataclasses.replace(ledger, job=dataclasses.replace(ledger.job, **entry))
        store.commit(record.uid, lease=lease, old=ledger, new=new, events=())
        store.release(lease)
    return record


def started(store: Store, spec: ResolvedJob, key: RunKey = NEW, **given: Any) -> Any:
    """Return the reference that a job is to start from."""
    resolved, warnings = hot_start(spec, key=key, store=store, **given)
    assert not warnings
    initial = resolved.checkpoint and resolved.checkpoint.initial
    return initial and initial.to_document()


def refused(store: Store, spec: ResolvedJob, key: RunKey = NEW, **given: Any) -> Problem:
    with pytest.raises(InputError) as caught:
        hot_start(spec, key=key, store=store, **given)
    (problem,) = caught.value.problems
    assert problem.code == "bad_reference"
    return problem


def damage(root: Path, step: int) -> None:
    """Flip a bit in what a save was the first to write."""
    for path in root.glob(f"shards/*/*-{step:012d}-*"):
        content = bytearray(path.read_bytes())
        content[0] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("resume", ["latest", "none"])
def test_without_a_wish_a_run_has_only_its_own(store: Store, tmp_path: Path, resume: str):
    ran(store, training(tmp_path))
    assert started(store, training(tmp_path, resume)) is None


def test_another_run_is_gone_on_from_at_its_newest_checkpoint(store: Store, tmp_path: Path):
    record = ran(store, training(tmp_path))
    found = started(store, training(tmp_path, {"fromRun": "tuesday"}))
    assert found.keys() == {"uri", "step", "digest"}
    assert found["step"] == 20
    assert found["uri"] == f"{checkpoint_address(training(tmp_path), record.ref())}/0"


def test_another_run_is_gone_on_from_at_a_step(store: Store, tmp_path: Path):
    ran(store, training(tmp_path))
    found = started(store, training(tmp_path, {"fromRun": "tuesday", "step": 10}))
    assert found["step"] == 10
    problem = refused(store, training(tmp_path, {"fromRun": "tuesday", "step": 15}))
    assert "no whole checkpoint of step 15" in problem.message
    assert problem.allowed == [10, 20]


def test_what_is_damaged_is_passed_over(store: Store, tmp_path: Path):
    record = ran(store, training(tmp_path))
    root = Path(checkpoint_address(training(tmp_path), record.ref())) / "0"
    damage(root, 20)
    wish = training(tmp_path, {"fromRun": "tuesday"})
    resolved, warnings = hot_start(wish, key=NEW, store=store)
    assert resolved.checkpoint is not None
    assert resolved.checkpoint.initial is not None
    assert resolved.checkpoint.initial.step == 10
    (warning,) = warnings
    assert warning.field == "spec.checkpoint.resume.fromRun"
    assert warning.message.startswith("an older checkpoint is taken, as step 20 is damaged: ")
    damage(root, 10)
    problem = refused(store, wish)
    assert problem.message == "run 'tuesday' has no whole checkpoint"
    assert "checkpoints verify tuesday" in problem.hint


def test_the_newest_beginning_of_a_run_that_got_anywhere_counts(store: Store, tmp_path: Path):
    ran(store, training(tmp_path), lineages={"0": (10, 20), "9": (5,), "10": (7,), "11": ()})
    assert started(store, training(tmp_path, {"fromRun": "tuesday"}))["step"] == 7


def test_an_unknown_run_is_named_with_those_that_exist(store: Store, tmp_path: Path):
    ran(store, training(tmp_path))
    problem = refused(store, training(tmp_path, {"fromRun": "thuesday"}))
    assert problem.field == "spec.checkpoint.resume.fromRun"
    assert (list(problem.allowed), problem.hint) == (["tuesday"], "did you mean 'tuesday'?")


def test_a_run_that_keeps_or_has_no_checkpoints_is_refused(store: Store, tmp_path: Path):
    ran(store, job(), "plain", lineages={})
    wish = training(tmp_path, {"fromRun": "plain"})
    assert "keeps no checkpoints" in refused(store, wish).message
    ran(store, training(tmp_path), "young", lineages={})
    wish = training(tmp_path, {"fromRun": "young"})
    assert refused(store, wish).message == "run 'young' has no whole checkpoint"


def test_independent_instances_have_no_checkpoint_in_common(store: Store, tmp_path: Path):
    ran(store, training(tmp_path), lineages={"0/worker-0": (10,), "0/worker-1": (10,)})
    problem = refused(store, training(tmp_path, {"fromRun": "tuesday"}))
    assert "each instance" in problem.message


def independent(folder: Path, replicas: int, resume: Any = "latest") -> ResolvedJob:
    roles = (role(replicas=replicas),)
    return dataclasses.replace(training(folder, resume, scope="Instance"), roles=roles)


def test_each_independent_instance_begins_with_what_its_namesake_had(store: Store, tmp_path: Path):
    steps = {"0/worker-0": (10, 20), "0/worker-1": (10, 30)}
    ran(store, independent(tmp_path, 2), lineages=steps)
    resolved, warnings = hot_start(
        independent(tmp_path, 2, {"fromRun": "tuesday"}), key=NEW, store=store
    )
    assert not warnings
    told = [
        told_of(resolved, f"/new/0/worker-{index}", index)["initial"]["step"] for index in range(2)
    ]
    assert told == [20, 30]
    assert "worker-1: step 30 in " in describe_start(resolved)


def told_of(spec: ResolvedJob, root: str, index: int) -> dict[str, Any]:
    return order(
        spec,
        JobEntry(),
        root=root,
        role="worker",
        attempt=AttemptId(attempt=index),
        command=[],
        image="",
        env={},
    )


def test_an_instance_without_a_namesake_begins_with_nothing_and_that_is_said(
    store: Store, tmp_path: Path
):
    steps = {"0/worker-0": (10,), "0/worker-1": (), "0/worker-3": (10,)}
    ran(store, independent(tmp_path, 4), lineages=steps)
    resolved, (warning,) = hot_start(
        independent(tmp_path, 3, {"fromRun": "tuesday"}), key=NEW, store=store
    )
    assert resolved.checkpoint is not None
    assert [*resolved.checkpoint.initial_of_each] == ["worker-0"]
    assert warning.code == "missing"
    assert warning.message.startswith("worker-1, worker-2 begins with nothing: run 'tuesday'")
    assert told_of(resolved, "/new/0/worker-2", 2)["initial"] is None


def test_a_namesake_whose_checkpoints_are_all_damaged_is_refused(store: Store, tmp_path: Path):
    steps = {"0/worker-0": (10,), "0/worker-1": (10,)}
    record = ran(store, independent(tmp_path, 2), lineages=steps)
    root = Path(checkpoint_address(independent(tmp_path, 2), record.ref())) / "0" / "worker-1"
    damage(root, 10)
    problem = refused(store, independent(tmp_path, 2, {"fromRun": "tuesday"}))
    assert problem.message == "worker-1 of run 'tuesday' has no whole checkpoint"


def test_a_step_that_is_not_there_is_told_with_those_that_are_whole(store: Store, tmp_path: Path):
    record = ran(store, training(tmp_path), lineages={"0": (10, 15, 20)})
    damage(Path(checkpoint_address(training(tmp_path), record.ref())) / "0", 20)
    problem = refused(store, training(tmp_path, {"fromRun": "tuesday", "step": 7}))
    assert problem.message == "run 'tuesday' has no whole checkpoint of step 7"
    assert list(problem.allowed) == [10, 15]


def test_a_run_without_any_namesake_is_refused_with_those_it_has(store: Store, tmp_path: Path):
    ran(store, independent(tmp_path, 3), lineages={"0/worker-2": (10,)})
    problem = refused(store, independent(tmp_path, 2, {"fromRun": "tuesday"}))
    assert "no whole checkpoint of any of worker-0, worker-1" in problem.message
    assert list(problem.allowed) == ["worker-2"]


def test_one_checkpoint_is_where_all_independent_instances_begin(store: Store, tmp_path: Path):
    ran(store, training(tmp_path))
    assert started(store, independent(tmp_path, 2, {"fromRun": "tuesday"}))["step"] == 20


def test_a_model_must_be_there_where_instances_look_for_it(store: Store, tmp_path: Path):
    model = tmp_path / "model.safetensors"
    for address in (str(model), f"file://{model}"):
        here = job(data={"initialModel": address})
        assert here.starts_from_elsewhere
        problem = refused(store, here)
        assert (problem.field, problem.value) == ("spec.data.initialModel", address)
        elsewhere = job(data={"initialModel": address}, runtime="kubernetes")
        assert started(store, elsewhere) is None
    model.touch()
    assert started(store, job(data={"initialModel": str(model)})) is None
    assert started(store, job(data={"initialModel": "s3://models/other"})) is None


# steps ------------------------------------------------------------------------------------------
def test_a_step_is_that_of_an_earlier_beginning_of_the_same_run(store: Store, tmp_path: Path):
    record = ran(store, training(tmp_path))
    assert started(store, training(tmp_path, 10), record.key)["step"] == 10
    problem = refused(store, training(tmp_path, 15), record.key)
    assert (problem.value, list(problem.allowed)) == (15, [10, 20])
    assert "fromRun" in problem.hint


@pytest.mark.parametrize(
    ("of", "saved", "offered"),
    [
        pytest.param("", {"0": (10, 20)}, {10, 20}, id="since-the-beginning"),
        pytest.param("", {"0": (10, 20, 30), "1": (5, 10)}, {5, 10, 20, 30}, id="begun-anew"),
        pytest.param("", {"0": (10, 20, 30, 15, 25)}, {10, 15, 25}, id="gone-back"),
        pytest.param(
            "worker-", {"0/worker-0": (10, 20), "0/worker-1": (10, 30)}, {10}, id="each-alone"
        ),
    ],
)
def test_every_step_that_the_page_offers_is_found(
    store: Store, tmp_path: Path, of: str, saved: Mapping[str, tuple[int, ...]], offered: set[int]
):
    def wish(resume: Any) -> ResolvedJob:
        return independent(tmp_path, 2, resume) if of else training(tmp_path, resume)

    record = ran(store, wish("latest"), lineages={})
    commits = []
    for folder, steps in saved.items():
        root = f"{checkpoint_address(wish('latest'), record.ref())}/{folder}"
        before = 0
        for step in steps:
            group = Group.open(root, keep=9, not_after=step if step < before else None)
            [manifest] = train(group, step)
            commits.append(
                CheckpointCommit(uri=root, step=step, digest=manifest.digest, at=manifest.at)
            )
            before = step
    told = [
        Event(
            at=each.at,
            reason=reasons.CHECKPOINT_COMMITTED,
            data={"checkpoint": each.to_document()},
        )
        for each in commits
    ]
    store.add_events(record.uid, told)
    page = load_checkpoint_page(store, record.uid)
    assert page is not None
    assert page.restorable_steps == offered
    for step in offered:
        resolved, warnings = hot_start(
            wish({"fromRun": record.uid, "step": step}), key=NEW, store=store
        )
        assert not warnings
        block = resolved.checkpoint
        assert block is not None
        found = [*block.initial_of_each.values(), *filter(None, [block.initial])]
        newest = {
            each.uri: each.reference
            for each in sorted(commits, key=lambda commit: commit.at)
            if each.step == step
        }
        assert found == (list(newest.values()) if of else [[*newest.values()][-1]])


def test_a_step_of_a_run_that_has_saved_nothing_is_refused(store: Store, tmp_path: Path):
    ran(store, training(tmp_path))
    problem = refused(store, training(tmp_path, 10))
    assert (problem.field, list(problem.allowed)) == ("spec.checkpoint.resume", [])


# assets -----------------------------------------------------------------------------------------
def extra_of(store: Store, folder: Path, step: int, **fields: Any) -> Mapping[str, Any]:
    """Return what the event of an asset carries when it was updated at a step of `tuesday`."""
    from airflow_training.checkpoints import reading

    record = store.find_run("tuesday")
    root = f"{checkpoint_address(training(folder), record.ref())}/0"
    reference = reading.reference(root, reading.find(root, step=step))
    return {"uri": "s3://models/digits", "checkpoint": {**reference, **fields}}


def test_an_asset_means_what_its_newest_event_names(store: Store, tmp_path: Path):
    ran(store, training(tmp_path))
    wish = training(tmp_path, {"asset": "x://model"})
    extras = [{"checkpoint": None}, {"checkpoint": "?"}, extra_of(store, tmp_path, 10)]
    assert (
        started(store, wish, extras=lambda uri: extras if uri == "x://model" else ())["step"] == 10
    )


def test_what_an_event_names_must_be_that_very_checkpoint(store: Store, tmp_path: Path):
    ran(store, training(tmp_path))
    wish = training(tmp_path, {"asset": "x://model"})
    other = extra_of(store, tmp_path, 10, digest="sha256:0")
    assert "not the one that is meant" in refused(store, wish, extras=lambda _: [other]).message
    extra = extra_of(store, tmp_path, 20)
    damage(Path(extra["checkpoint"]["uri"]), 20)
    assert "is damaged" in refused(store, wish, extras=lambda _: [extra]).message


def test_without_events_an_asset_means_the_newest_run_that_updates_it(store: Store, tmp_path: Path):
    outlets = {"spec": {"dag": {"outlets": ["x://model"]}}}
    spec = training(tmp_path, document=outlets)
    record = ran(store, spec, state="Succeeded", drained=True)
    ran(store, training(tmp_path, document={**outlets, "n": 2}), "failed", state="Failed")
    found = started(store, training(tmp_path, {"asset": "x://model"}))
    assert found["uri"] == f"{checkpoint_address(spec, record.ref())}/0"
    problem = refused(store, training(tmp_path, {"asset": "x://modle"}))
    assert problem.field == "spec.checkpoint.resume.asset"


# from another machine ---------------------------------------------------------------------------
REPORTED = CheckpointCommit(uri="/only/in/pods/0", step=7, digest="sha256:7", at=1.0, bytes=1)


def test_what_cannot_be_seen_from_here_is_left_to_the_instances(store: Store, tmp_path: Path):
    ran(store, training(tmp_path), lineages={}, checkpoint=REPORTED)
    wish = training(tmp_path, {"fromRun": "tuesday"}, runtime="kubernetes")
    resolved, (warning,) = hot_start(wish, key=NEW, store=store)
    assert resolved.checkpoint is not None
    assert resolved.checkpoint.initial == CheckpointReference(
        uri="/only/in/pods/0", step=7, digest="sha256:7"
    )
    assert warning.code == "not_verified"


def test_a_step_before_the_newest_can_be_left_to_the_instances_too(store: Store, tmp_path: Path):
    older = dataclasses.replace(REPORTED, step=5, digest="sha256:5", at=0.5)
    recovery = Recovery(older=(older,))
    ran(store, training(tmp_path), lineages={}, checkpoint=REPORTED, recovery=recovery)
    wish = training(tmp_path, {"fromRun": "tuesday", "step": 5}, runtime="kubernetes")
    resolved, _ = hot_start(wish, key=NEW, store=store)
    assert resolved.checkpoint is not None
    assert resolved.checkpoint.initial == older.reference


def test_instances_on_this_machine_see_no_more_than_we_do(store: Store, tmp_path: Path):
    ran(store, training(tmp_path), lineages={}, checkpoint=REPORTED)
    problem = refused(store, training(tmp_path, {"fromRun": "tuesday"}))
    assert "cannot be read from here" in problem.message


def test_the_story_of_the_run_begins_with_it(store: Store, tmp_path: Path):
    ran(store, training(tmp_path))
    wish = training(tmp_path, {"fromRun": "tuesday"})
    resolved, _ = hot_start(wish, key=NEW, store=store)
    uid = launch(resolved, key=NEW, store=store, controller="c", activate_all=True).uid
    asked = store.job(uid).checkpoint
    assert asked is not None
    assert asked.initial is not None
    assert asked.initial.step == 20
    [told] = store.events(uid)
    assert (told.event.reason, told.event.message[:7]) == ("StartsFrom", "step 20")


def test_a_damaged_checkpoint_that_was_passed_over_is_in_the_story_and_in_the_status_once(
    store: Store, tmp_path: Path
):
    record = ran(store, training(tmp_path))
    damage(Path(checkpoint_address(training(tmp_path), record.ref())) / "0", 20)
    resolved, _ = hot_start(training(tmp_path, {"fromRun": "tuesday"}), key=NEW, store=store)
    for _ in range(2):  # typed again, it goes on as it began
        launch(resolved, key=NEW, store=store, controller="c", activate_all=True)
    told = [
        each.event
        for each in store.events(NEW.uid)
        if each.event.reason == reasons.CHECKPOINT_REJECTED
    ]
    assert [(each.message[:19], each.level) for each in told] == [
        ("step 20 is damaged:", "warning")
    ]
    (shown,) = rejected_checkpoints(store.job(NEW.uid), store.ledger(NEW.uid))
    assert shown == told[0].message


def test_a_damaged_checkpoint_of_an_instance_that_saves_alone_is_told_with_its_name(
    store: Store, tmp_path: Path
):
    spec = independent(tmp_path, 2)
    record = ran(store, spec, lineages={"0/worker-0": (10, 20), "0/worker-1": (10, 20)})
    damage(Path(checkpoint_address(spec, record.ref())) / "0" / "worker-1", 20)
    wish = independent(tmp_path, 2, {"fromRun": "tuesday"})
    resolved, (warning,) = hot_start(wish, key=NEW, store=store)
    assert "worker-1: step 20 is damaged: " in warning.message
    assert resolved.checkpoint is not None
    assert {name: each.step for name, each in resolved.checkpoint.initial_of_each.items()} == {
        "worker-0": 20,
        "worker-1": 10,
    }
