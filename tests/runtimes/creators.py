"""Processes that create instances, several at the same moment, until a test kills them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_training.documents.resolved import RunRef

__all__ = ["Creator", "let_go"]

SCRIPT = """
    import asyncio, json, sys, time
    from pathlib import Path
    from airflow_training.runtimes.local.runtime import LocalRuntime
    from airflow_training.runtimes.port import InstanceRef, InstanceSpec
    from airflow_training.documents.instances import InstanceKey
    from airflow_training.documents.resolved import RunRef

    local_dir, uid, instances = sys.argv[1:]
    run = RunRef(uid=uid, job="contract", namespace="default", controller="tests")
    specs = [
        InstanceSpec(ref=InstanceRef(run=run, key=InstanceKey("sleeper", index)), name=f"s-{index}", **fields)
        for index, fields in enumerate(json.loads(instances))
    ]
    runtime = LocalRuntime(local_dir=Path(local_dir))
    asyncio.run(runtime.create([]))  # so that all is imported before
    print("ready", flush=True)
    sys.stdin.readline()
    outcomes = asyncio.run(runtime.create(specs))
    print(json.dumps([[each.result, each.ref.uid] for each in outcomes]), flush=True)
    time.sleep(3600)
"""


class Creator:
    """A process that creates sleepers of a run as soon as it is let go."""

    def __init__(self, local_dir: Path, run: RunRef, *instances: dict[str, Any]) -> None:
        """`instances`: what is special about each."""
        given = [{"command": ["sleep", "3600"], **each} for each in instances or ({},)]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", textwrap.dedent(SCRIPT)),
                *(str(local_dir), run.uid, json.dumps(given)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a test can kill its process group, and not our own
        )

    def answer(self) -> Sequence[tuple[str, str]]:
        """Return result and uid of each instance."""
        return [(result, uid) for result, uid in json.loads(self._line())]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def wait_until_ready(self) -> None:
        assert self._line() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def let_go(*creators: Creator) -> None:
    """Let them begin at the same moment: once all have imported what they need."""
    for creator in creators:
        creator.wait_until_ready()
    for creator in creators:
        creator.go()
