"""Who was only told to stop, or noticed that a peer had left, is not the first in causal order."""

from __future__ import annotations

import pytest

from airflow_training.logs.model import InstanceFact
from tests.logs.diagnosis.asking import ask

STEPS = "step 1: loss 2.5\nstep 2: loss 2.4\n"
TERM = [
    "[rank: 0] Received SIGTERM: 15",
    "exiting program after receiving SIGTERM.",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2973 got signal: 15",
    "SystemExit: 143",
    "Terminated",
]
FAILED = [InstanceFact(role="worker", index=1, exit_code=3)]


@pytest.mark.parametrize("line", TERM)
@pytest.mark.parametrize("facts", [FAILED, []], ids=["run", "files"])
def test_a_signal_is_no_cause_where_another_instance_left(line, facts):
    logs = {"worker-0.log": f"{STEPS}{line}\n", "worker-1.log": STEPS}
    found = ask(logs, facts).causes[0]
    assert (found.id, found.rank) == ("unknown", 1)


@pytest.mark.parametrize("line", TERM)
@pytest.mark.parametrize("facts", [FAILED, []], ids=["run", "files"])
def test_an_exception_of_another_instance_is(line, facts):
    error = (
        'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\nValueError: 17\n'
    )
    logs = {"worker-0.log": f"{STEPS}{line}\n", "worker-1.log": STEPS + error}
    found = ask(logs, facts).causes[0]
    assert (found.id, found.rank) == ("python-exception", 1)


STOPPED = [InstanceFact(role="worker", index=each, reason="Stopped") for each in range(2)]


@pytest.mark.parametrize(
    "line", [*TERM, "ConnectionResetError: [Errno 104] Connection reset by peer"]
)
def test_what_somebody_has_stopped_with_its_run_has_not_failed(line):
    """Least of all over a preemption."""
    logs = {"worker-0.log": f"{STEPS}{line}\n", "worker-1.log": f"{STEPS}{line}\n"}
    assert ask(logs, STOPPED).healthy


def test_what_it_raised_before_it_was_stopped_is_told_all_the_same():
    error = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\n'
    log = f"{STEPS}{error}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    found = ask({"worker-0.log": f"{log}{TERM[0]}\n", "worker-1.log": STEPS}, STOPPED)
    assert [each.id for each in found.causes] == ["cuda-out-of-memory"]


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ({"signal": "9"}, "SIGKILL ended it"),
        ({"exit_code": 143}, "Exit code 143 tells of SIGTERM"),
    ],
)
def test_a_signal_without_a_sender_is_named_and_no_other_try_promised(fact, words):
    ended = InstanceFact(role="worker", index=1, reason="Error", **fact)
    found = ask({"worker-1.log": STEPS}, [ended]).causes[0]
    assert (found.id, found.retryable) == ("unknown", "unknown")
    assert found.advice.startswith(f"{words}, and nothing says who sent it")
    assert found.evidence.endswith(": last line: step 2: loss 2.4")


def test_a_silent_failure_is_told_with_its_silence_and_others_with_their_last_line():
    silent = ask({"worker-1.log": ""}, FAILED).causes[0]
    assert silent.id == "unknown"
    assert silent.evidence == "worker-1: exit code 3; it printed nothing"
    assert "PYTHONUNBUFFERED" in silent.advice
    talks = ask({"worker-1.log": STEPS}, FAILED).causes[0]
    assert talks.evidence == "worker-1: exit code 3: last line: step 2: loss 2.4"
    assert (talks.category, silent.category) == ("user-error", "user-error")
    assert (talks.retryable, silent.retryable) == ("unknown", "unknown")
    ours = ask({"worker-1.log": f"{STEPS}airflow-training: its output is kept\n"}, FAILED).causes[0]
    assert ours.evidence == talks.evidence


def test_a_signal_to_a_helper_after_the_end_is_no_failure():
    logs = {"ps-0.log": "Received SIGTERM: 15\n", "worker-0.log": STEPS + "Training complete\n"}
    assert ask(logs).healthy


PEER = [
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error",
    "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:30012",
]


@pytest.mark.parametrize("peer", PEER)
@pytest.mark.parametrize(
    ("own", "cause"),
    [
        ("PIL.UnidentifiedImageError: cannot identify image file '/data/17.jpg'", "data-corrupt"),
        ("KeyError: 'speaker_17'", "python-exception"),
    ],
)
def test_the_rank_that_raised_something_of_its_own_goes_before_what_the_launcher_prints_first(
    peer, own, cause
):
    def raised(rank: int, error: str) -> str:
        return (
            f"[rank{rank}]: Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "/w/t.py", line {rank + 3}, in step\n'
            f"[rank{rank}]:     go()\n[rank{rank}]: {error}\n"
        )

    launcher = "E1015 12:00:10.0 1 api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 100)\n"
    found = ask(raised(0, peer) + raised(5, own) + launcher).causes[0]
    assert (found.id, found.rank) == (cause, 5)


def test_of_ranks_that_a_launcher_lists_those_that_were_told_to_stop_were_not_first():
    def entry(rank: int, code: int) -> str:
        return (
            f"[{rank}]:\n  time      : 2024-10-15_12:00:10\n  host      : n\n"
            f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 9)\n"
        )

    summary = (
        f"Failures:\n{entry(3, -11)}----\nRoot Cause (first observed failure):\n{entry(0, -15)}"
    )
    found = ask(f"{STEPS}{summary}").causes[0]
    assert (found.id, found.rank) == ("segfault", 3)


MPI = """\
step 4 loss 0.25
Traceback (most recent call last):
  File "/app/train.py", line 8, in <module>
    raise ValueError("vocab size 32000 of shard 2")
ValueError: vocab size 32000 of shard 2
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
step 5 loss 0.2
step 6 loss 0.16
step 7 loss 0.14
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[28181,1],2]
  Exit code:    1
"""


@pytest.mark.parametrize("facts", [[InstanceFact(role="worker", index=1, exit_code=1)], []])
def test_ranks_that_train_on_until_their_launcher_ends_them_take_no_exception_back(facts):
    found = ask({"worker-1.log": f"{STEPS}{MPI}"}, facts).causes[0]
    assert (found.id, found.rank) == ("python-exception", 2)
    assert found.evidence == "ValueError: vocab size 32000 of shard 2"


@pytest.mark.parametrize(
    "line", ["Process 1 exit with status code 1.", "Sending process 31 closing signal SIGTERM"]
)
def test_ranks_that_train_on_for_long_are_ended_by_no_launcher(line):
    """One that is elastic goes on with those that are left."""
    raised = MPI.partition("Primary")[0]
    more = "".join(f"step {step}: loss {3 / step:.4f}\n" for step in range(5, 100))
    assert ask({"worker-1.log": f"{STEPS}{raised}{line}\n{more}"}).causes == ()


def test_a_run_that_began_again_in_the_same_log_has_lived_through_it():
    again = "".join(f"step {step}: loss {3 / step:.2f}\n" for step in range(1, 30))
    found = ask({"worker-1.log": f"{STEPS}{MPI}{again}ValueError: bad\n"}, []).causes
    assert not any("vocab size" in each.evidence for each in found[:1])
