"""Killed between decision and action, a controller's heir neither adds a recovery nor forgets one."""

from __future__ import annotations

import asyncio

import pytest

from tests.supervise.kills import run_killed_at_its_actions


@pytest.mark.parametrize("seed", range(3))
async def test_recoveries_are_counted_exactly_whoever_is_killed(store, seed):
    ended = await asyncio.wait_for(run_killed_at_its_actions(store, seed), 60)
    assert [each.scope for each in ended.entry.restarts] == ["Job"] * 3 + ["FreshJob"] + ["Job"] * 3
    assert (ended.entry.state, ended.entry.fresh_jobs) == ("Failed", 1)
    assert ended.entry.recovery.order == 7
    assert ended.kills > 5
