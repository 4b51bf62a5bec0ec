"""What the agent in a pod uploads of a command's files, as a real process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_training.agent.order import Order, replace
from tests.kubernetes.pod_agent.programs import agent, last_words
from tests.waiting import PATIENCE, wait_until


def uploading(tmp_path: Path, uri: str) -> Order:
    (tmp_path / "output").mkdir()
    return Order(
        output_dir=str(tmp_path / "output"),
        output_uri=uri,
        termination_log=str(tmp_path / "log"),
    )


def test_run_uploads_the_output_and_leaves_the_result(tmp_path, program, python):
    uri = f"file://{tmp_path}/bucket/final"
    order = uploading(tmp_path, uri)
    script = f"echo model > {tmp_path}/output/m.txt"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "bucket" / "final" / "m.txt").read_text() == "model\n"
    output = last_words(tmp_path)["output"]
    assert (output["uri"], output["bytes"], output["files"]) == (uri, 6, 1)
    assert output["digest"].startswith("sha256:")
    assert (tmp_path / "log").stat().st_size <= 4096


def test_a_failed_upload_fails_the_instance(tmp_path, program, python):
    (tmp_path / "file").write_text("in the way")
    order = uploading(tmp_path, f"file://{tmp_path}/file/final")
    script = f"echo model > {tmp_path}/output/m.txt"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        assert process.wait(PATIENCE) == 1
    said = last_words(tmp_path)
    assert said["reason"] == "OutputFailed"
    assert "could not be uploaded" in said["message"]


@pytest.mark.parametrize("code", [0, 5])
def test_run_publishes_predictions_however_the_command_ends(tmp_path, program, python, code):
    there = tmp_path / "bucket" / "worker-0"
    folder = tmp_path / "predictions"  # the agent makes it
    order = Order(predictions_dir=str(folder), predictions_uri=f"file://{there}")
    script = f"cd {folder}; echo 1 > .a; mv .a step-1.csv; echo x > a.html; exit {code}"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert [each.name for each in there.iterdir()] == ["step-1.csv"]
    assert "'a.html' is not published: its name" in err


@pytest.mark.parametrize("code", [0, 5])
def test_what_was_told_to_end_uploads_nothing(tmp_path, program, python, code):
    order = uploading(tmp_path, f"file://{tmp_path}/bucket")
    ready = tmp_path / "ready"
    script = f"trap 'exit {code}' TERM; echo > {ready}; while :; do sleep 0.05; done"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        wait_until(ready.exists)
        process.terminate()
        assert process.wait(PATIENCE) == (code or 143)
    assert not (tmp_path / "bucket").exists()


def test_a_failed_command_uploads_nothing(tmp_path, program, python):
    order = uploading(tmp_path, f"file://{tmp_path}/bucket")
    with agent(python, program, order, "run", "--", "false") as process:
        assert process.wait(PATIENCE) == 1
    assert not (tmp_path / "bucket").exists()


ENDS_SLOWLY = """
import pathlib, signal, sys, time
here = pathlib.Path(sys.argv[1])
heard = []
def hear(*_):
    heard.append(1)
    (here / f"heard-{len(heard)}").touch()
signal.signal(signal.SIGTERM, hear)
(here / "output" / "m.txt").write_text("model")
(here / "ready").touch()
while not (here / "go").exists():
    time.sleep(0.05)
sys.exit(143)
"""


@pytest.mark.parametrize("drained", [False, True])
def test_what_is_told_to_finish_has_succeeded_only_with_its_output(
    tmp_path, program, python, drained
):
    """A node that is drained meanwhile leaves no time for the upload: that is no success."""
    orders = tmp_path / "order"
    order = replace(uploading(tmp_path, f"file://{tmp_path}/there"), orders_file=str(orders))
    command = [python, "-c", ENDS_SLOWLY, tmp_path]
    with agent(python, program, order, "run", "--", *command) as process:
        wait_until((tmp_path / "ready").exists)
        orders.write_text(json.dumps({"turn": 0, "do": "finish", "grace_seconds": 60}))
        wait_until((tmp_path / "heard-1").exists, alive=lambda: process.poll() is None)
        if drained:
            process.terminate()
            wait_until((tmp_path / "heard-2").exists, alive=lambda: process.poll() is None)
        (tmp_path / "go").touch()
        assert process.wait(PATIENCE) == (143 if drained else 0)
    assert (tmp_path / "there" / "m.txt").exists() is not drained
