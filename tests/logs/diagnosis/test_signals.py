"""A signal says that something was killed, not why: for memory there has to be evidence of memory."""

from __future__ import annotations

import tempfile

import pytest

from airflow_training.control.diagnosed import SURE
from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.diagnose import diagnose
from airflow_training.logs.diagnosis.scanning import scan_logs
from airflow_training.logs.model import FoundCause, InstanceFact, Origin

MPIRUN = (
    "mpirun noticed that process rank 1 with PID 4711 on node worker-1 exited on signal 9 (Killed)."
)
KILLED = [
    pytest.param(MPIRUN, id="mpirun"),
    pytest.param(
        "=   KILLED BY SIGNAL: 9 (Killed)",
        id="hydra",
    ),
    pytest.param(
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)", id="hydra-summary"
    ),
    pytest.param(
        "E0101 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 398) of binary: python",
        id="torchrun",
    ),
    pytest.param("  traceback : Signal 9 (SIGKILL) received by PID 398", id="torchrun-summary"),
    pytest.param("Process 1 exit with status code 137.", id="horovodrun"),
    pytest.param("srun: error: c002: task 1: Killed", id="srun"),
    pytest.param("error: process exited with code 137", id="exit-code"),
    pytest.param("['python', 'train.py'] exits with return code = -9", id="deepspeed"),
    pytest.param(
        "ProcessExitedException: process 1 terminated with signal SIGKILL", id="torch-spawn"
    ),
    pytest.param("run.sh: line 28:  8156 Killed                  python main.py", id="bash"),
    pytest.param("Killed", id="shell"),
    pytest.param(
        "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.",
        id="subprocess",
    ),
]
ENDS = [
    pytest.param({"exit_code": 137}, id="kubernetes-137"),
    pytest.param({"exit_code": 137, "reason": "Error"}, id="kubernetes-error"),
    pytest.param({"signal": "9"}, id="signal"),
    pytest.param({"exit_code": 1}, id="its-launcher-ended"),
]


def ask(*lines: str, **end: object) -> FoundCause:
    """Return the first answer for a log of these lines; `end`: what the runtime saw, if anything."""
    catalogue = load()
    with tempfile.NamedTemporaryFile() as file:
        file.write("\n".join(("step 1 loss 0.5", *lines)).encode() + b"\n")
        file.flush()
        scans = scan_logs([(Origin(file="worker-0"), file.name)], catalogue)
    facts = [InstanceFact(role="worker", index=0, **end)] if end else []  # type: ignore[arg-type]
    return diagnose(scans, facts, catalogue=catalogue).causes[0]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("line", KILLED)
def test_a_signal_is_no_memory_failure_where_the_runtime_saw_none(line, end):
    found = ask(line, **end)
    assert (found.id, found.category) == ("unknown", "infrastructure")
    assert found.retryable != "no"


@pytest.mark.parametrize("line", KILLED)
def test_a_log_alone_may_suspect_memory_but_forbids_nothing(line):
    found = ask(line)
    assert found.retryable != "no"
    assert found.confidence < 0.5


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        pytest.param([MPIRUN], {"exit_code": 137, "reason": "OOMKilled"}, id="the-runtime-says-so"),
        pytest.param(
            [
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=docker,task=python",
                MPIRUN,
            ],
            {"exit_code": 137},
            id="the-kernel-says-so",
        ),
        pytest.param(
            ["slurmstepd: error: Detected 1 oom_kill event in StepId=19.0.", "Killed"],
            {"exit_code": 137},
            id="slurm-says-so",
        ),
        pytest.param(
            ["terminate called after throwing an instance of 'std::bad_alloc'"],
            {"exit_code": 134},
            id="the-allocator-says-so",
        ),
    ],
)
def test_memory_is_told_by_evidence(lines, end):
    found = ask(*lines, **end)
    assert found.id == "host-out-of-memory"
    assert found.confidence >= SURE


def test_of_an_exception_the_last_frames_of_the_user_are_told():
    found = ask(
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 40, in <module>',
        "    main()",
        '  File "/w/train.py", line 31, in main',
        "    train(model, data)",
        "    ~~~~~^^^^^^^^^^^^^",
        '  File "/w/loop.py", line 12, in train',
        "    model(batch)",
        '  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1511, in _wrapped',
        "    return self._call_impl(*args, **kwargs)",
        "KeyError: 'label'",
        exit_code=1,
    )
    assert (found.id, found.evidence) == ("python-exception", "KeyError: 'label'")
    assert found.advice == (
        "Read the traceback: /w/train.py:31, in main: train(model, data);"
        " /w/loop.py:12, in train: model(batch)"
    )


@pytest.mark.parametrize(
    "line",
    [
        "[LightGBM] [Fatal] Binding port 12400 failed",
        "OSError: [Errno 98] Address already in use",
        "RuntimeError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
        "grpc: Could not start gRPC server",
    ],
)
def test_a_port_that_is_taken_is_worth_another_try(line):
    found = ask(line, exit_code=1)
    assert (found.id, found.category) == ("address-already-in-use", "infrastructure")
    assert found.retryable == "yes"
