"""Errors that a run outlived, and those that only look like its end."""

from __future__ import annotations

import pytest

from airflow_training.logs.model import Diagnosis, InstanceFact
from tests.logs.diagnosis.small_catalogue import OOM, TRACEBACK, ask, log, root


def test_a_log_without_errors_is_healthy():
    assert ask(log("loading\nstep 1 loss 0.5\n")) == Diagnosis()


def test_an_error_that_training_outlives_is_healthy():
    text = f"{OOM}skipping batch\nstep 5\nstep 6\n"
    steps = [(6, 5, float("nan")), (7, 6, float("nan"))]
    assert ask(log(text, steps=steps)).healthy
    assert not ask(log(text)).healthy


def test_a_bar_that_is_closed_is_no_progress():
    text = f"step 5\n{OOM}step 5\n"
    steps = [(1, 5, float("nan")), (6, 5, float("nan"))]
    assert not ask(log(text, steps=steps)).healthy


def test_an_error_before_a_good_end_is_healthy():
    assert ask(log(f"{OOM}retrying\nTraining completed.\n")).healthy


def test_an_end_with_an_exception_is_no_good_end():
    assert root(ask(log(f"{OOM}Training completed, reporting exception: x\n")))[1] == 4


def test_exit_codes_of_zero_are_healthy():
    done = InstanceFact(role="worker", index=0, exit_code=0)
    assert ask(log(OOM), facts=[done]).healthy


def test_what_programs_live_through_fails_no_run():
    text = "could not resolve host, will retry\nconnected\nloading data\nstarting\n"
    assert ask(log(text)).healthy


def test_a_log_that_ends_with_it_and_never_trained_did_not_live_through_it():
    assert not ask(log("starting\ncould not resolve host\n")).healthy


def test_what_programs_live_through_explains_a_run_that_failed():
    failed = InstanceFact(role="worker", index=0, exit_code=1)
    found = ask(log("could not resolve host, will retry\n"), facts=[failed])
    assert found.causes[0].id == "dns-resolution-failure"


SHORT = "CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize(
    ("text", "healthy"),
    [
        pytest.param(f"WARNING: {SHORT}", True, id="a-warning"),
        pytest.param(f"{SHORT}, skipping this batch", True, id="it-says-that-it-goes-on"),
        pytest.param(f"I0820 21:51:52.17 7 a.py:3] {SHORT}", True, id="info"),
        pytest.param(f"/lib/site-packages/acme/fit.py:75: {SHORT}", True, id="of-a-library"),
        pytest.param(
            f"/lib/site-packages/acme/fit.py:75: RuntimeError: {SHORT}", False, id="an-exception"
        ),
        pytest.param(f"node:7:9 [0] NCCL WARN {SHORT}", False, id="nccl-calls-errors-so"),
        pytest.param(SHORT, False, id="an-error"),
    ],
)
def test_a_line_that_says_that_the_program_goes_on_ended_nothing(text, healthy):
    assert ask(log(f"starting\n{text}\n")).healthy is healthy


def test_what_python_only_reports_ended_nothing():
    ignored = f"Exception ignored in: <function Iter.__del__ at 0x7f>\n{TRACEBACK}"
    assert ask(log(f"{ignored}AssertionError: can only test a child process\n")).healthy
    assert ask(log(f"{ignored}E2Error: CUDA out of memory\n")).healthy


def test_a_queue_that_lost_its_reader_ended_nothing():
    head = TRACEBACK.splitlines()[0]
    fed = f'{head}\n  File "/usr/lib/multiprocessing/queues.py", line 245, in _feed\n'
    assert ask(log(f"{fed}BrokenPipeError: [Errno 32] Broken pipe\n")).healthy
    assert not ask(log(f"{fed}OSError: [Errno 24] Too many open files\n")).healthy


def test_the_next_line_may_say_that_a_batch_was_passed_over():
    assert ask(log("CUDA out of memory\nIgnoring this batch.\na\nb\n")).healthy
    assert not ask(log("CUDA out of memory\nIgnoring the configuration.\na\nb\n")).healthy


def test_a_pod_that_started_in_the_end_was_not_unschedulable():
    waited = "Warning FailedScheduling\nNormal Scheduled\n"
    assert ask(log(f"{waited}Normal Started container train\n")).healthy
    assert not ask(log(f"Normal Started container train\n{waited}")).healthy


def test_a_run_that_was_preempted_and_resumed_is_healthy():
    steps = [(3, 5, float("nan")), (4, 6, float("nan")), (5, 7, float("nan"))]
    again = log("job is preempted\nResuming from step 4\nstep 5\nstep 6\nstep 7\n", steps=steps)
    assert ask(again).healthy
    on = log("job is preempted\nfinishing\nstep 5\nstep 6\nstep 7\n", steps=steps)
    assert not ask(on).healthy


def test_what_a_kubelet_skips_for_now_it_tries_for_ever():
    assert root(ask(log("Error syncing pod, skipping: FailedScheduling\n"))) == ("unschedulable", 1)


def test_what_is_tried_again_ended_nothing():
    refused = f"{TRACEBACK}socket.gaierror: could not resolve api.example.org\n"
    assert ask(log(f"{refused}wandb: Network error, entering retry loop.\n")).healthy
    assert ask(log(f"Retry attempt failed:\n{refused}loaded\n")).healthy
    assert not ask(log(f"{refused}wandb: Run data is lost.\n")).healthy
