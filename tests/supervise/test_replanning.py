"""A run whose cluster changes: what the loop does with the planner's verdict, and what it never does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.admission.plan.follow import adaptive_plan
from airflow_training.admission.plan.history import NO_HISTORY, History
from airflow_training.admission.plan.replan import (
    ReplanInput,
    ReplanVerdict,
    replan_run,
    steps_at_risk,
)
from airflow_training.admission.plan.step import plan_job
from airflow_training.control.model import ActivePhase, InstanceEntry, JobEntry, Ledger, RoleEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import (
    ResolvedCheckpoint,
    SaveEverySeconds,
    SaveEverySteps,
)
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import ClusterSnapshot, NodeView
from airflow_training.supervise.followers.follower import FollowerChange
from airflow_training.supervise.followers.replanning import Replanner, RunView
from tests.rounds import Rounds
from tests.supervise.conftest import Stage
from tests.waiting import PATIENCE, until

FOREVER = Script(default=Behaviour(run_seconds=None))
GPT = {"hidden": 1024, "layers": 8, "heads": 16, "seq": 1024, "vocab": 32000}
TINY = {"hidden": 64, "layers": 4, "heads": 4, "seq": 64, "vocab": 512}
FAR = 10**6
"""Steps, so many that a faster split always pays."""


def nodes(count: int, **more: Any) -> list[NodeView]:
    labels = {"nvidia.com/gpu.product": "NVIDIA A100-SXM4-80GB"}
    return [
        NodeView(name=f"n{i}", cpus=8, memory_bytes=2**36, gpus=1, labels=labels, **more)
        for i in range(count)
    ]


class Lab:
    """A folder with a cluster file, and jobs that are planned for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "cluster.json"
        self.history: History = NO_HISTORY
        (folder / "train.py").touch()

    def has(self, count: int, **group: Any) -> None:
        """Let the cluster have so many nodes from now on."""
        machine = {
            "name": "gpus",
            "count": count,
            "device": "A100-SXM4-80GB",
            "devices_per_node": 1,
            "nic_gbit_s": 200,
            **group,
        }
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"name": "lab", "nodes": [machine]}))
        fresh.replace(self.file)

    def job(self, **fields: Any) -> ResolvedJob:
        """Return a job of as many workers as the plan says, that looks at its cluster often."""
        checked = self.check(**fields)
        assert checked.resolved is not None, [str(problem) for problem in checked.problems]
        return replace(checked.resolved, runtime="memory", reconcile_seconds=0.05)

    def check(self, *, spec: dict[str, Any] | None = None, **plan: Any) -> AdmissionResponse:
        document = {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "planned"},
            "spec": {
                "framework": "custom",
                "runtime": {"name": "local"},
                "command": ["python", "train.py"],
                "roles": [{"name": "worker"}],
                "plan": {
                    "model": GPT,
                    "cluster": "cluster.json",
                    "globalBatch": 12,
                    "constraints": {"tp": 1, "pp": 1, "devices": {"max": 3}},
                    **plan,
                },
                **(spec or {}),
            },
        }
        [checked] = check_text(
            yaml.safe_dump(document),
            run_uid="x" * 20,
            base_dir=str(self.folder),
            planner=lambda job, resolved: plan_job(
                job, resolved, runtime=lambda _: Machines(3), history=self.history
            ),
        )
        return checked


class Machines(MemoryRuntime):
    """A runtime with so many nodes of one GPU."""

    def __init__(self, count: int) -> None:
        super().__init__(script=FOREVER)
        self.nodes = nodes(count)

    async def cluster_view(
        self, job: ResolvedJob | None = None, *, with_free: bool = False
    ) -> ClusterSnapshot:
        return ClusterSnapshot(nodes=self.nodes)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.has(3)
    return lab


@pytest.fixture(autouse=True)
def forever(stage: Stage) -> None:
    stage.runtime.script = FOREVER


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(monkeypatch, Replanner, "poll")


def alive(stage: Stage, uid: str) -> list[int]:
    return sorted(index for _, index in stage.live(uid))


def told(stage: Stage, uid: str, reason: str) -> list[Any]:
    return [each.event for each in stage.store.events(uid) if each.event.reason == reason]


def report(stage: Stage, uid: str, *, step: int, of: int) -> None:
    stage.runtime.report(uid, "worker", 0, ProgressReport(step=step, total_steps=of))


# end to end, simulated ------------------------------------------------------------------------------
async def test_a_run_goes_on_with_fewer_and_goes_back_when_the_node_is_there_again(stage, lab):
    uid = stage.launch(lab.job())
    first = stage.store.job(uid).plan
    async with stage.driving(uid):
        await until(lambda: alive(stage, uid) == [0, 1, 2])
        lab.has(2)
        await until(lambda: alive(stage, uid) == [0, 1] and told(stage, uid, "Replanned"))
        second = stage.store.job(uid).plan
        assert second.strategy["dp"] == 2
        assert second.applied_replicas == {"worker": 2}
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        for index in (0, 1):
            spec = stage.runtime.spec(uid, "worker", index)
            assert spec.env["DP_SIZE"] == "2"
            assert spec.ref.job_attempt == 1
            [plan] = [text for path, text in spec.files.items() if path.endswith("plan.json")]
            assert json.loads(plan)["devices"] == 2

        report(stage, uid, step=10, of=FAR)
        lab.has(3)
        await until(lambda: alive(stage, uid) == [0, 1, 2])
        assert stage.runtime.spec(uid, "worker", 2).env["DP_SIZE"] == "3"
    last = stage.store.job(uid).plan.document
    assert last == {**first.document, "seconds": last["seconds"]}
    ledger = stage.store.ledger(uid)
    assert ledger.job.job_attempt == 2
    assert ledger.job.restarts == ()
    lost, regained = told(stage, uid, "Replanned")
    assert lost.message.startswith("gpus lost 1 node, 2 are left: the split takes 3 devices")
    assert "costs" in lost.message
    assert lost.data["before"] == first.id == regained.data["plan"]
    assert regained.data["saved_seconds"] > regained.data["cost_seconds"] > 0
    assert regained.data["cost_steps"] > 10, "without a checkpoint all steps are run again"


async def test_it_does_not_move_where_that_does_not_pay_and_says_so_once(stage, lab, looks):
    lab.has(2)
    uid = stage.launch(lab.job())
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        report(stage, uid, step=FAR, of=FAR + 3)
        lab.has(3)
        await until(lambda: told(stage, uid, "ClusterChanged"))
        await until(looks.more())
    [event] = told(stage, uid, "ClusterChanged")
    assert event.message.startswith("gpus gained 1 node, now 3: the best split saves")
    assert event.data["action"] == "stay"
    assert stage.store.ledger(uid).job.job_attempt == 0


async def test_where_nothing_fits_it_says_so_and_stays_as_it_is(stage, lab):
    uid = stage.launch(lab.job(constraints={"devices": 3}))
    async with stage.driving(uid):
        await until(lambda: alive(stage, uid) == [0, 1, 2])
        lab.has(2)
        await until(lambda: told(stage, uid, "ReplanFailed"))
        assert alive(stage, uid) == [0, 1, 2]
    [event] = told(stage, uid, "ReplanFailed")
    assert event.level == "warning"
    assert "spec.plan.constraints.devices" in event.message


async def test_a_paused_run_changes_when_it_is_resumed(stage, lab, looks):
    uid = stage.launch(lab.job())
    async with stage.driving(uid):
        await until(lambda: len(alive(stage, uid)) == 3)
        stage.store.add_request(uid, "pause")
        await until(lambda: not alive(stage, uid))
        await until(lambda: stage.store.ledger(uid).job.state == "Paused")
        lab.has(2)
        await until(looks.more())
        assert stage.store.ledger(uid).job.state == "Paused"
        assert not told(stage, uid, "Replanned")
        stage.store.add_request(uid, "resume")
        await until(lambda: told(stage, uid, "Replanned") and alive(stage, uid) == [0, 1])


async def test_a_holder_that_dies_right_after_the_new_job_was_stored_is_followed_by_one_that_goes_on(
    stage, lab, monkeypatch
):
    uid = stage.launch(lab.job())
    commit = stage.store.commit
    async with stage.driving(uid) as task:
        await until(lambda: stage.store.ledger(uid).job.state == "Running")

        def commit_and_die(*arguments: Any, job: ResolvedJob | None = None, **named: Any) -> None:
            commit(*arguments, job=job, **named)
            if job is not None:
                task.get_loop().call_soon_threadsafe(task.cancel)

        monkeypatch.setattr(stage.store, "commit", commit_and_die)
        lab.has(2)
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled()
    assert stage.store.ledger(uid).job.job_attempt == 1
    assert stage.store.job(uid).role("worker").replicas == 2
    assert alive(stage, uid) == [0, 1, 2], "nothing was done yet"
    monkeypatch.undo()
    async with stage.driving(uid):
        await until(lambda: alive(stage, uid) == [0, 1])
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    assert stage.store.ledger(uid).job.job_attempt == 1
    assert len(told(stage, uid, "Replanned")) == 1


async def test_a_store_that_breaks_during_the_change_leaves_the_old_split_or_the_new_one(
    stage, lab, monkeypatch
):
    """The transaction went through, but its answer never came back."""
    uid = stage.launch(lab.job())
    commit = stage.store.commit
    broken: list[ResolvedJob] = []

    def break_once(*arguments: Any, job: ResolvedJob | None = None, **named: Any) -> None:
        commit(*arguments, job=job, **named)
        if job is not None and not broken:
            broken.append(job)
            raise RuntimeUnavailable("the connection broke")

    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        monkeypatch.setattr(stage.store, "commit", break_once)
        lab.has(2)
        await until(lambda: broken and alive(stage, uid) == [0, 1])
        assert stage.runtime.spec(uid, "worker", 0).env["DP_SIZE"] == "2"
    assert stage.store.ledger(uid).job.job_attempt == 1


async def test_a_cluster_that_cannot_be_seen_is_no_change_and_told_once(stage, lab, looks, caplog):
    uid = stage.launch(lab.job())
    async with stage.driving(uid):
        await until(lambda: len(alive(stage, uid)) == 3)
        lab.file.unlink()
        await until(lambda: "cannot be seen" in caplog.text)
        await until(looks.more())
        assert caplog.text.count("cannot be seen") == 1
        assert len(alive(stage, uid)) == 3
        lab.has(2)
        await until(lambda: alive(stage, uid) == [0, 1])


# which jobs -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("plan", "follows"),
    [
        pytest.param({}, True, id="by-default"),
        pytest.param({"replan": "Never"}, False, id="never"),
        pytest.param({"apply": []}, False, id="only-shown"),
        pytest.param({"apply": ["env"]}, True, id="only-the-split"),
        pytest.param({"cluster": "request", "model": TINY}, False, id="the-jobs-own-request"),
        pytest.param({"cluster": {"name": "c", "nodes": [{"count": 1, "device": "A100-SXM4-80GB",
                     "devices_per_node": 1, "nic_gbit_s": 100}]}}, False, id="written-down"),
    ],
)  # fmt: skip
def test_which_plans_follow_their_cluster(lab, plan, follows):
    assert (adaptive_plan(lab.job(**plan)) is not None) == follows


def test_a_job_without_a_plan_is_left_alone(lab):
    assert adaptive_plan(replace(lab.job(), plan=None)) is None


def test_python_of_the_user_is_not_run_by_the_loop(lab):
    job = lab.job()
    plan = {**job.document["spec"]["plan"], "model": "train:model"}
    document = {**job.document, "spec": {**job.document["spec"], "plan": plan}}
    assert adaptive_plan(replace(job, document=document)) is None


def test_a_kueue_group_keeps_its_size(lab):
    job = lab.job()
    scheduling = replace(job.scheduling, gang="kueue", keeps_size=True)
    assert adaptive_plan(replace(job, scheduling=scheduling)) is None


def test_who_asks_for_what_cannot_be_is_told(lab):
    said = {each.field: each for each in lab.check(replan="OnChange", apply=[]).warnings}
    assert "nothing of the plan is applied" in said["spec.plan.replan"].message
    assert not lab.check(apply=[]).warnings, "nobody asked"
    assert not lab.check(replan="OnChange").warnings


def test_python_as_model_is_told_though_nobody_asked(lab):
    def warned(**plan: Any) -> list[str]:
        document = {**lab.job().document}
        document["spec"] = {
            **document["spec"],
            "plan": {"model": "train:example", "globalBatch": 12, **plan},
        }
        [checked] = check_text(yaml.safe_dump(document))  # as `validate` does: nothing is planned
        assert not checked.problems
        return [str(each) for each in checked.warnings if each.field == "spec.plan.replan"]

    [said] = warned()
    assert "has no effect: its model is Python" in said
    assert "replan: Never" in said
    assert not warned(replan="Never")
    assert not warned(cluster="request"), "that does not change, and says so itself"


# looking --------------------------------------------------------------------------------------------
class Eye:
    """A replanner over machines that a test takes away and gives back, one look at a time."""

    def __init__(self, lab: Lab) -> None:
        self.machines = Machines(3)
        job = lab.job(
            cluster="nodes", globalBatch=480, spec={"resources": {"limits": {"nvidia.com/gpu": 1}}}
        )
        assert job.role("worker").replicas == 3
        team = {
            InstanceKey("worker", i): InstanceEntry(
                key=InstanceKey("worker", i),
                node=f"n{i}",
                phase=ActivePhase(),
                state="running",
            )
            for i in range(3)
        }
        roles = {"worker": RoleEntry(role="worker", replicas=3, state="Running")}
        ledger = Ledger(job=JobEntry(state="Running", started_at=1.0), roles=roles, instances=team)
        self.state: RunView | None = RunView(
            job=job, ledger=ledger, progress={}, generation=1, now=time.time()
        )
        plan = adaptive_plan(job)
        assert plan is not None
        self.answered = 0
        self.replanner = Replanner(
            runtime=self.machines,
            plan=plan,
            history=NO_HISTORY,
            state=lambda: self.state,
            on_answer=self._count,
            every_seconds=60.0,
        )

    def _count(self) -> None:
        self.answered += 1

    async def poll(self, times: int = 1) -> None:
        for _ in range(times):
            await self.replanner.poll()

    def paused(self) -> RunView:
        assert self.state is not None
        job = replace(self.state.ledger.job, paused_at=2.0)
        return replace(self.state, ledger=replace(self.state.ledger, job=job))

    def waits(self, index: int, *, seconds: float) -> None:
        """Let an instance wait for a place since so long ago."""
        assert self.state is not None
        waiting = InstanceEntry(
            key=InstanceKey("worker", index),
            phase=ActivePhase(desired_since=time.time() - seconds),
        )
        team = {**self.state.ledger.instances, InstanceKey("worker", index): waiting}
        self.state = replace(self.state, ledger=replace(self.state.ledger, instances=team))

    def goes_on(self, change: FollowerChange) -> None:
        """Let the run be what came of a change, with its instances on the first nodes."""
        assert self.state is not None
        assert change.job is not None
        team = {key: entry for key, entry in self.state.ledger.instances.items() if key[1] < 2}
        size = change.job.role("worker").replicas
        roles = {"worker": RoleEntry(role="worker", replicas=size, state="Running")}
        self.state = RunView(
            job=change.job,
            ledger=replace(self.state.ledger, instances=team, roles=roles),
            progress={InstanceKey("worker", 0): ProgressReport(step=1, total_steps=FAR)},
            generation=1,
            now=time.time(),
        )

    def change(self) -> FollowerChange | None:
        return self.replanner.change(now=1.0)

    async def judged(self, machines: list[NodeView]) -> FollowerChange | None:
        """Return what comes of these nodes, then look once more, so that they are the usual ones."""
        self.machines.nodes = machines
        await self.poll(2)
        change = self.change()
        await self.poll()
        return change


@pytest.fixture
def eye(lab: Lab) -> Eye:
    return Eye(lab)


async def test_a_node_that_flaps_causes_no_search(eye):
    await eye.poll()
    for _ in range(3):
        eye.machines.nodes = nodes(2)
        await eye.poll()
        eye.machines.nodes = nodes(3)
        await eye.poll()
    assert eye.answered == 0


async def test_a_change_is_judged_once_at_the_second_look(eye):
    await eye.poll()
    eye.machines.nodes = nodes(2)
    await eye.poll(1)
    assert eye.answered == 0
    await eye.poll(5)
    assert eye.answered == 1
    change = eye.change()
    assert change is not None
    assert change.job.role("worker").replicas == 2
    assert change.ledger.roles["worker"].replicas == 2
    assert change.ledger.job.job_attempt == 1
    assert eye.change() is None
    await eye.poll(5)
    assert eye.answered == 1


async def test_while_it_cannot_move_nobody_searches(eye):
    await eye.poll()
    running, eye.state = eye.state, eye.paused()
    eye.machines.nodes = nodes(2)
    await eye.poll(5)
    assert eye.answered == 0
    eye.state = running
    await eye.poll(2)
    assert eye.answered == 1


async def test_a_run_that_was_paused_during_the_search_is_judged_again(eye):
    await eye.poll()
    eye.machines.nodes = nodes(2)
    await eye.poll(2)
    running, eye.state = eye.state, eye.paused()
    assert eye.change() is None
    eye.state = running
    await eye.poll(2)
    assert eye.answered == 2
    assert eye.change().job is not None


async def test_a_failed_node_is_replaced_where_a_spare_is_there(eye):
    """Four machines, three in use: the restart rules bring the lost one back, the split stays."""
    await eye.judged(nodes(4))
    change = await eye.judged(nodes(4)[1:])
    assert change.job is None
    [event] = change.events
    assert event.reason == "ClusterChanged"
    assert event.data["action"] == "replace"
    assert "spare" in event.message


async def test_a_spare_that_is_lost_is_no_failure(eye):
    await eye.judged(nodes(4))
    change = await eye.judged(nodes(3))
    assert [event.data["action"] for event in change.events] == ["stay"]


def left_by_others(count: int, *free: int | None) -> list[NodeView]:
    return [replace(node, free_gpus=gpus) for node, gpus in zip(nodes(count), free, strict=True)]


async def test_a_job_that_waits_for_a_place_takes_what_others_leave_and_grows_when_they_go(eye):
    await eye.poll()
    eye.waits(2, seconds=400.0)
    shrunk = await eye.judged(left_by_others(3, 0, 0, 0))
    assert shrunk.job.role("worker").replicas == 2
    assert shrunk.job.plan.capacity == "free"
    [event, *_] = shrunk.events
    assert event.message.startswith("counted without what others hold, A100-SXM4-80GB lost 1 node")

    eye.goes_on(shrunk)
    assert await eye.judged(left_by_others(3, 0, 0, 0)) is None
    grown = await eye.judged(left_by_others(3, 0, 0, 1))
    assert grown.job.role("worker").replicas == 3


@pytest.mark.parametrize(
    "free",
    [
        pytest.param((0, 0, 0), id="it-may-come-soon"),
        pytest.param((None, None, None), id="nobody-knows"),
    ],
)
async def test_a_job_that_may_still_get_its_place_stays(eye, free):
    await eye.judged(nodes(3))
    eye.waits(2, seconds=100.0 if free[0] == 0 else 400.0)
    assert await eye.judged(left_by_others(3, *free)) is None


# the verdict ----------------------------------------------------------------------------------------
def after_change(
    job: ResolvedJob, *, history: History = NO_HISTORY, **situation: Any
) -> ReplanVerdict:
    assert job.plan is not None
    return replan_run(
        ReplanInput(job=job, machines=ClusterSnapshot(nodes=()), **situation),
        before=job.plan.cluster_view,
        history=history,
    )


def test_a_slow_link_is_a_change_like_any_other(lab):
    job = lab.job()
    lab.has(3, nic_gbit_s=0.2)
    verdict = after_change(job, total_steps=FAR)
    assert verdict.message.startswith("gpus's network: slower")


def test_a_gang_that_could_not_start_at_the_new_size_is_refused(lab):
    policy = {"gang": "volcano", "minAvailable": 3}
    job = lab.job(
        spec={
            "roles": [{"name": "worker", "replicas": 3}],
            "schedulingPolicy": policy,
            "runtime": {"name": "kubernetes"},
            "image": "train",
        }
    )
    lab.has(2)
    verdict = after_change(job)
    assert verdict.reason == "ReplanFailed"
    assert "minAvailable" in verdict.message


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        pytest.param(None, 1000, id="none-all-is-lost"),
        pytest.param(ResolvedCheckpoint(every=SaveEverySteps(50)), 50, id="by-steps"),
        pytest.param(ResolvedCheckpoint(every=SaveEverySteps(5000)), 1000, id="none-written-yet"),
        pytest.param(ResolvedCheckpoint(every=SaveEverySeconds(60)), 121, id="by-time"),
        pytest.param(ResolvedCheckpoint(every="auto"), 1000, id="auto"),
    ],
)
def test_steps_that_are_run_again(checkpoint, expected):
    assert steps_at_risk(checkpoint, step=1000, step_seconds=0.5) == expected


def test_a_job_keeps_what_the_user_and_the_framework_gave_it(lab):
    """The plan's variables and files are exchanged, nothing else is touched."""
    job = lab.job(apply=["replicas", "env", "microBatch"])
    lab.has(2)
    new = after_change(job).job
    assert new is not None
    before, after = job.role("worker"), new.role("worker")
    assert set(before.env) == set(after.env)
    assert [file.path for file in before.files] == [file.path for file in after.files]
    assert (before.env["DP_SIZE"], after.env["DP_SIZE"]) == ("3", "2")
    kept: Callable[[ResolvedJob], Any] = lambda of: replace(of, roles=(), plan=None)  # noqa: E731
    assert kept(new) == kept(job)
