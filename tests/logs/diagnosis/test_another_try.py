"""What another try does, where the text of a failure tells more of it than its cause; and what was only tried again."""

from __future__ import annotations

import pytest

from tests.logs.diagnosis.asking import ask

STEPS = "step 10: loss 2.5\nstep 20: loss 2.4\n"
FRAME = (
    'Traceback (most recent call last):\n  File "/app/run.py", line 9, in <module>\n    main()\n'
)


@pytest.mark.parametrize(
    ("end", "cause", "retry"),
    [
        ("Received 1 death signal, shutting down workers", "user-interrupt", "yes"),
        ("Received 2 death signal, shutting down workers", "user-interrupt", "no"),
        ("NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory", "nccl-unhandled-system-error", "no"),
        ("NCCL WARN Call to ibv_modify_qp failed with error No such device", "nccl-unhandled-system-error", "yes"),
        ("[LightGBM] [Fatal] Machine list file doesn't contain the local machine", "xgboost-tracker", "no"),
        (f"{FRAME}ValueError: lib was built without GPU support", "gpu-not-available", "no"),
        (f"{FRAME}RuntimeError: No CUDA GPUs are available", "gpu-not-available", "yes"),
        (f"{FRAME}ops.CUDAMismatchException: Installed CUDA version 11.7 does not match the version torch was compiled with 12.4", "native-library-mismatch", "no"),
        (f"{FRAME}ValueError: n_heads (20) must be a multiple of tp_size (8).", "config-error", "no"),
    ],
)  # fmt: skip
def test_the_text_of_a_failure_tells_whether_another_try_helps(end, cause, retry):
    found = ask(f"{STEPS}{end}\n").causes[0]
    assert (found.id, found.retryable) == (cause, retry)


CORRUPT = f"{FRAME}RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"


@pytest.mark.parametrize(
    ("before", "retry"),
    [("", "once"), ("Worker group FAILED. 2/3 attempts left; will restart worker group\n", "no")],
)
def test_a_checkpoint_that_the_launcher_has_tried_again_stays_unreadable(before, retry):
    found = ask(f"{STEPS}{before}{CORRUPT}").causes[0]
    assert (found.id, found.retryable) == ("checkpoint-corrupt", retry)


REFUSED = "ssh: connect to host w-1.job port 22: Connection refused\n"
SLOTS = "There are not enough slots available in the system to satisfy the 6\n"


def test_a_host_that_answered_at_last_is_no_cause():
    found = ask(f"{REFUSED * 4}w-1 is up\n{SLOTS}").causes[0]
    assert found.id == "mpi-slots-insufficient"


def test_a_host_that_never_answered_is_the_cause():
    assert ask(REFUSED * 4).causes[0].id == "ssh-failure"


def bar(counts: range) -> str:
    return "".join(
        f"Epoch ... (1/2):   0%|          | 0/2 [00:00<?, ?it/s]\rTrain: {count}%|##        | {count}/100 [00:01<00:09,  9.1it/s]\n"
        for count in counts
    )


WAITED = "Failed to get metadata (accelerator-type): [Errno 111] Connection refused\n"


def test_a_bar_inside_another_tells_that_the_program_goes_on():
    assert ask({"worker-0.log": WAITED + STEPS, "worker-1.log": WAITED + bar(range(4))}).healthy


def test_a_bar_before_a_failure_tells_nothing():
    assert not ask({"worker-0.log": STEPS, "worker-1.log": bar(range(4)) + WAITED}).healthy


ORDER = (
    "Saving /scratch/run/hpc_ckpt_3.ckpt\nRequeued SLURM job 77\n"
    "slurmstepd: error: *** JOB 77 ON n4 CANCELLED AT 2026-01-02T03:04:05 DUE TO PREEMPTION ***\n"
)
NEXT = "Restored all states from the checkpoint at {}\nstep 30: loss 2.3\nstep 40: loss 2.2\n`Trainer.fit` stopped: `max_steps=40` reached.\n"


def test_a_log_whose_checkpoint_another_one_goes_on_from_was_not_the_end():
    again = NEXT.format("/scratch/run/hpc_ckpt_3.ckpt")
    assert ask({"job.0.log": STEPS + ORDER, "job.1.log": again}).healthy


@pytest.mark.parametrize("again", [STEPS, NEXT.format("/scratch/run/hpc_ckpt_1.ckpt")])
def test_a_log_that_goes_on_from_elsewhere_is_not_its_next_part(again):
    assert ask({"job.0.log": STEPS + ORDER, "job.1.log": again}).causes[0].id == "preempted"


def test_a_failure_of_the_next_part_is_one():
    again = f"{NEXT.format('/scratch/run/hpc_ckpt_3.ckpt').splitlines()[0]}\nstep 30: loss 2.3\n{FRAME}ModuleNotFoundError: No module named 'x'\n"
    found = ask({"job.0.log": STEPS + ORDER, "job.1.log": again}).causes[0]
    assert (found.id, found.file) == ("module-not-found", "job.1.log")


@pytest.mark.parametrize(
    "head", ["Task exception was never retrieved", "Future exception was never retrieved"]
)
def test_an_exception_that_nobody_waits_for_ends_no_program(head):
    closed = f"{head}\nfuture: <Task finished name='Task-9'>\n{FRAME}tornado.iostream.StreamClosedError: Stream is closed\n"
    assert ask(f"{STEPS}saved the model\n{closed}").healthy
    assert not ask(f"{STEPS}{FRAME}tornado.iostream.StreamClosedError: Stream is closed\n").healthy
