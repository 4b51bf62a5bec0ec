"""A loss that becomes NaN or infinite and stays so is why a run is lost, however it ended."""

from __future__ import annotations

import pytest

from airflow_training.logs.model import InstanceFact
from tests.logs.diagnosis.asking import ask


def losses(*values: str, more: str = "") -> str:
    return "".join(f"step {10 * n}: loss {v}{more}\n" for n, v in enumerate(values, start=1))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("", id="cut-off"),
        pytest.param("Training complete\n", id="went-well"),
        pytest.param(
            'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\n'
            "ValueError: cannot convert float NaN to integer\n",
            id="exception",
        ),
    ],
)
@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_the_first_bad_step_proves_it(bad, end):
    found = ask(losses("2.5", "2.4", bad, bad, "nan") + end)
    assert not found.healthy
    root = found.causes[0]
    assert (root.id, root.retryable, root.line) == ("nan-loss", "no", 3)
    assert "step 30" in root.evidence


def test_exit_code_0_does_not_make_it_well():
    found = ask(losses("2.5", "nan", "nan", "nan"), [InstanceFact(role="", index=0, exit_code=0)])
    assert [each.id for each in found.causes] == ["nan-loss"]


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(losses("2.5", "nan", "2.4", "2.3"), id="once"),
        pytest.param(losses("2.5", "2.4", "2.3", more=" grad_norm nan"), id="gradients-alone"),
        pytest.param(losses("2.5", "2.4", "2.3", more=" val_loss nan"), id="no-validation-samples"),
        pytest.param(losses("2.5", "2.4", "2.3", more=" ep_rew_mean nan"), id="no-episode"),
    ],
)
def test_others_are_no_failure(log):
    assert ask(log).healthy


def test_a_loss_scale_that_reached_its_end_goes_before():
    log = losses("2.5", "nan", "nan") + (
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.\n"
    )
    assert ask(log).causes[0].id == "loss-scale-underflow"


# which series tells it --------------------------------------------------------------------------
WELL = [InstanceFact(role="", index=0, exit_code=0)]
FAILED = [InstanceFact(role="", index=0, exit_code=1)]


@pytest.mark.parametrize(
    "more",
    [
        " aux_loss nan",
        " reg_loss inf",
        " kl_loss nan grad_norm nan",
        " value_loss nan",
    ],
)
def test_a_part_of_the_loss_alone_is_no_failure(more):
    assert ask(losses("2.5", "2.4", "2.3", "2.2", more=more), WELL).healthy


def test_a_part_that_became_no_number_while_the_loss_falls_is_no_failure():
    log = losses("2.5", "2.4", more=" aux_loss 0.1") + losses("2.3", "2.2", more=" aux_loss nan")
    assert ask(log, WELL).healthy


def test_a_part_that_takes_the_loss_with_it_proves_the_loss():
    log = "".join(
        f"step {10 * n}: loss {loss} aux_loss {part}\n"
        for n, (loss, part) in enumerate(
            [("2.5", "0.1"), ("2.4", "nan"), ("nan", "nan"), ("nan", "nan"), ("nan", "nan")],
            start=1,
        )
    )
    root = ask(log, WELL).causes[0]
    assert (root.id, root.line) == ("nan-loss", 2)


def test_a_part_that_never_was_a_number_does_not_prove_when_the_loss_was_lost():
    root = ask(losses("2.5", "2.4", "nan", "nan", "nan", more=" aux_loss nan"), WELL).causes[0]
    assert (root.id, root.line) == ("nan-loss", 3)


@pytest.mark.parametrize(
    ("second", "healthy"),
    [
        pytest.param(("0.7", "0.6", "0.5"), True, id="another-part-falls"),
        pytest.param(("0.7", "nan", "nan"), False, id="all-lost"),
    ],
)
def test_where_no_loss_is_the_whole_all_its_parts_count(second, healthy):
    log = "".join(
        f"step {10 * n}: gen_loss {first} disc_loss {other}\n"
        for n, (first, other) in enumerate(zip(("0.9", "nan", "nan"), second, strict=True), start=1)
    )
    assert ask(log, WELL).healthy is healthy


def test_a_rank_that_never_told_a_loss_is_no_failure_while_another_one_falls():
    logs = {
        "rank0.log": losses("2.5", "2.4", "2.3", "2.2"),
        "rank1.log": losses("nan", "nan", "nan", "nan"),
    }
    assert ask(logs, [*WELL, InstanceFact(role="", index=1, exit_code=0)]).healthy


@pytest.mark.parametrize("other", [("nan",) * 4, ("2.5", "2.4", "nan", "nan")])
def test_ranks_without_a_loss_at_their_ends_are_a_failure(other):
    logs = {"rank0.log": losses(*other), "rank1.log": losses("nan", "nan", "nan", "nan")}
    found = ask(logs, [*WELL, InstanceFact(role="", index=1, exit_code=0)])
    assert [each.id for each in found.causes] == ["nan-loss"]


# what else ended the run ------------------------------------------------------------------------
def raised(text: str) -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line 3, in f\n    g()\n{text}\n'


LOST = losses("2.5", "2.4", "nan", "nan", "nan")


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        pytest.param(
            raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
            "cuda-out-of-memory",
            id="memory",
        ),
        pytest.param(
            raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
            "ecc-uncorrectable",
            id="hardware",
        ),
        pytest.param(
            "slurmstepd: error: *** JOB 1234 ON node1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n",
            "time-limit",
            id="time-limit",
        ),
        pytest.param(
            raised("OSError: [Errno 28] No space left on device: 'model.pt'"),
            "disk-full",
            id="disk",
        ),
        pytest.param(
            raised("PermissionError: [Errno 13] Permission denied: '/ckpt/model.pt'"),
            "permission-denied",
            id="permission",
        ),
        pytest.param(
            "[ 812.0] NVRM: Xid (PCI:0000:5e:00): 79, pid=1234, GPU has fallen off the bus.\n",
            "gpu-fell-off-bus",
            id="bus",
        ),
    ],
)
@pytest.mark.parametrize("facts", [FAILED, ()], ids=["exit-code-1", "log-alone"])
def test_what_ended_the_process_goes_before_a_lost_loss(end, cause, facts):
    root, *others = ask(LOST + end, facts).causes
    assert root.id == cause
    assert root.confidence >= 0.75
    assert all(each.confidence < root.confidence / 2 for each in others)
    assert "nan-loss" in {each.id for each in others}


def test_a_time_out_of_a_run_whose_loss_falls_is_told_whatever_a_part_is():
    log = losses("2.5", "2.4", "2.3", more=" reg_loss inf") + raised(
        "urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='hub.example', port=443): "
        "Read timed out. (read timeout=10)"
    )
    assert "nan-loss" not in {each.id for each in ask(log, FAILED).causes}


@pytest.mark.parametrize(
    "text",
    [
        "AssertionError",
        "AssertionError: loss is nan",
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "ValueError: cannot convert float NaN to integer",
        "RuntimeError: CUDA error: device-side assert triggered",
    ],
)
def test_an_exception_that_follows_from_it_leaves_it_the_cause(text):
    root = ask(LOST + raised(text), FAILED).causes[0]
    assert (root.id, root.retryable) == ("nan-loss", "no")


def test_ranks_that_lost_the_one_with_the_exception_leave_it_the_cause():
    logs = {
        "rank0.log": LOST + raised("ValueError: cannot convert float NaN to integer"),
        "rank1.log": LOST
        + "[rank1]:[E1] [PG 0 Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
        "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600123 milliseconds before timing out.\n",
    }
    assert ask(logs, FAILED).causes[0].id == "nan-loss"
