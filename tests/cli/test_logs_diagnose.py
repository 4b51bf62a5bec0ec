"""`logs diagnose` on files: the contract of its JSON, its table, and what it refuses."""

from __future__ import annotations

import gzip
import json

import pytest

OOM = """\
step 1 loss 2.5
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    step()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total)
"""
TIMEOUT = (
    "[E ProcessGroupNCCL.cpp:737] [Rank 0] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=46, OpType=ALLREDUCE) ran for 1800000 milliseconds before timing out.\n"
)


@pytest.fixture
def ranks(home, tmp_path):
    """Return two logs, of which the second has the cause of what the first one says."""
    for rank, text in enumerate([TIMEOUT, OOM]):
        (tmp_path / f"rank{rank}.log").write_text(text)
    return [str(tmp_path / f"rank{rank}.log") for rank in range(2)]


def test_one_document_with_the_root_cause_first(typed, ranks):
    answer = typed("logs", "diagnose", *ranks, "--output", "json")
    assert answer.code == 0
    assert set(answer.json) == {"causes", "consequences", "healthy"}
    root = answer.json["causes"][0]
    advice, evidence, confidence = (root.pop(k) for k in ("advice", "evidence", "confidence"))
    assert root == {
        "id": "cuda-out-of-memory",
        "category": "resource",
        "retryable": "no",
        "rank": 1,
        "file": ranks[1],
        "line": 5,
        "offset": OOM.index("torch.cuda"),
    }
    assert evidence.startswith("torch.cuda.OutOfMemoryError: CUDA out of memory.")
    assert advice
    assert confidence > 0.8
    assert [each["id"] for each in answer.json["consequences"]] == ["nccl-timeout"]
    assert answer.json["healthy"] is False


def test_a_person_reads_cause_proof_and_what_to_do(typed, ranks):
    lines = typed("logs", "diagnose", *ranks).stdout.splitlines()
    assert lines[0].startswith("cause        cuda-out-of-memory (resource), ")
    assert lines[2] == f"proof        {ranks[1]}:5 (rank 1)"
    assert any(line.startswith("what to do ") for line in lines)
    assert "retry        no: it needs a change first" in lines
    assert f"followed by  nccl-timeout: {ranks[0]}:1 (rank 0)" in lines


def test_a_healthy_log(typed, home, tmp_path):
    (tmp_path / "good.log").write_text("step 1 loss 2.5\n")
    answer = typed("logs", "diagnose", str(tmp_path / "good.log"), "-o", "json")
    assert (answer.code, answer.json) == (0, {"causes": [], "consequences": [], "healthy": True})
    assert typed("logs", "diagnose", str(tmp_path / "good.log")).stdout.startswith("healthy")


def test_compressed_logs_have_the_lines_of_their_text(typed, home, tmp_path):
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(OOM.encode()))
    answer = typed("logs", "diagnose", str(tmp_path / "rank0.log.gz"), "-o", "json")
    root = answer.json["causes"][0]
    assert (root["line"], root["offset"]) == (5, OOM.index("torch.cuda"))
    assert root["file"].endswith("rank0.log.gz")


def test_what_the_runtime_saw_explains_a_log_that_says_nothing(typed, home, tmp_path):
    (tmp_path / "a.log").write_text("step 1 loss 2.5\n")
    facts = {"instances": [{"role": "worker", "index": 0, "exit_code": 137, "reason": "OOMKilled"}]}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    where = [str(tmp_path / "a.log"), "--facts", str(tmp_path / "facts.json")]
    answer = typed("logs", "diagnose", *where, "-o", "json")
    assert answer.json["causes"][0]["id"] == "host-out-of-memory"
    assert answer.json["causes"][0]["line"] is None


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        pytest.param('{"instances": [{"exitcode": 1}]}', "did you mean 'exitCode'?", id="key"),
        pytest.param('{"instances": 3}', "instances: must be a list", id="type"),
        pytest.param("{", "is no JSON", id="syntax"),
        pytest.param("[]", "must be a mapping", id="list"),
    ],
)
def test_facts_that_make_no_sense_are_refused(typed, home, tmp_path, facts, told):
    (tmp_path / "a.log").write_text(OOM)
    (tmp_path / "facts.json").write_text(facts)
    answer = typed(
        "logs", "diagnose", str(tmp_path / "a.log"), "--facts", str(tmp_path / "facts.json")
    )
    assert (answer.code, answer.stdout) == (2, "")
    assert told in answer.stderr


def test_a_path_that_is_not_there_is_refused(typed, home):
    answer = typed("logs", "diagnose", "nowhere/rank0.log")
    assert answer.code == 2
    assert "nowhere/rank0.log" in answer.stderr


def test_own_causes_are_used_and_their_mistakes_told(typed, home, tmp_path):
    (home / "causes").mkdir()
    own = home / "causes" / "acme-licence.yaml"
    text = """\
id: acme-licence
meaning: No licence of ACME is free
category: resource
retry: "yes"
advice: Wait, or buy more.
signatures:
  - {name: none-left, pattern: 'ACME-17: no licence left', confidence: 0.9, example: 'ACME-17: no licence left'}
"""
    own.write_text(text)
    (tmp_path / "a.log").write_text("ACME-17: no licence left\n")
    answer = typed("logs", "diagnose", str(tmp_path / "a.log"), "-o", "json")
    assert answer.json["causes"][0]["id"] == "acme-licence"
    own.write_text(text.replace("pattern: 'ACME-17: no licence left'", r"pattern: '\d+'"))
    answer = typed("logs", "diagnose", str(tmp_path / "a.log"))
    assert answer.code == 2
    assert "signatures[0].pattern: would be slow" in answer.stderr


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: acme-sync lost the vault: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (acme-sync lost the vault)",
    ],
)
def test_an_own_cause_goes_before_a_known_one_of_the_same_line(typed, home, tmp_path, line):
    """Wherever in the line it stands: who wrote it knows the program."""
    (home / "causes").mkdir()
    (home / "causes" / "vault-lost.yaml").write_text(
        """\
id: vault-lost
meaning: The vault of ACME is gone
category: infrastructure
retry: "yes"
advice: Ask ACME.
signatures:
  - {name: lost, pattern: 'acme-sync lost the vault', confidence: 0.6, example: 'acme-sync lost the vault'}
"""
    )
    trace = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n'
    )
    (tmp_path / "a.log").write_text(f"{trace}{line}\n")
    answer = typed("logs", "diagnose", str(tmp_path / "a.log"), "-o", "json")
    assert [each["id"] for each in answer.json["causes"]] == ["vault-lost"]


@pytest.mark.parametrize(("reason", "causes"), [("Running", ["hang"]), ("Completed", [])])
def test_a_file_whose_clock_stood_still_hangs_if_the_runtime_sees_it_running(
    typed, home, tmp_path, reason, causes
):
    lines = [f"2026-01-01 00:00:{step:02d} step: {step} loss: 0.5 lr: 0.1" for step in range(60)]
    (tmp_path / "rank0.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "rank1.log").write_text("\n".join([*lines, "2026-01-01 00:03:00 waiting"]) + "\n")
    facts = {"instances": [{"index": index, "reason": reason} for index in range(2)]}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    logs = [str(tmp_path / f"rank{rank}.log") for rank in range(2)]
    answer = typed("logs", "diagnose", *logs, "--facts", str(tmp_path / "facts.json"), "-o", "json")
    assert [each["id"] for each in answer.json["causes"]] == causes
    assert typed("logs", "diagnose", *logs, "-o", "json").json["healthy"], "told nothing"
