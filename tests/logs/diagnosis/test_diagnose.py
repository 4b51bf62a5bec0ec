"""Which of several things in logs and facts explains the end of a run."""

from __future__ import annotations

import pytest

from airflow_training.logs.model import Diagnosis, InstanceFact
from airflow_training.runtimes.kubernetes.timestamped_lines import gap_line
from tests.logs.diagnosis.small_catalogue import OOM, ask, log, root


def test_what_lines_are_missing_before_is_told_with_any_answer():
    gap = gap_line("2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z").decode()
    assert ask(log(f"step 1 loss 0.5\n{gap}step 9 loss 0.1\n")) == Diagnosis(gaps=("a.log:2",))
    assert ask(log(f"start\n{gap}{OOM}")).gaps == ("a.log:2",)


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


def test_another_sure_cause_lowers_confidence():
    alone = ask(log("CUDA out of memory\n")).causes[0].confidence
    both = ask(log("CUDA out of memory\nshapes cannot be multiplied\n"))
    assert [each.id for each in both.causes] == ["cuda-out-of-memory", "shape-mismatch"]
    assert both.causes[0].confidence < min(alone, 0.8)
    assert both.causes[1].confidence < both.causes[0].confidence


def test_of_several_reasons_in_one_line_the_innermost_is_the_root():
    text = "Unsuccessful TensorSliceReader constructor: Failed: HTTP response code 403\n"
    assert root(ask(log(text))) == ("object-store-credentials", 1)
