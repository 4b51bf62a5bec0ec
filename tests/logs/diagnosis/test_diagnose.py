"""Which of several things in logs and facts explains the end of a run."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from airflow_training.logs.diagnosis.catalogue import Catalogue, Cause
from airflow_training.logs.diagnosis.diagnose import diagnose
from airflow_training.logs.diagnosis.scanning import scan_logs
from airflow_training.logs.model import (
    Diagnosis,
    FileScan,
    Finding,
    InstanceFact,
    Origin,
    Series,
)
from airflow_training.runtimes.kubernetes.timestamped_lines import gap_line


def cause(cause_id: str, pattern: str = "", **details: Any) -> Cause:
    signature = {"name": "text", "pattern": pattern, "confidence": 0.9, "example": ""}
    signature |= {
        k: details.pop(k)
        for k in ("kind", "confidence", "survivable", "raised", "near", "unless")
        if k in details
    }
    return Cause.model_validate(
        {
            "id": cause_id,
            "meaning": cause_id,
            "category": "infrastructure",
            "retry": "yes",
            "advice": "none",
            "signatures": [signature] if pattern else [],
            **details,
        }
    )


CATALOGUE = Catalogue(
    [
        cause("cuda-out-of-memory", r"CUDA out of memory"),
        cause(
            "host-out-of-memory", r"oom-kill", facts=[{"reason": "OOMKilled", "confidence": 0.9}]
        ),
        cause("nccl-timeout", r"Watchdog caught collective operation timeout", kind="consequence"),
        cause("peer-connection-lost", r"Connection reset by peer", kind="consequence", generic=1),
        cause("dns-resolution-failure", r"could not resolve", survivable=True),
        cause("shape-mismatch", r"shapes cannot be multiplied"),
        cause("near-only", r"bus error", near={"pattern": "shm", "lines": 2}),
        cause("config-error", r"must be set", raised=True, confidence=0.6),
        cause("rendezvous-timeout", r"RendezvousClosedError", kind="consequence", confidence=0.5),
        cause("object-store-credentials", r"HTTP response code 403"),
        cause("checkpoint-corrupt", r"Unsuccessful TensorSliceReader"),
        cause("preempted", r"job is preempted", category="preemption"),
        cause("unschedulable", r"FailedScheduling"),
        cause("python-exception", generic=2),
        cause("collective-mismatch", generic=0, facts=[{"reason": "Mismatch", "confidence": 0.9}]),
        cause("hang", r"watchdog got stuck", kind="consequence", yieldsTo=["nccl-timeout"]),
        cause("unknown", r"exitcode: 1", generic=3, kind="consequence", confidence=0.6),
    ]
)


def log(text: str, *, rank: int | None = None, file: str = "a.log", steps: Any = ()) -> FileScan:
    """Return the scan of a text; `steps`: (line, step, time) of its losses."""
    with tempfile.NamedTemporaryFile() as written:
        written.write(text.encode())
        written.flush()
        (scan,) = scan_logs([(Origin(file=file, rank=rank), written.name)], CATALOGUE)
    lines, numbers, times = zip(*steps, strict=True) if steps else ((), (), ())
    series = Series(
        metric="loss",
        steps=np.array(numbers, dtype=float),
        values=np.ones(len(lines)),
        times=np.array(times, dtype=float),
        offsets=np.zeros(len(lines), dtype=np.int64),
        lines=np.array(lines, dtype=np.int64),
        total=len(lines),
    )
    return replace(scan, series=(series,) if steps else ())


def ask(*scans: FileScan, facts: Any = (), health: Any = ()) -> Diagnosis:
    return diagnose(scans, facts, health, catalogue=CATALOGUE)


def root(found: Diagnosis) -> tuple[str, int | None]:
    return found.causes[0].id, found.causes[0].line


TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    step()
"""
OOM = f"{TRACEBACK}torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def test_a_log_without_errors_is_healthy():
    assert ask(log("loading\nstep 1 loss 0.5\n")) == Diagnosis()


def test_what_lines_are_missing_before_is_told_with_any_answer():
    gap = gap_line("2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z").decode()
    assert ask(log(f"step 1 loss 0.5\n{gap}step 9 loss 0.1\n")) == Diagnosis(gaps=("a.log:2",))
    assert ask(log(f"start\n{gap}{OOM}")).gaps == ("a.log:2",)


def test_an_exception_that_nobody_knows_is_the_cause_of_last_resort():
    found = ask(log(f"start\n{TRACEBACK}ValueError: bad config of mine\n"))
    assert root(found) == ("python-exception", 5)
    assert found.causes[0].evidence == "ValueError: bad config of mine"


def test_a_known_exception_goes_before_an_unknown_one():
    assert root(ask(log(f"{OOM}{TRACEBACK}ValueError: other\n"))) == ("cuda-out-of-memory", 4)


def test_a_line_of_source_code_proves_nothing():
    text = TRACEBACK.replace("step()", 'raise E("CUDA out of memory")') + "E2Error: x\n"
    assert ask(log(text)).causes[0].id == "python-exception"


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


def test_the_runtime_goes_before_text():
    killed = InstanceFact(role="worker", index=1, exit_code=137, reason="OOMKilled")
    found = ask(log("Connection reset by peer\n", rank=0), facts=[killed])
    assert found.causes[0].id == "host-out-of-memory"
    assert found.causes[0].evidence == "worker-1: OOMKilled, exit code 137"
    assert found.causes[0].rank == 1


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        pytest.param(137, "host-out-of-memory", id="the-process-was-killed"),
        pytest.param(1, "cuda-out-of-memory", id="the-process-raised"),
    ],
)
def test_out_of_which_memory_the_exit_code_tells(exit_code, cause):
    killed = InstanceFact(role="worker", index=0, exit_code=exit_code, reason="OOMKilled")
    assert ask(log(OOM), facts=[killed]).causes[0].id == cause


def test_a_failure_without_evidence_is_unknown():
    failed = InstanceFact(role="worker", index=0, exit_code=1)
    found = ask(log("hello\n"), facts=[failed])
    assert (found.causes[0].id, found.healthy) == ("unknown", False)
    assert found.causes[0].confidence < 0.5


def test_stalled_ranks_without_an_error_are_a_hang():
    stalled = Finding(kind="hang", message="rank 3 stands at step 7", rank=3, file="a.log", line=9)
    found = ask(log("step 7\n" * 9), health=[stalled])
    assert root(found) == ("hang", 9)


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


@pytest.mark.parametrize(
    ("text", "healthy"),
    [
        pytest.param("bus error\n", True, id="alone"),
        pytest.param("bus error\nno space in shm\n", False, id="near"),
        pytest.param("bus error\na\nb\nc\nshm\n", True, id="too-far"),
    ],
)
def test_context_decides_about_a_hit(text, healthy):
    assert ask(log(text)).healthy is healthy


HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        pytest.param(
            f"{TRACEBACK}KeyError: 'a'\n{HANDLING}{TRACEBACK}ValueError: no a\n",
            "ValueError: no a",
            id="handled",
        ),
        pytest.param(
            f"{TRACEBACK}OSError: odd thing\n{DIRECT}{TRACEBACK}RuntimeError: failed\n",
            "OSError: odd thing",
            id="wrapped-from",
        ),
        pytest.param(
            f"{TRACEBACK}OSError: odd thing\n{HANDLING}{TRACEBACK}RuntimeError: failed: odd thing\n",
            "OSError: odd thing",
            id="wrapped-by-words",
        ),
        pytest.param(
            f"{TRACEBACK}KeyError: Caught KeyError in DataLoader worker process 0.\n"
            f"Original {TRACEBACK}KeyError: 'label'\n",
            "KeyError: 'label'",
            id="data-loader",
        ),
        pytest.param(
            f"{TRACEBACK}ValueError: mine\n{TRACEBACK}"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
            "ValueError: mine",
            id="launcher-after-it",
        ),
        pytest.param(
            f"{TRACEBACK}torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
            f"-- Process 1 terminated with the following error:\n{TRACEBACK}ValueError: mine\n",
            "ValueError: mine",
            id="spawn",
        ),
        pytest.param(
            f"{TRACEBACK}Exception: \n\n"
            f"-- Process 1 terminated with the following error:\n{TRACEBACK}ValueError: mine\n",
            "ValueError: mine",
            id="spawn-of-torch-1",
        ),
        pytest.param(
            f"{TRACEBACK}ValueError:\n  2 rows are wrong\n",
            "ValueError: 2 rows are wrong",
            id="message-on-the-next-line",
        ),
        pytest.param(f"{TRACEBACK}acme.Broken: mine\n", "acme.Broken: mine", id="own-name"),
    ],
)
def test_the_exception_that_began_it_is_told(text, evidence):
    found = ask(log(text))
    assert (found.causes[0].id, found.causes[0].evidence) == ("python-exception", evidence)


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


def test_the_summary_of_a_launcher_hides_no_exception():
    text = f"{TRACEBACK}ValueError: mine\nE0801 api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 1)\n"
    found = ask(log(text))
    assert (found.causes[0].id, found.causes[0].rank) == ("python-exception", 3)


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


def test_another_sure_cause_lowers_confidence():
    alone = ask(log("CUDA out of memory\n")).causes[0].confidence
    both = ask(log("CUDA out of memory\nshapes cannot be multiplied\n"))
    assert [each.id for each in both.causes] == ["cuda-out-of-memory", "shape-mismatch"]
    assert both.causes[0].confidence < min(alone, 0.8)
    assert both.causes[1].confidence < both.causes[0].confidence


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


def test_a_traceback_that_was_cut_off_is_an_exception():
    assert root(ask(log(f"start\n{TRACEBACK}"))) == ("python-exception", 2)
    assert root(ask(log("start\nTraceback (most recent call last):\n"))) == ("python-exception", 2)


def test_an_exception_without_a_traceback_is_the_end_where_little_follows():
    stack = "\tat org.example.Train.step(Train.java:3)\n" * 20
    assert root(ask(log(f"start\norg.example.TrainException: queue is closed\n{stack}"))) == (
        "python-exception",
        2,
    )
    went_on = log("AcmeError: no metrics\n" + "still working\n" * 20)
    assert ask(went_on).healthy
    trained_on = log("AcmeError: no\nstep 1\nstep 2\n", steps=[(2, 1, 0), (3, 2, 0)])
    assert ask(trained_on).healthy


def test_what_is_raised_after_the_end_of_the_program_is_none_of_it():
    text = f"Model saved\nError in atexit._run_exitfuncs:\n{TRACEBACK}KeyboardInterrupt\n"
    assert ask(log(text)).healthy


def test_the_line_above_a_traceback_names_its_rank():
    text = f"-- Process 3 terminated with the following error:\n{TRACEBACK}KeyError: 'xx'\n"
    assert ask(log(text)).causes[0].rank == 3


def test_words_that_say_little_count_only_in_the_line_of_an_exception():
    assert ask(log("the option must be set to train faster\nstep 1\n")).healthy
    found = ask(log(f"{TRACEBACK}MyError: the option must be set\n"))
    assert root(found) == ("config-error", 4)


def test_words_in_what_was_handled_are_no_cause():
    text = f"an option must be set\n{TRACEBACK}MyError: something else\n"
    assert root(ask(log(text))) == ("python-exception", 5)


def test_a_traceback_that_was_cut_off_explains_less_than_what_was_told_before():
    text = f"{TRACEBACK}RendezvousClosedError\nnoise\n{TRACEBACK}"
    assert root(ask(log(text))) == ("rendezvous-timeout", 4)


def test_of_a_chain_that_was_cut_off_the_exceptions_that_are_there_count():
    text = (
        f"{TRACEBACK}KeyError: 'iteration'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f"{TRACEBACK}"
    )
    assert root(ask(log(text))) == ("python-exception", 4)


def test_what_a_logger_tells_above_a_traceback_that_was_cut_off_is_its_exception():
    text = f"step 1\n10:11 ERROR training failed. Exception: the seed must be set\n{TRACEBACK}"
    assert root(ask(log(text))) == ("config-error", 2)


def test_a_traceback_in_one_line_of_json_has_its_exception():
    text = (
        r'{"exc_info": "Traceback (most recent call last):\n  File \"train.py\", line 3\n'
        r'    step()\nMyError: the option must be set"}'
    )
    assert root(ask(log(f"start\n{text}\n"))) == ("config-error", 2)
    found = ask(log(text.replace("the option must be set", "no words") + "\n"))
    assert root(found) == ("python-exception", 1)
    assert found.causes[0].evidence == "MyError: no words"


def test_of_several_reasons_in_one_line_the_innermost_is_the_root():
    text = "Unsuccessful TensorSliceReader constructor: Failed: HTTP response code 403\n"
    assert root(ask(log(text))) == ("object-store-credentials", 1)


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


def test_what_a_kubelet_skips_for_now_it_tries_for_ever():
    assert root(ask(log("Error syncing pod, skipping: FailedScheduling\n"))) == ("unschedulable", 1)


@pytest.mark.parametrize(
    "prefix", ["[2]<stderr>:", "[1,2]<stderr>:", "Wed Nov 25 19:38:54 2020[2]<stderr>:"]
)
def test_launchers_of_horovod_write_the_rank_before_a_line(prefix):
    text = "".join(f"{prefix}{line}\n" for line in OOM.splitlines())
    assert (ask(log(text)).causes[0].line, ask(log(text)).causes[0].rank) == (4, 2)


@pytest.mark.parametrize(
    ("above", "line"),
    [
        pytest.param(
            '  File "train.py", line 3, in step\n    raise KeyError\n', 3, id="head-cut-off"
        ),
        pytest.param("\u2570\u2500\u2500\u2500\u2500\u256f\n", 2, id="drawn-as-a-box"),
    ],
)
def test_frames_above_an_exception_make_it_one_that_was_raised(above, line):
    text = f"{above}KeyError: 'mask'\n" + "exitcode: 1\n" * 20
    assert root(ask(log(text))) == ("python-exception", line)
    assert ask(log(text.replace(above, "loaded\n" * (line - 1)))).causes[0].id == "unknown"


def test_a_traceback_may_be_cut_off_between_frames_of_any_shape():
    shifted = TRACEBACK.replace("  ", "")
    frame = 'File "run.py", line 9, in run\n'
    assert root(ask(log(f"start\n{shifted.replace('step()', 'app.ru')}"))) == (
        "python-exception",
        2,
    )
    between = f"start\n{TRACEBACK}[10:00:00] reader.cc:280: at 0\n  {frame}    run()\n"
    assert root(ask(log(between))) == ("python-exception", 2)
    assert ask(log(f"{TRACEBACK}went on\nand on\n")).healthy


def asked_of(catalogue: Catalogue, text: str) -> Diagnosis:
    with tempfile.NamedTemporaryFile() as written:
        written.write(text.encode())
        written.flush()
        scans = scan_logs([(Origin(file="a.log"), written.name)], catalogue)
    return diagnose(scans, catalogue=catalogue)


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


def test_what_programs_live_through_explains_a_traceback_that_was_cut_off():
    late = cause("storage-io-error", "late answer", survivable=True, confidence=0.8)
    catalogue = Catalogue([late, cause("python-exception", generic=2)])
    text = f"late answer\n{TRACEBACK}"
    assert asked_of(catalogue, text).causes[0].id == "storage-io-error"
    assert asked_of(catalogue, f"{text}ValueError: mine\n").causes[0].id == "python-exception"


@pytest.mark.parametrize(
    "head",
    [
        "OutOfMemoryError         Traceback (most recent call last)\n----> 1 train()\n",
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::f() (pid=7)\n    train()\n",
    ],
    ids=["notebook", "ray"],
)
def test_the_head_of_a_traceback_only_announces_what_its_end_tells(head):
    catalogue = Catalogue([cause("cuda-out-of-memory", "OutOfMemoryError")])
    assert root(asked_of(catalogue, f"{head}OutOfMemoryError: 2 GiB\n"))[1] == 3
    assert root(asked_of(catalogue, head))[1] == 1


def test_what_is_tried_again_ended_nothing():
    refused = f"{TRACEBACK}socket.gaierror: could not resolve api.example.org\n"
    assert ask(log(f"{refused}wandb: Network error, entering retry loop.\n")).healthy
    assert ask(log(f"Retry attempt failed:\n{refused}loaded\n")).healthy
    assert not ask(log(f"{refused}wandb: Run data is lost.\n")).healthy


def test_a_launcher_names_the_rank_below_what_happened():
    text = "slurmstepd: error: Detected 1 oom-kill event\nsrun: error: n1: task 4: oom-kill\n"
    found = ask(log(text))
    assert (root(found), found.causes[0].rank) == (("host-out-of-memory", 1), 4)
