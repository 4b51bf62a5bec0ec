"""What another try does: it goes on from a checkpoint, or meets the same limit again."""

from __future__ import annotations

import pytest

from airflow_training.logs.model import InstanceFact
from tests.logs.diagnosis.asking import ask

STEPS = "step 100: loss 2.5\nstep 200: loss 2.4\n"
LIMIT = (
    "slurmstepd: error: *** JOB 8 ON c1 CANCELLED AT 2024-05-11T12:06:17 DUE TO TIME LIMIT ***\n"
)
TIMEOUT = (
    "[rank1]:[E1015 12:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE) ran for 600060 milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("saved", "step"),
    [
        pytest.param("Saved checkpoint to /ckpt/step_150", "150", id="path"),
        pytest.param("Saving model checkpoint to out/checkpoint-150", "150", id="transformers"),
        pytest.param(
            "  successfully saved checkpoint from iteration     150 to /c", "150", id="megatron"
        ),
        pytest.param(
            "Saved checkpoint checkpoint_last.pt (epoch 3 @ 150 updates)", "150", id="fairseq"
        ),
        pytest.param("Checkpoint saved.", "200", id="no-step"),
    ],
)
def test_a_time_limit_with_a_checkpoint_can_be_tried_again(saved, step):
    found = ask(f"{STEPS}{saved}\nstep 300: loss 2.3\n{LIMIT}").causes[0]
    assert (found.id, found.retryable) == ("time-limit", "yes")
    assert f"step {step})" in found.advice


@pytest.mark.parametrize(
    "line",
    ["", "failed to save checkpoint: disk full\n", "Will save a checkpoint every 500 steps\n"],
)
def test_a_time_limit_without_one_cannot(line):
    found = ask(f"{STEPS}{line}step 300: loss 2.3\n{LIMIT}").causes[0]
    assert (found.id, found.retryable) == ("time-limit", "no")


BAR = (
    "Running tokenizer on dataset:   9%|#         | 28000/296952 [29:55<4:48:08, 155.57 examples/s]"
)


@pytest.mark.parametrize(
    "logs",
    [
        pytest.param({"train.log": f"{BAR}\n{TIMEOUT}"}, id="one-log"),
        pytest.param({"train.log": BAR + TIMEOUT}, id="one-line"),
        pytest.param({"rank0.log": f"{BAR}\n", "rank1.log": TIMEOUT}, id="two-logs"),
    ],
)
def test_a_time_out_while_a_rank_prepares_data_comes_again(logs):
    found = ask(logs).causes[0]
    assert (found.id, found.retryable) == ("nccl-timeout", "no")
    assert "preparing data" in found.advice
    assert "same limit" in found.advice


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="nothing"),
        pytest.param(f"{BAR.replace('9%', '100%')}\n", id="ready"),
        pytest.param(f"{BAR}\n{STEPS}", id="trained-since"),
    ],
)
def test_another_time_out_may_not_come_again(before):
    found = ask(before + TIMEOUT).causes[0]
    assert (found.id, found.retryable) == ("nccl-timeout", "yes")


@pytest.mark.parametrize(
    ("tried", "retryable"), [("", "no"), (" (tried 5 times)", "once")], ids=["refused", "away"]
)
def test_an_upload_that_a_storage_refuses_is_in_vain_again_and_one_that_was_away_perhaps_not(
    tried, retryable
):
    line = f"airflow-training: cannot upload the output to s3://b: ClientError('SlowDown'){tried}"
    found = ask(f"{STEPS}{line}\n").causes[0]
    assert (found.id, found.retryable) == ("output-failed", retryable)


def test_an_output_that_is_not_uploaded_fails_an_instance_whose_program_has_not():
    words = "the output could not be uploaded: s3://b: ClientError('SlowDown') (tried 5 times)"
    fact = InstanceFact(role="worker", index=0, exit_code=0, reason="OutputFailed", message=words)
    found = ask(STEPS, [fact]).causes[0]
    assert (found.id, found.retryable) == ("output-failed", "once")


DRIVER = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n"


@pytest.mark.parametrize(
    ("other", "retryable"),
    [
        pytest.param("start\nRuntimeError: Connection reset by peer\n", "once", id="one-node"),
        pytest.param(f"start\n{DRIVER}", "no", id="all-nodes"),
    ],
)
def test_a_driver_that_one_node_has_may_be_another_on_the_next(other, retryable):
    found = ask({"worker-0.log": other, "worker-1.log": f"start\n{DRIVER}"}).causes[0]
    assert (found.id, found.retryable) == ("cuda-driver-mismatch", retryable)
    assert ("another node" in found.advice) == (retryable == "once")


LOST_PEER = (
    '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/app/t.py", line 9, in <module>\n[rank0]:     main()\n'
    "[rank0]: RuntimeError: [../gloo/transport/tcp/pair.cc:544] Connection closed by peer [10.0.0.9]:21402\n"
)
AGAIN = "api.py:889] [default] Worker group FAILED. 3/3 attempts left; will restart worker group\n"


@pytest.mark.parametrize(
    ("after", "healthy"),
    [
        pytest.param(f"{AGAIN}resumed from /ckpt/last.pt at s=400\nwrote /ckpt/last.pt\n", True, id="resumed"),
        pytest.param("", False, id="nobody-restarts"),
        pytest.param(f"{AGAIN}resumed from /ckpt/last.pt at s=400\n{LOST_PEER}", False, id="fails-again"),
    ],
)  # fmt: skip
def test_a_group_that_its_launcher_started_again_has_lived_through_what_ended_it(after, healthy):
    assert ask({"worker-0.log": f"start\n{LOST_PEER}{after}"}).healthy is healthy
