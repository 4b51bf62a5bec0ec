"""Which rank explains the end, and what follows from it on the others."""

from __future__ import annotations

import pytest

from airflow_training.logs.diagnosis.catalogue import Catalogue
from airflow_training.logs.model import FileScan, Finding
from tests.logs.diagnosis.small_catalogue import OOM, TRACEBACK, ask, asked_of, cause, log, root


def test_what_follows_from_another_rank_is_a_consequence():
    """63 ranks time out because rank 17 is gone."""
    late = "2024-01-01 00:01:41 Watchdog caught collective operation timeout\n"
    scans = [log(late, rank=rank, file=f"rank{rank}.log") for rank in range(64) if rank != 17]
    scans.insert(17, log(OOM, rank=17, file="rank17.log"))
    found = ask(*scans)
    assert root(found) == ("cuda-out-of-memory", 4)
    assert (found.causes[0].rank, found.causes[0].file) == (17, "rank17.log")
    assert [each.id for each in found.consequences] == ["nccl-timeout"] * 63
    assert len(found.causes) == 1


def test_a_consequence_is_the_answer_when_there_is_nothing_better():
    found = ask(log("Watchdog caught collective operation timeout\n"))
    assert found.causes[0].id == "nccl-timeout"
    assert found.causes[0].confidence < 0.8


def test_the_earliest_rank_explains_after_its_clock_is_set_right():
    """The clock of the second node is ahead by 100 s: its ranks seem to fail later."""
    steps = [(1, 1, 10.0), (2, 2, 20.0), (3, 3, 30.0)]
    ahead = [(line, step, time + 100) for line, step, time in steps]
    first = log(
        "\n\n\n2024-01-01 00:00:50 shapes cannot be multiplied\n",
        rank=0,
        file="rank0.log",
        steps=steps,
    )
    second = log(
        "\n\n\n2024-01-01 00:02:20 CUDA out of memory\n", rank=1, file="rank1.log", steps=ahead
    )
    assert ask(first, second).causes[0].id == "cuda-out-of-memory"
    assert ask(second, first).causes[0].id == "cuda-out-of-memory"


def test_stalled_ranks_without_an_error_are_a_hang():
    stalled = Finding(kind="hang", message="rank 3 stands at step 7", rank=3, file="a.log", line=9)
    found = ask(log("step 7\n" * 9), health=[stalled])
    assert root(found) == ("hang", 9)


def test_the_launcher_says_which_rank_was_first():
    text = f"""\
{TRACEBACK}ValueError: mine
============================================================
Root Cause (first observed failure):
[0]:
  time      : 2024-01-01_10:00:00
  host      : node
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 12)
"""
    assert ask(log(text)).causes[0].rank == 3


TIMEOUT = "[rank{0}]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, x)\n"


def timed_out(*works: tuple[int, str, int]) -> list[FileScan]:
    """Return a log for each rank that waits for one work: (number, operation, elements)."""
    return [
        log("start\n" + TIMEOUT.format(rank, *work), rank=rank, file=f"rank{rank}.log")
        for rank, work in enumerate(works)
    ]


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        (
            [(7, "ALLREDUCE", 4), (7, "ALLREDUCE", 4), (7, "ALLGATHER", 9)],
            ("collective-mismatch", 2),
        ),
        (
            [(7, "ALLREDUCE", 4), (7, "ALLREDUCE", 4), (7, "ALLREDUCE", 5)],
            ("collective-mismatch", 2),
        ),
        ([(7, "ALLREDUCE", 4), (7, "ALLREDUCE", 4), (7, "ALLREDUCE", 4)], ("nccl-timeout", 0)),
        ([(7, "ALLREDUCE", 4), (8, "BROADCAST", 4)], ("nccl-timeout", 0)),  # one is only ahead
        ([(7, "ALLGATHER", 4), (7, "ALLGATHER", 5)], ("nccl-timeout", 0)),  # parts may differ
    ],
)
def test_ranks_that_wait_in_different_collectives_do_not_match(works, expected):
    found = ask(*timed_out(*works))
    assert (found.causes[0].id, found.causes[0].rank) == expected


def test_ranks_in_different_collectives_wait_for_the_one_with_an_exception():
    scans = timed_out((7, "ALLREDUCE", 4), (7, "ALLGATHER", 4))
    failed = log(f"start\n{TRACEBACK}KeyError: 'text'\n", rank=2, file="rank2.log")
    found = ask(*scans, failed)
    assert (found.causes[0].id, found.causes[0].rank) == ("python-exception", 2)


def test_the_line_above_a_traceback_names_its_rank():
    text = f"-- Process 3 terminated with the following error:\n{TRACEBACK}KeyError: 'xx'\n"
    assert ask(log(text)).causes[0].rank == 3


def test_a_watchdog_that_dumps_its_state_follows_from_a_timeout_of_another_rank():
    text = (
        "[rank7]: the watchdog got stuck for 480 seconds\n"
        "[rank2]: Watchdog caught collective operation timeout\n"
    )
    found = ask(log(text))
    assert (found.causes[0].id, found.causes[0].rank) == ("nccl-timeout", 2)
    assert root(ask(log(text.splitlines()[0]))) == ("hang", 1)


def test_an_exception_without_a_rank_has_that_of_the_watchdog_that_repeats_it():
    text = f"{OOM}[rank3]: watchdog: CUDA out of memory\n"
    assert (ask(log(text)).causes[0].line, ask(log(text)).causes[0].rank) == (4, 3)


def test_a_known_exception_has_the_rank_that_is_named_above_its_traceback():
    text = f"-- Process 5 terminated with the following error:\n{OOM}"
    assert ask(log(text)).causes[0].rank == 5


@pytest.mark.parametrize(
    "prefix", ["[2]<stderr>:", "[1,2]<stderr>:", "Wed Nov 25 19:38:54 2020[2]<stderr>:"]
)
def test_launchers_of_horovod_write_the_rank_before_a_line(prefix):
    text = "".join(f"{prefix}{line}\n" for line in OOM.splitlines())
    assert (ask(log(text)).causes[0].line, ask(log(text)).causes[0].rank) == (4, 2)


@pytest.mark.parametrize(
    "last_words",
    [
        "RuntimeError: Horovod detected that one or more processes exited with non-zero status\n",
        "Exception: \n\n-- Process 1 terminated with the following error:\n",
    ],
    ids=["horovodrun", "spawn"],
)
def test_what_a_launcher_raises_outweighs_no_consequence(last_words):
    lost = cause("peer-connection-lost", "reset by peer", kind="consequence", generic=2)
    catalogue = Catalogue([lost, cause("python-exception", generic=2)])
    text = f"{TRACEBACK}OSError: reset by peer\n" + "closing\n" * 9 + TRACEBACK + last_words
    assert root(asked_of(catalogue, text))[0] == "peer-connection-lost"


def test_a_launcher_names_the_rank_below_what_happened():
    text = "slurmstepd: error: Detected 1 oom-kill event\nsrun: error: n1: task 4: oom-kill\n"
    found = ask(log(text))
    assert (root(found), found.causes[0].rank) == (("host-out-of-memory", 1), 4)
