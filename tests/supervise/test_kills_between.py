"""Killed between decision and action, a controller's heir neither adds a recovery nor forgets one."""

from __future__ import annotations

import asyncio

import pytest

from tests.supervise.kills import run_killed_at_its_actions
from tests.waiting import PATIENCE


@pytest.mark.parametrize("seed", range(3))
async def test_recoveries_are_counted_exactly_whoever_is_killed(store, seed):
    ended = await asyncio.wait_for(run_killed_at_its_actions(store, seed), PATIENCE)
    assert [each.scope for each in ended.entry.restarts] == ["Job"] * 3 + ["FreshJob"] + ["Job"] * 3
    assert (ended.entry.state, ended.entry.fresh_jobs) == ("Failed", 1)
    assert ended.entry.recovery.order == 7
    assert ended.kills > 5


@pytest.mark.parametrize("seed", range(3))
async def test_ports_are_those_of_a_job_attempt_whoever_is_killed(store, seed):
    ended = await asyncio.wait_for(run_killed_at_its_actions(store, seed), PATIENCE)
    assert {len(each) for each in ended.ports.values()} == {1}
    assert len(set.union(*ended.ports.values())) == len(ended.ports) == 2 * 8
