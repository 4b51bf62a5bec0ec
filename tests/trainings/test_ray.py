"""A cluster of Ray for each job: it goes on from its checkpoint, ends with its head, and meets no other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.util import find_spec

import pytest

from tests.trainings.jobs import ENVIRONMENTS, TRAININGS, Running, running

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.frameworks,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (ENVIRONMENTS / "ray").exists() and find_spec("ray") is None,
        reason="`make frameworks` brings it",
    ),
]


def said_by_head(run: Running) -> str:
    return re.sub(r"\x1b\[\d+m", "", run.log("head-0"))


def test_training_goes_on_from_its_checkpoint_when_a_worker_is_killed(tmp_path):
    with running(TRAININGS["ray"], tmp_path) as run:
        run.until(run.trains)
        run.kill("worker-1", "tree")
        (run.folder / "closed").unlink()
        assert run.wait() == 0, run.said()
        assert sum(run.status["restarts"].values()) == 1, run.said()
        assert len(run.attempts("worker-1")) == 2
        assert re.search(r"rank 0 goes on after step [1-9]", said_by_head(run)), run.said()
        assert float((run.folder / "out" / "model").read_text()) > 2, "it is on its way to 3"
        assert "ProcessesLeft" not in (run.folder / "run.err").read_text()
        assert run.alive() == []


def test_a_head_that_is_killed_takes_its_cluster_with_it(tmp_path):
    with running(TRAININGS["ray"], tmp_path) as run:
        run.until(run.trains)
        run.kill("head-0", "tree")
        (run.folder / "closed").unlink()
        assert run.wait() == 0, run.said()
        assert run.status["job_attempt"] == 1, run.said()
        assert [len(run.attempts(each)) for each in run.training.instances] == [2, 2, 2]
        assert re.search(r"rank 0 goes on after step [1-9]", said_by_head(run)), run.said()
        assert (run.folder / "out" / "model").stat().st_size > 0


SEEN = """
import json, os, sys, time
from pathlib import Path
import ray

ray.init()
mine, other = Path(sys.argv[1]), Path(sys.argv[2])
nodes = ray.nodes()
mine.write_text(json.dumps([node["NodeID"] for node in nodes if node["Alive"]]))
while not other.exists():  # both clusters live at once
    time.sleep(0.1)
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]

@ray.remote
def where():
    return ray.get_runtime_context().get_node_id(), os.environ["TRAINING_RUN_ID"]

found = {tuple(each) for each in ray.get([where.remote() for _ in range(8)])}
assert {node for node, _ in found} <= set(nodes), found
assert {run for _, run in found} == {os.environ["TRAINING_RUN_ID"]}, found
Path(os.environ["TRAINING_OUTPUT_DIR"], "model").write_text(json.dumps(nodes))
"""


def test_two_clusters_on_one_machine_do_not_meet(tmp_path):
    said = [tmp_path / name for name in ("a", "b")]
    jobs = [
        replace(
            TRAININGS["ray"],
            command=("python", "-c", SEEN, str(mine), str(other)),
            roles=[("head", 1), ("worker", 1)],
            more={"resources": {"requests": {"cpu": "100m"}}},
        )
        for mine, other in (said, said[::-1])
    ]
    with running(jobs[0], tmp_path / "1") as first, running(jobs[1], tmp_path / "2") as second:
        for run in (first, second):
            assert run.wait() == 0, run.said()
        nodes = [json.loads((run.folder / "out" / "model").read_text()) for run in (first, second)]
        assert [len(each) for each in nodes] == [2, 2]
        assert not set(nodes[0]) & set(nodes[1])
