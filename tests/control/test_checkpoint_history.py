"""Which checkpoints a group may step back to, however their references arrive."""

from __future__ import annotations

from itertools import permutations

from airflow_training.control.checkpoint_history import add_late, add_newer, previous_checkpoint
from airflow_training.control.model import Recovery
from airflow_training.documents.resolved_blocks import CheckpointCommit


def saved(step: int) -> CheckpointCommit:
    return CheckpointCommit(uri="/c", digest=f"sha256:{step}", step=step, at=float(step))


def after(*arrivals: int) -> tuple[CheckpointCommit | None, Recovery]:
    """Return newest and recovery once references of these steps came in this order."""
    newest, recovery = None, Recovery()
    for step in arrivals:
        newer = add_newer(newest, recovery, saved(step), now=100.0)
        if newer is not None:
            newest, recovery = saved(step), newer
        elif (late := add_late(newest, recovery, saved(step))) is not None:
            recovery = late
    return newest, recovery


def test_in_whatever_order_they_come_the_one_before_is_known():
    for arrivals in permutations((5, 10, 15)):
        newest, recovery = after(*arrivals, *arrivals)
        assert newest == saved(15)
        assert [each.step for each in recovery.older] == [5, 10]


def test_what_a_group_stepped_back_behind_does_not_return():
    _, recovery = after(5, 10, 15)
    back = previous_checkpoint(recovery, now=20.0)
    assert back is not None
    target, recovery = back
    assert target == saved(10)
    assert add_late(target, recovery, saved(7)) is None
    assert add_newer(target, recovery, saved(15), now=21.0) is None
