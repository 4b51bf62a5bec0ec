"""Which manifests count, from their documents alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.checkpoints.documents import sha256_of
from airflow_training.checkpoints.lineage import trace
from airflow_training.checkpoints.records import Fence, Manifest, ParentCheckpoint


class History:
    """Builds the documents of a group as its processes would write them."""

    def __init__(self) -> None:
        self.fences: dict[int, Fence] = {}
        self.manifests: dict[tuple[int, int], Manifest] = {}
        self._last: dict[int, Manifest | None] = {}

    def start(self, generation: int, base: tuple[int, int] | None = None) -> History:
        manifest = self.manifests[base] if base else None
        fence = Fence(
            generation=generation,
            base=manifest.as_base() if manifest else None,
            incarnation="0.0.0",
            order=generation,
            world=1,
            at=0,
            owner=f"owner-{generation}",
        )
        self.fences[generation] = replace(fence, digest=sha256_of(fence.to_bytes()))
        self._last[generation] = manifest
        return self

    def save(self, generation: int, *steps: int) -> History:
        for step in steps:
            parent = self._last[generation]
            content = Manifest(
                step=step,
                generation=generation,
                number=parent.number + 1 if parent else 1,
                base=self.fences[generation].base,
                fence=self.fences[generation].digest,
                parent=parent.digest if parent else None,
                ranks=(),
                cursor={"step": step},
                code="",
                environment="",
                at=0,
            ).to_bytes()
            manifest = Manifest.from_bytes(content, what="it")
            self.manifests[step, generation] = self._last[generation] = manifest
        return self

    def counting(self) -> list[tuple[int, int]]:
        lineage = trace(self.fences, self.manifests.values())
        return [(m.step, m.generation) for m in lineage.manifests]

    def stale(self) -> set[tuple[int, int]]:
        lineage = trace(self.fences, self.manifests.values())
        return {(m.step, m.generation) for m in lineage.stale}


def restarted() -> History:
    """A training that was replaced after step 20, while the old process went on."""
    history = History().start(1).save(1, 10, 20)
    return history.start(2, base=(20, 1)).save(2, 30, 40).save(1, 30, 50)


def test_nothing_counts_where_there_is_nothing():
    assert trace({}, []).manifests == ()


def test_a_generation_goes_on_from_its_base():
    assert restarted().counting() == [(40, 2), (30, 2), (20, 1), (10, 1)]


def test_what_a_replaced_process_wrote_is_stale():
    assert restarted().stale() == {(30, 1), (50, 1)}


def test_a_stale_manifest_does_not_count_before_the_first_save_of_the_new_generation():
    history = History().start(1).save(1, 10).start(2, base=(10, 1)).save(1, 20)
    assert history.counting() == [(10, 1)]


def test_going_back_leaves_what_came_after_behind():
    history = History().start(1).save(1, 10, 20, 30).start(2, base=(10, 1)).save(2, 20)
    assert history.counting() == [(20, 2), (10, 1)]
    assert history.stale() == {(20, 1), (30, 1)}


def test_a_start_from_nothing_leaves_everything_behind():
    history = History().start(1).save(1, 10).start(2)
    assert history.counting() == []
    assert history.save(2, 5).counting() == [(5, 2)]


def test_generations_without_a_save_are_gone_through():
    history = History().start(1).save(1, 10).start(2, base=(10, 1)).start(3, base=(10, 1))
    assert history.save(3, 20).counting() == [(20, 3), (10, 1)]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_fence_is_made_good_by_its_manifests(lost):
    history = restarted()
    del history.fences[lost]
    assert history.counting() == [(40, 2), (30, 2), (20, 1), (10, 1)]


def test_a_lost_fence_without_manifests_is_passed_over():
    history = History().start(1).save(1, 10, 20).start(2, base=(20, 1))
    del history.fences[2]
    assert history.counting() == [(20, 1), (10, 1)]


def test_a_manifest_of_another_group_is_bad():
    other = History().start(1)
    other.fences[1] = replace(other.fences[1], digest="sha256:other")
    foreign = other.save(1, 30).manifests[30, 1]
    history = History().start(1).save(1, 10, 20)
    lineage = trace(history.fences, [*history.manifests.values(), foreign])
    assert [m.step for m in lineage.manifests] == [20, 10]
    assert [(m.step, why) for m, why in lineage.bad] == [
        (30, "it names another fence than its generation has")
    ]


def test_a_fence_of_another_group_loses_against_its_manifests():
    history = restarted()
    history.fences[2] = replace(history.fences[2], base=None, digest="sha256:other")
    assert history.counting() == [(40, 2), (30, 2), (20, 1), (10, 1)]


def test_a_manifest_that_does_not_follow_the_one_before_is_bad():
    history = History().start(1).save(1, 10, 20, 30)
    history.manifests[30, 1] = replace(history.manifests[30, 1], parent="sha256:other")
    assert history.counting() == [(20, 1), (10, 1)]


def test_a_missing_manifest_does_not_break_the_line():
    history = restarted()
    del history.manifests[30, 2], history.manifests[20, 1]
    assert history.counting() == [(40, 2), (10, 1)]


def test_a_base_that_claims_to_be_newer_leads_nowhere():
    history = History().start(1).save(1, 10).start(2, base=(10, 1)).save(2, 20)
    history.fences[1] = replace(
        history.fences[1], base=ParentCheckpoint(step=20, generation=2, digest="sha256:x")
    )
    assert history.counting() == [(20, 2), (10, 1)]
