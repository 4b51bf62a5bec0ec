"""The agent in a pod that is held, as a real process: it waits for its release."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from airflow_training.agent.order import Order
from airflow_training.runtimes.kubernetes.objects import answer_documents
from tests.kubernetes.pod_agent.programs import agent
from tests.kubernetes.samples import RUN
from tests.rounds import Reads
from tests.waiting import PATIENCE, wait_until

UID = "3f0c"


def until_it_looked(process: subprocess.Popen[str], release: Path) -> None:
    """Return when it has read its release several times, and waits on."""
    with Reads(release) as reads:
        wait_until(reads.more(), alive=lambda: process.poll() is None)


def holding(tmp_path: Path) -> Order:
    (tmp_path / "files").mkdir()
    source = tmp_path / "files" / "live-0"
    source.write_text("host a\n")
    return Order(
        held=True,
        release_file=str(tmp_path / "release"),
        answers_dir=str(tmp_path / "answers"),
        addresses_file=str(tmp_path / "training" / "addresses.json"),
        live_files={
            str(tmp_path / "live" / "live-0"): {"source": str(source)},
            str(tmp_path / "live" / "run"): {"source": str(source), "executable": True},
        },
    )


def test_hold_waits_for_the_release_that_means_this_pod(tmp_path, program, python):
    release = tmp_path / "release"
    release.write_text(json.dumps({"uid": "another", "kind": "Confirmation"}))
    with agent(python, program, holding(tmp_path), "hold", TRAINING_POD_UID=UID) as process:
        until_it_looked(process, release)
        assert not (tmp_path / "live").exists()
        answer = {"uid": UID, "kind": "List", "addresses": {"ps": ["a:1"]}}
        release.write_text(json.dumps(answer))
        assert process.wait(PATIENCE) == 0
    written = tmp_path / "live" / "live-0"
    assert written.read_text() == "host a\n"
    assert written.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "live" / "run").stat().st_mode & 0o777 == 0o755
    assert json.loads((tmp_path / "training" / "addresses.json").read_text()) == {"ps": ["a:1"]}


def test_hold_puts_a_large_answer_together(tmp_path, program, python):
    addresses = {"worker": [f"digits-{i}:1" for i in range(50)]}
    documents = answer_documents(
        RUN, "p", UID, json.dumps(addresses), shard_bytes=100, record_uid="u"
    )
    release = tmp_path / "release"
    release.write_text(json.dumps({"uid": UID, "kind": "List", "shards": len(documents)}))
    folder = tmp_path / "answers"
    folder.mkdir()
    parts = {key: text for each in documents for key, text in each["data"].items()}
    last = list(parts)[-1]
    for key in list(parts)[:-1]:
        (folder / key).write_text(parts[key])
    (folder / f"other-{len(parts) - 1}").write_text("of an older pod")
    with agent(python, program, holding(tmp_path), "hold", TRAINING_POD_UID=UID) as process:
        until_it_looked(process, release)
        (folder / last).write_text(parts[last])
        assert process.wait(PATIENCE) == 0
    assert json.loads((tmp_path / "training" / "addresses.json").read_text()) == addresses


def test_hold_ends_when_it_is_told_to(tmp_path, program, python):
    release = tmp_path / "release"
    release.write_text("{}")
    with agent(python, program, holding(tmp_path), "hold", TRAINING_POD_UID=UID) as process:
        until_it_looked(process, release)  # before that it would end by the signal itself
        process.terminate()
        assert process.wait(PATIENCE) == 143
