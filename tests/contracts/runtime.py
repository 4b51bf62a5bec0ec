"""What every adapter of the port must do. Subclass `RuntimeContract` and bring a `harness` fixture.

A harness says how an instance of its runtime sleeps for ever, succeeds, or fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import pytest

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptId
from airflow_training.control.observations import Observation
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole, RunRef
from airflow_training.errors import LeaseLost
from airflow_training.runtimes.port import (
    Change,
    Cursor,
    ExcusesWaits,
    InstanceRef,
    InstanceRemoval,
    InstanceSpec,
    InstanceUpdate,
    KeepsFailed,
    ReleaseAnswer,
    ReplacesFiles,
    Runtime,
    Snapshot,
    SupportsFinish,
)
from tests.builders import with_attempt_id
from tests.waiting import PATIENCE

Kind = Literal["sleeper", "quick", "broken"]
"""Roles of the job: runs until it is ended; exits with 0 at once; exits with 3 at once."""
JOB = ResolvedJob(
    name="contract",
    roles=tuple(
        ResolvedRole(name=name, replicas=2, ports={"main": 1234, "other": 1235})
        for name in ("sleeper", "quick", "broken")
    ),
)


@dataclass(kw_only=True)
class Harness:
    """One adapter under test, and how to make its instances."""

    runtime: Runtime
    run: RunRef
    commands: Mapping[Kind, tuple[str, ...]] = field(default_factory=dict)
    made: Any = "created"
    """Equal to the result of a create that made something new."""

    def ref(self, kind: Kind, index: int = 0, **changes: Any) -> InstanceRef:
        changes = with_attempt_id({"run": self.run, **changes})
        return InstanceRef(key=InstanceKey(kind, index), **changes)

    def spec(self, kind: Kind, index: int = 0, *, attempt: int = 0, **changes: Any) -> InstanceSpec:
        values: dict[str, Any] = {
            "ref": self.ref(kind, index, attempt=attempt),
            "name": f"{self.run.prefix}-{kind}-{index}",
            "command": self.commands.get(kind, ()),
            "grace_seconds": 2.0,
        }
        return InstanceSpec(**{**values, **changes})

    def later(self, generation: int) -> RunRef:
        """Return the run as a holder of another lease generation sees it."""
        return dataclasses.replace(self.run, generation=generation)


class Seen:
    """What a watch has told so far."""

    def __init__(self) -> None:
        self.first: Change | None = None
        self.now: dict[tuple[str, int], Observation] = {}
        self.history: list[Change] = []
        self._news = asyncio.Event()
        self._ended = False

    def end(self, _: object) -> None:
        self._ended = True
        self._news.set()

    async def follow(self, runtime: Runtime, run: RunRef) -> None:
        async for change in runtime.watch(run):
            self.first = self.first or change
            self.history.append(change)
            match change:
                case Snapshot(instances=instances):
                    self.now = {(each.role, each.index): each for each in instances}
                case InstanceUpdate(instance=each):
                    self.now[each.role, each.index] = each
                case InstanceRemoval(role=role, index=index, uid=uid):
                    assert self.now[role, index].uid == uid
                    del self.now[role, index]
            self._news.set()

    async def until(self, holds: Callable[[dict[tuple[str, int], Observation]], bool]) -> None:
        """Wait until the picture is such; fails where no news will come."""
        with anyio.fail_after(PATIENCE):
            while not (self.first and holds(self.now)):
                assert not self._ended, f"the watch ended: {self.now}"
                self._news.clear()
                await self._news.wait()

    async def state(self, role: str, index: int, state: str, **more: Any) -> Observation:
        def holds(now: dict[tuple[str, int], Observation]) -> bool:
            each = now.get((role, index))
            return (
                each is not None
                and each.state == state
                and all(getattr(each, name) == value for name, value in more.items())
            )

        try:
            await self.until(holds)
        except TimeoutError:
            pytest.fail(f"{role} {index} never got {state} {more}: {self.now.get((role, index))}")
        return self.now[role, index]

    async def gone(self, role: str, index: int) -> None:
        await self.until(lambda now: (role, index) not in now)


@contextlib.asynccontextmanager
async def watching(runtime: Runtime, run: RunRef) -> AsyncIterator[Seen]:
    """Watch a run while the block lasts; it begins after the snapshot."""
    seen = Seen()
    task = asyncio.create_task(seen.follow(runtime, run))
    task.add_done_callback(seen.end)
    try:
        await seen.until(lambda now: True)
        yield seen
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class RuntimeContract:
    """The tests; `harness` is prepared (its run exists) and is cleaned up by its fixture."""

    async def test_prepare_answers_the_same_for_ever(self, harness: Harness) -> None:
        first = await harness.runtime.prepare(harness.run, JOB)
        again = await harness.runtime.prepare(harness.run, JOB)
        assert again == first
        assert {role: len(all_) for role, all_ in first.items()} == {
            "sleeper": 2,
            "quick": 2,
            "broken": 2,
        }
        assert all(set(a.ports) == {"main", "other"} for all_ in first.values() for a in all_)

    async def test_another_job_attempt_keeps_the_names_and_answers_the_same_for_ever(
        self, harness: Harness
    ) -> None:
        first = await harness.runtime.prepare(harness.run, JOB)
        next_one = await harness.runtime.prepare(harness.run, JOB, attempt=AttemptId(0, 1))
        assert {
            role: [(each.host, set(each.ports)) for each in team] for role, team in first.items()
        } == {
            role: [(each.host, set(each.ports)) for each in team] for role, team in next_one.items()
        }
        assert await harness.runtime.prepare(harness.run, JOB, attempt=AttemptId(0, 1)) == next_one
        reopened = await harness.runtime.prepare(harness.run, JOB, attempt=AttemptId(1, 1))
        assert await harness.runtime.prepare(harness.run, JOB, attempt=AttemptId(1, 1)) == reopened

    async def test_job_attempts_on_one_machine_share_no_port(self, harness: Harness) -> None:
        answers = [
            await harness.runtime.prepare(harness.run, JOB, attempt=AttemptId(0, number))
            for number in range(4)
        ]
        hosts = {each.host for each in answers[0]["sleeper"]}
        taken = [
            {port for team in answer.values() for each in team for port in each.ports.values()}
            for answer in answers
        ]
        if len(hosts) == 1:  # every instance is reached at the same place
            assert not taken[0] & taken[1]
            assert not taken[1] & taken[2]
        else:
            assert taken[0] == taken[1] == taken[2]

    async def test_prepare_gives_every_instance_ports_of_its_own(self, harness: Harness) -> None:
        addresses = await harness.runtime.prepare(harness.run, JOB)
        found = [
            (a.host, port) for all_ in addresses.values() for a in all_ for port in a.ports.values()
        ]
        assert len(set(found)) == len(found) == 12

    async def test_prepare_for_more_replicas_keeps_the_old_addresses(
        self, harness: Harness
    ) -> None:
        first = await harness.runtime.prepare(harness.run, JOB)
        larger = dataclasses.replace(
            JOB, roles=tuple(dataclasses.replace(role, replicas=3) for role in JOB.roles)
        )
        more = await harness.runtime.prepare(harness.run, larger)
        assert {role: tuple(all_[:2]) for role, all_ in more.items()} == {
            role: tuple(all_) for role, all_ in first.items()
        }

    async def test_the_first_thing_a_watch_yields_is_a_full_snapshot(
        self, harness: Harness
    ) -> None:
        await harness.runtime.create([harness.spec("sleeper", 0), harness.spec("sleeper", 1)])
        async with watching(harness.runtime, harness.run) as seen:
            assert isinstance(seen.first, Snapshot)
            assert {(i.role, i.index) for i in seen.first.instances} == {
                ("sleeper", 0),
                ("sleeper", 1),
            }

    async def test_an_empty_run_has_an_empty_snapshot(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            assert seen.first == Snapshot(instances=())

    async def test_an_instance_runs_with_its_address_live(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("sleeper")])
            found = await seen.state("sleeper", 0, "running")
            assert found.address_live
            assert found.ready
            assert found.started_at is not None

    @pytest.mark.parametrize(
        ("kind", "state", "exit_code"),
        [
            pytest.param("quick", "succeeded", 0, id="exit-0"),
            pytest.param("broken", "failed", 3, id="exit-3"),
        ],
    )
    async def test_an_end_is_told_with_its_exit_code(
        self, harness: Harness, kind: Kind, state: str, exit_code: int
    ) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec(kind)])
            found = await seen.state(kind, 0, state)
            assert (found.exit_code, found.signal) == (exit_code, None)
            assert not found.address_live
            assert found.finished_at is not None

    async def test_create_twice_adopts(self, harness: Harness) -> None:
        first = await harness.runtime.create([harness.spec("sleeper")])
        second = await harness.runtime.create([harness.spec("sleeper")])
        assert [o.result for o in (*first, *second)] == [harness.made, "adopted"]
        assert first[0].ref.uid == second[0].ref.uid != ""

    async def test_create_adopts_what_has_ended(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("quick")])
            before = await seen.state("quick", 0, "succeeded")
            outcome = (await harness.runtime.create([harness.spec("quick")]))[0]
            assert outcome.result == "adopted"
            assert outcome.ref.uid == before.uid

    async def test_outcomes_come_in_the_order_of_the_request(self, harness: Harness) -> None:
        specs = [harness.spec("sleeper", 1), harness.spec("broken", 0), harness.spec("sleeper", 0)]
        outcomes = await harness.runtime.create(specs)
        assert [(o.ref.role, o.ref.index) for o in outcomes] == [
            (s.ref.role, s.ref.index) for s in specs
        ]

    async def test_another_attempt_is_refused_while_the_older_one_lives(
        self, harness: Harness
    ) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("sleeper")])
            await seen.state("sleeper", 0, "running")
            outcome = (await harness.runtime.create([harness.spec("sleeper", attempt=1)]))[0]
            assert outcome.result == "refused"
            assert "lives" in outcome.message

    async def test_the_next_attempt_takes_the_place_of_an_ended_one(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("broken")])
            old = await seen.state("broken", 0, "failed")
            outcome = (await harness.runtime.create([harness.spec("broken", attempt=1)]))[0]
            assert outcome.result == harness.made
            new = await seen.state("broken", 0, "failed", attempt=1)
            assert new.uid != old.uid
            assert InstanceRemoval(key=InstanceKey("broken", 0), uid=old.uid) in seen.history

    async def test_an_older_attempt_is_refused(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("broken", attempt=1)])
            await seen.state("broken", 0, "failed")
            outcome = (await harness.runtime.create([harness.spec("broken", attempt=0)]))[0]
            assert outcome.result == "refused"

    async def test_a_later_epoch_is_a_later_attempt(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("broken", attempt=4)])
            await seen.state("broken", 0, "failed")
            spec = harness.spec("broken", ref=harness.ref("broken", epoch=1))
            assert (await harness.runtime.create([spec]))[0].result == harness.made
            await seen.state("broken", 0, "failed", epoch=1)

    async def test_a_stale_generation_is_refused(self, harness: Harness) -> None:
        await harness.runtime.prepare(harness.later(5), JOB)
        stale = harness.spec("sleeper", ref=harness.ref("sleeper", run=harness.later(4)))
        outcome = (await harness.runtime.create([stale]))[0]
        assert outcome.result == "refused"
        assert "5" in outcome.message

    async def test_a_create_fences_older_generations_too(self, harness: Harness) -> None:
        newer = harness.spec("sleeper", 0, ref=harness.ref("sleeper", run=harness.later(7)))
        stale = harness.spec("sleeper", 1)
        outcomes = await harness.runtime.create([newer])
        outcomes = [*outcomes, *await harness.runtime.create([stale])]
        assert [o.result for o in outcomes] == [harness.made, "refused"]
        await harness.runtime.remove(harness.later(7))

    async def test_a_newer_generation_adopts_what_the_older_one_made(
        self, harness: Harness
    ) -> None:
        """What has been ordered begins, also where that takes longer than the take-over."""
        async with watching(harness.runtime, harness.run) as seen:
            made = (await harness.runtime.create([harness.spec("sleeper")]))[0]
            newer = harness.spec("sleeper", ref=harness.ref("sleeper", run=harness.later(3)))
            adopted = (await harness.runtime.create([newer]))[0]
            assert (adopted.result, adopted.ref.uid) == ("adopted", made.ref.uid)
            await seen.state("sleeper", 0, "running")
        await harness.runtime.remove(harness.later(3))

    async def test_delete_makes_a_living_instance_vanish(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            made = await harness.runtime.create([harness.spec("sleeper")])
            await seen.state("sleeper", 0, "running")
            await harness.runtime.delete([made[0].ref], grace_seconds=2)
            await seen.gone("sleeper", 0)

    async def test_delete_makes_an_ended_instance_vanish(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            made = await harness.runtime.create([harness.spec("quick")])
            await seen.state("quick", 0, "succeeded")
            await harness.runtime.delete([made[0].ref], grace_seconds=2)
            await seen.gone("quick", 0)

    async def test_delete_with_another_uid_does_nothing(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("sleeper")])
            await seen.state("sleeper", 0, "running")
            wrong = harness.ref("sleeper", uid="somebody-else")
            await harness.runtime.delete([wrong], grace_seconds=0)
            # an order that is followed shows that the one before was not
            right = (await harness.runtime.create([harness.spec("sleeper", 1)]))[0].ref
            await harness.runtime.delete([right], grace_seconds=0)
            await seen.gone("sleeper", 1)
            assert seen.now["sleeper", 0].state == "running"

    async def test_deleting_twice_or_nothing_changes_nothing(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            made = await harness.runtime.create([harness.spec("sleeper")])
            for _ in range(2):
                await harness.runtime.delete(
                    [made[0].ref, harness.ref("quick", 1)], grace_seconds=1
                )
            await seen.gone("sleeper", 0)

    async def test_a_deleted_attempt_can_be_made_again(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            first = await harness.runtime.create([harness.spec("sleeper")])
            await seen.state("sleeper", 0, "running")
            await harness.runtime.delete([first[0].ref], grace_seconds=0)
            await seen.gone("sleeper", 0)
            second = await harness.runtime.create([harness.spec("sleeper")])
            assert second[0].result == harness.made
            assert second[0].ref.uid != first[0].ref.uid
            await seen.state("sleeper", 0, "running", uid=second[0].ref.uid)

    async def test_a_held_instance_waits_for_its_release(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("sleeper", held=True)])
            waiting = await seen.state("sleeper", 0, "pending", held=True)
            assert waiting.reason == "WaitingForDependency"
            assert not waiting.address_live
            assert not waiting.ready
            answer = ReleaseAnswer(kind="List", addresses={"quick": ["127.0.0.1:1"]})
            await harness.runtime.release([harness.ref("sleeper", uid=waiting.uid)], answer)
            running = await seen.state("sleeper", 0, "running")
            assert running.uid == waiting.uid
            assert running.address_live
            assert not running.held

    async def test_a_held_instance_can_be_deleted(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            made = await harness.runtime.create([harness.spec("sleeper", held=True)])
            await seen.state("sleeper", 0, "pending", held=True)
            await harness.runtime.delete([made[0].ref], grace_seconds=60)
            await seen.gone("sleeper", 0)

    async def test_an_instance_ends_itself_at_its_deadline(self, harness: Harness) -> None:
        await harness.runtime.create([harness.spec("sleeper", deadline_seconds=0.3)])
        async with watching(harness.runtime, harness.run) as seen:
            found = await seen.state("sleeper", 0, "failed")
            assert found.reason == "DeadlineExceeded"

    async def test_a_held_instance_ends_itself_at_its_deadline(self, harness: Harness) -> None:
        await harness.runtime.create([harness.spec("sleeper", deadline_seconds=0.3, held=True)])
        async with watching(harness.runtime, harness.run) as seen:
            found = await seen.state("sleeper", 0, "failed")
            assert found.reason == "DeadlineExceeded"

    async def test_two_watchers_see_the_same(self, harness: Harness) -> None:
        async with (
            watching(harness.runtime, harness.run) as one,
            watching(harness.runtime, harness.run) as two,
        ):
            await harness.runtime.create([harness.spec("broken")])
            await one.state("broken", 0, "failed")
            await two.state("broken", 0, "failed")
            assert one.now == two.now

    async def test_remove_leaves_nothing_and_refuses_later_creates(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            specs = [harness.spec("sleeper", i) for i in range(2)]
            await harness.runtime.create([*specs, harness.spec("quick")])
            await seen.state("quick", 0, "succeeded")
            await harness.runtime.remove(harness.run)
            await seen.until(lambda now: not now)
            outcomes = await harness.runtime.create([*specs, harness.spec("broken")])
            assert {o.result for o in outcomes} == {"refused"}
            assert "removed" in outcomes[0].message
            await harness.runtime.remove(harness.run)

    async def test_remove_before_anything_was_made_refuses_creates(self, harness: Harness) -> None:
        await harness.runtime.remove(harness.run)
        assert (await harness.runtime.create([harness.spec("quick")]))[0].result == "refused"

    async def test_remove_buries_every_generation_so_far(self, harness: Harness) -> None:
        await harness.runtime.prepare(harness.later(6), JOB)
        await harness.runtime.remove(harness.run)  # by somebody who holds no lease
        late = harness.spec("quick", ref=harness.ref("quick", run=harness.later(6)))
        assert (await harness.runtime.create([late]))[0].result == "refused"

    async def test_a_removed_run_is_opened_again_by_a_later_generation_only(
        self, harness: Harness
    ) -> None:
        before = await harness.runtime.prepare(harness.run, JOB)
        await harness.runtime.remove(harness.run)
        assert await harness.runtime.prepare(harness.later(1), JOB) == before
        ref = harness.ref("quick", run=harness.later(1), epoch=1)
        outcomes = await harness.runtime.create([harness.spec("quick", 0, ref=ref)])
        outcomes = [*outcomes, *await harness.runtime.create([harness.spec("quick", 1)])]
        assert [o.result for o in outcomes] == [harness.made, "refused"]
        await harness.runtime.remove(harness.later(1))

    async def test_prepare_by_a_stale_generation_says_that_the_lease_is_lost(
        self, harness: Harness
    ) -> None:
        await harness.runtime.prepare(harness.later(2), JOB)
        with pytest.raises(LeaseLost):
            await harness.runtime.prepare(harness.later(1), JOB)

    async def test_log_offsets_are_exact(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("broken")])
            await seen.state("broken", 0, "failed")
        ref = harness.ref("broken")
        whole = await harness.runtime.read_log(ref, Cursor(), limit=1 << 20)
        assert whole.data
        assert whole.end
        assert whole.next == Cursor(offset=len(whole.data))
        pieces, cursor, end = b"", Cursor(), False
        while not end:
            chunk = await harness.runtime.read_log(ref, cursor, limit=7)
            assert len(chunk.data) <= 7
            pieces, cursor, end = pieces + chunk.data, chunk.next, chunk.end
        assert pieces == whole.data

    async def test_the_end_of_a_log_is_read_without_the_rest(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("broken")])
            await seen.state("broken", 0, "failed")
        ref = harness.ref("broken")
        whole = (await harness.runtime.read_log(ref, Cursor(), limit=1 << 20)).data
        assert whole
        assert await harness.runtime.tail_log(ref, limit=1 << 20) == whole
        assert await harness.runtime.tail_log(ref, limit=7) == whole[-7:]
        assert await harness.runtime.tail_log(harness.ref("broken", attempt=9), limit=7) == b""
        await harness.runtime.remove(harness.run)
        assert await harness.runtime.tail_log(ref, limit=7) == whole[-7:]

    async def test_what_has_not_begun_has_no_end_of_a_log(self, harness: Harness) -> None:
        assert await harness.runtime.tail_log(harness.ref("sleeper"), limit=7) == b""

    async def test_every_attempt_has_a_log_of_its_own(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([harness.spec("broken")])
            await seen.state("broken", 0, "failed")
            old = await harness.runtime.read_log(harness.ref("broken"), Cursor(), limit=1 << 20)
            await harness.runtime.create([harness.spec("broken", attempt=1)])
            await seen.state("broken", 0, "failed", attempt=1)
        ref = harness.ref("broken", attempt=1)
        again = await harness.runtime.read_log(ref, Cursor(), limit=1 << 20, attempt=0)
        assert again == old

    async def test_the_log_of_a_living_instance_has_no_end(self, harness: Harness) -> None:
        await harness.runtime.create([harness.spec("sleeper")])
        chunk = await harness.runtime.read_log(harness.ref("sleeper"), Cursor(), limit=1 << 20)
        assert not chunk.end

    @staticmethod
    def staying(harness: Harness, kind: Kind, index: int = 0, **changes: Any) -> InstanceSpec:
        if not harness.runtime.capabilities.restart_in_place:
            pytest.skip("nothing stays on this runtime")
        return harness.spec(kind, index, in_place_seconds=60.0, **changes)

    async def test_the_next_attempt_begins_inside_one_that_failed(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken")])
            old = await seen.state("broken", 0, "failed", in_place=True)
            outcome = await harness.runtime.restart_process(
                harness.ref("broken", uid=old.uid), self.staying(harness, "broken", attempt=1)
            )
            assert outcome.result == "created"
            new = await seen.state("broken", 0, "failed", attempt=1, in_place=True)
            assert new.uid == outcome.ref.uid != old.uid
            assert new.node == old.node
            assert InstanceRemoval(key=InstanceKey("broken", 0), uid=old.uid) in seen.history
        logs = [
            await harness.runtime.read_log(
                harness.ref("broken", attempt=attempt), Cursor(), limit=1 << 20
            )
            for attempt in (0, 1)
        ]
        assert all(each.data and each.end for each in logs)

    async def test_a_living_process_is_stopped_and_its_instance_stays(
        self, harness: Harness
    ) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "sleeper")])
            old = await seen.state("sleeper", 0, "running", in_place=True)
            ref = harness.ref("sleeper", uid=old.uid)
            for _ in range(2):
                await harness.runtime.stop_process([ref], grace_seconds=2)
            await seen.state("sleeper", 0, "failed", in_place=True, uid=old.uid)
            spec = self.staying(harness, "sleeper", attempt=1)
            assert (await harness.runtime.restart_process(ref, spec)).result == "created"
            await seen.state("sleeper", 0, "running", attempt=1)

    async def test_what_is_told_to_wait_for_others_runs_on_and_can_be_stopped(
        self, harness: Harness
    ) -> None:
        if not isinstance(harness.runtime, ExcusesWaits):
            pytest.skip("its agents cannot be told")
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "sleeper")])
            old = await seen.state("sleeper", 0, "running", in_place=True)
            refs = [harness.ref("sleeper", uid=uid) for uid in (old.uid, "nobody")]
            for number, seconds in ((1, 60), (1, 60), (2, 60), (3, 0)):
                await harness.runtime.await_peers(refs, seconds=seconds, number=number)
            await harness.runtime.stop_process(refs[:1], grace_seconds=2)
            stopped = await seen.state("sleeper", 0, "failed", in_place=True, uid=old.uid)
            assert stopped.reason != reasons.HANG

    async def test_files_of_what_runs_are_replaced_by_whoever_owns_the_run(
        self, harness: Harness
    ) -> None:
        runtime = harness.runtime
        if not (runtime.capabilities.replaces_files and isinstance(runtime, ReplacesFiles)):
            pytest.skip("what it runs keeps its files")
        async with watching(runtime, harness.run) as seen:
            files = {"plan/plan.json": "old"}
            await runtime.create([harness.spec("sleeper", files=files, replaced=frozenset(files))])
            old = await seen.state("sleeper", 0, "running")
            refs = [harness.ref("sleeper", uid=uid) for uid in (old.uid, "nobody")]
            assert await runtime.can_replace_files(refs)
            for _ in range(2):
                await runtime.replace_files([(ref, {"plan/plan.json": "new"}) for ref in refs])
            later = dataclasses.replace(refs[0], run=harness.later(7))
            await runtime.prepare(later.run, JOB)
            await runtime.replace_files([(later, {"plan/plan.json": "newer"})])
            with pytest.raises(LeaseLost):
                await runtime.replace_files([(refs[0], {"plan/plan.json": "older"})])
            assert seen.now["sleeper", 0].uid == old.uid
            assert seen.now["sleeper", 0].state == "running"

    async def test_what_is_told_to_finish_has_succeeded(self, harness: Harness) -> None:
        if not isinstance(harness.runtime, SupportsFinish):
            pytest.skip("its agents cannot be told")
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create(
                [harness.spec("sleeper", index, finishes=True) for index in range(2)]
            )
            told = await seen.state("sleeper", 0, "running")
            other = await seen.state("sleeper", 1, "running")
            refs = [harness.ref("sleeper", uid=uid) for uid in (told.uid, "nobody")]
            for _ in range(3):
                await harness.runtime.finish_early(refs, grace_seconds=2)
            done = await seen.state("sleeper", 0, "succeeded", uid=told.uid)
            assert done.exit_code == 0
            await harness.runtime.finish_early(refs, grace_seconds=2)  # it is over
            assert seen.now["sleeper", 1] == other

    async def test_beginning_twice_adopts(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken")])
            old = await seen.state("broken", 0, "failed", in_place=True)
            ref = harness.ref("broken", uid=old.uid)
            spec = self.staying(harness, "broken", attempt=1)
            outcomes = [await harness.runtime.restart_process(ref, spec) for _ in range(2)]
            outcomes += await harness.runtime.create([spec])
            assert [each.result for each in outcomes] == ["created", "adopted", "adopted"]
            assert len({each.ref.uid for each in outcomes}) == 1

    async def test_nothing_begins_where_nothing_waits(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "sleeper")])
            alive = await seen.state("sleeper", 0, "running")
            await harness.runtime.create([harness.spec("broken")])
            over = await seen.state("broken", 0, "failed", in_place=False)
            nobody: tuple[tuple[Kind, str], ...]
            nobody = (("sleeper", alive.uid), ("broken", over.uid), ("quick", ""))
            for kind, uid in nobody:
                ref, spec = harness.ref(kind, uid=uid), self.staying(harness, kind, attempt=1)
                assert (await harness.runtime.restart_process(ref, spec)).result == "refused"

    async def test_neither_an_older_attempt_nor_an_older_holder_begins(
        self, harness: Harness
    ) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken", attempt=2)])
            waiting = await seen.state("broken", 0, "failed", in_place=True)
            ref = harness.ref("broken", attempt=2, uid=waiting.uid)
            older = self.staying(harness, "broken", attempt=1)
            assert (await harness.runtime.restart_process(ref, older)).result == "refused"
            await harness.runtime.prepare(harness.later(5), JOB)
            stale = self.staying(harness, "broken", attempt=3)
            assert (await harness.runtime.restart_process(ref, stale)).result == "refused"
            await harness.runtime.remove(harness.later(5))

    async def test_what_waits_can_be_dismissed_and_stays_visible(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken")])
            waiting = await seen.state("broken", 0, "failed", in_place=True)
            ref = harness.ref("broken", uid=waiting.uid)
            for _ in range(2):
                await harness.runtime.dismiss([ref])
            gone = await seen.state("broken", 0, "failed", in_place=False)
            assert (gone.uid, gone.exit_code) == (waiting.uid, 3)

    async def test_what_waits_can_be_deleted(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken")])
            waiting = await seen.state("broken", 0, "failed", in_place=True)
            ref = harness.ref("broken", uid=waiting.uid)
            another = harness.spec("broken", attempt=1)
            assert (await harness.runtime.create([another]))[0].result == "refused"
            await harness.runtime.delete([ref], grace_seconds=1)
            await seen.gone("broken", 0)
            assert (await harness.runtime.create([another]))[0].result == harness.made

    async def test_nothing_waits_for_ever(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            spec = dataclasses.replace(self.staying(harness, "broken"), in_place_seconds=0.3)
            await harness.runtime.create([spec])
            await seen.state("broken", 0, "failed", in_place=False)

    def keeps(self, harness: Harness) -> KeepsFailed:
        """Return the runtime where its instances can stay for a look inside."""
        if not isinstance(harness.runtime, KeepsFailed):
            pytest.skip("nothing stays there")
        return harness.runtime

    async def test_what_waits_can_be_told_to_stay_until_it_is_ended(self, harness: Harness) -> None:
        runtime = self.keeps(harness)
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken")])
            waiting = await seen.state("broken", 0, "failed", in_place=True)
            ref = harness.ref("broken", uid=waiting.uid)
            for _ in range(2):
                await runtime.keep(ref, seconds=600)
            kept = await seen.state("broken", 0, "failed", kept=True)
            assert (kept.uid, kept.exit_code, kept.in_place) == (waiting.uid, 3, False)
            another = harness.spec("broken", attempt=1)
            assert (await harness.runtime.create([another]))[0].result == "refused"
            await runtime.end_kept(harness.run)
            await seen.until(lambda now: not any(each.kept for each in now.values()))

    async def test_what_stays_goes_by_itself(self, harness: Harness) -> None:
        runtime = self.keeps(harness)
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken")])
            waiting = await seen.state("broken", 0, "failed", in_place=True)
            await runtime.keep(harness.ref("broken", uid=waiting.uid), seconds=0.3)
            gone = await seen.state("broken", 0, "failed", in_place=False, kept=False)
            assert (gone.uid, gone.exit_code) == (waiting.uid, 3)

    async def test_success_waits_for_nothing(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "quick")])
            assert not (await seen.state("quick", 0, "succeeded")).in_place

    async def test_remove_ends_what_waits(self, harness: Harness) -> None:
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([self.staying(harness, "broken")])
            await seen.state("broken", 0, "failed", in_place=True)
            await harness.runtime.remove(harness.run)
            await seen.until(lambda now: not now)

    async def test_the_cluster_has_at_least_one_node_with_capacity(self, harness: Harness) -> None:
        view = await harness.runtime.cluster_view()
        assert view.nodes
        assert all(node.cpus > 0 and node.memory_bytes > 0 for node in view.nodes)
