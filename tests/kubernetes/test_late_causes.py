"""Who is charged on a cluster where logs are understood at different speeds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.supervise.followers.diagnosing import Diagnoser
from tests.kubernetes.conftest import Stage, resolved
from tests.waiting import PATIENCE, until

LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:20233\n"
MINE = "ValueError: bad batch 7\n"
TRACEBACK = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
)


@pytest.mark.parametrize("slow", [(0,), (1,), (0, 1)], ids=str)
async def test_peers_that_are_understood_late_take_no_try_of_who_failed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, slow: tuple[int, ...]
):
    """Peers end before worker-2, whose failure they are a consequence of, and are diagnosed after it."""
    understood = asyncio.Event()
    find_out, forget = Diagnoser._find_out, Diagnoser.forget

    async def find_out_late(self: Diagnoser, seen: Any, *args: Any) -> None:
        if seen.index in slow and seen.attempt == 0:
            await understood.wait()
        await find_out(self, seen, *args)

    def forget_known(self: Diagnoser, answers: Collection[InstanceDiagnosis], ledger: Any) -> None:
        forget(self, answers, ledger)
        if any(each.key.index == 2 for each in answers):  # a decision that knew it is stored
            understood.set()

    monkeypatch.setattr(Diagnoser, "forget", forget_known)
    monkeypatch.setattr(Diagnoser, "_find_out", find_out_late)
    control = stage.cluster.control
    restart = {"scope": "Instance", "maxRestarts": 1, "backoff": {"initialSeconds": 0.05}}
    uid = stage.launch(resolved({"name": "worker", "replicas": 3}, restart=restart))
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        for index in (0, 1):
            control.print(stage.name(f"worker-{index}"), TRACEBACK + LOST)
            control.finish(stage.name(f"worker-{index}"), exit_code=1)
        await until(lambda: any(each.reason == "InstanceRestarted" for each in stage.events))
        control.print(stage.name("worker-2"), TRACEBACK + MINE)
        control.finish(stage.name("worker-2"), exit_code=3)
        await until(lambda: task.done() or stage.entry(uid, index=2).attempt == 1)
        assert not task.done()
        await stage.until_running(uid)
        charged = stage.store.ledger(uid).job.restarts
        assert [(each.index, each.failure_class) for each in charged] == [(2, "user")]
        for pod in list(stage.pods()):
            control.finish(stage.name(pod))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
