"""`logs show` and `logs search` on files and on a run of the local runtime."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from airflow_training.state.store import Store
from tests.cli.conftest import COMMAND, job_file

START = 1_767_225_600.0  # 2026-01-01


def rank_log(rank: int, *, ahead: float = 0.0, steps: int = 60) -> bytes:
    lines = []
    for step in range(steps):
        at = datetime.fromtimestamp(START + step + ahead + rank / 10, tz=timezone.utc)
        lines.append(f"{at:%Y-%m-%d %H:%M:%S.%f} step: {step} loss: {1 / (step + 1):.3f}\n")
    return "".join(lines).encode()


@pytest.fixture
def ranks(home) -> list[str]:
    Path("rank0.log").write_bytes(rank_log(0))
    Path("rank1.log.gz").write_bytes(gzip.compress(rank_log(1, ahead=40)))
    return ["rank0.log", "rank1.log.gz"]


def test_a_file_is_shown_as_it_is(typed, ranks):
    assert typed("logs", "show", ranks[1]).stdout.encode() == rank_log(1, ahead=40)
    last = typed("logs", "show", ranks[0], "--tail", "2").stdout
    assert [line.split()[3] for line in last.splitlines()] == ["58", "59"]


@pytest.mark.parametrize("name", ["rank0.log", "rank1.log.gz"])
def test_a_stretch_of_bytes(typed, ranks, name):
    whole = typed("logs", "show", name).stdout
    assert typed("logs", "show", name, "--offset", "7", "--size", "20").stdout == whole[7:27]
    assert typed("logs", "show", name, "--offset", "100").stdout == whole[100:]
    assert typed("logs", "show", name, "--size", "5").stdout == whole[:5]
    assert typed("logs", "show", name, "--size", "0").stdout == ""
    assert typed("logs", "show", name, "--offset", str(len(whole))).stdout == ""
    assert typed("logs", "show", name, "--offset", str(2 * len(whole))).stdout == ""


def test_a_stretch_of_time(typed, ranks):
    words = ["--since", "2026-01-01T00:00:10Z", "--until", "2026-01-01T00:00:12.5Z"]
    shown = typed("logs", "show", ranks[0], *words).stdout
    assert [line.split()[3] for line in shown.splitlines()] == ["10", "11", "12"]


def test_lines_without_times_are_told(typed, ranks):
    Path("plain.log").write_text("step 1\nstep 2\n")
    Path("empty.log").touch()
    since = typed("logs", "show", "plain.log", ranks[0], "--since", "2026-01-01T00:00:59Z")
    assert since.stdout.count("\n") == 1
    assert since.stderr == (
        "plain.log: no line tells its time, so --since cannot choose any: none is shown;"
        " --tail N shows the last ones\n"
    )
    until = typed("logs", "show", "plain.log", "--until", "1h")
    assert until.stdout == "step 1\nstep 2\n"
    assert "so --until cannot choose any: all are shown" in until.stderr
    merged = typed("logs", "show", "--merge", "plain.log", ranks[0], "--since", "1h")
    assert merged.stderr.startswith("plain.log: no line tells its time")
    assert typed("logs", "show", "empty.log", "--since", "1h").stderr == ""
    assert typed("logs", "show", ranks[0], "--since", "1h").stderr == "", "all are older"


def test_ranks_as_one_log(typed, ranks):
    answer = typed("logs", "show", "--merge", *ranks, "--since", "2026-01-01T00:00:58Z")
    assert [line.split(" | ")[0].strip() for line in answer.stdout.splitlines()] == [*ranks] * 2
    assert [line.split("step: ")[1].split()[0] for line in answer.stdout.splitlines()] == [
        "58", "58", "59", "59",
    ]  # fmt: skip
    assert "the clock of rank1.log.gz is taken to be +40.1 s off" in answer.stderr


def test_search_looks_like_grep(typed, ranks):
    answer = typed("logs", "search", *ranks, r"step: (20|22|40)\b", "-C", "1")
    one = ["20-", "21:", "22-", "23:", "24-", "--", "40-", "41:", "42-"]
    heads = [line.split("2026")[0] for line in answer.stdout.splitlines()]
    assert heads == [
        *(head if head == "--" else f"rank0.log:{head}" for head in one),
        "--",
        *(head if head == "--" else f"rank1.log.gz:{head}" for head in one),
    ]
    found = typed("logs", "search", ranks[0], "STEP: 7 ", "-i", "-o", "json").json["matches"]
    assert [(each["file"], each["rank"], each["line"], each["before"]) for each in found] == [
        ("rank0.log", 0, 8, [])
    ]
    assert rank_log(0)[found[0]["offset"] :].startswith(found[0]["text"].encode())
    nothing = typed("logs", "search", ranks[0], "step: (", "-F")
    assert (nothing.code, nothing.stdout, nothing.stderr) == (0, "", "no line matches\n")


def test_very_long_lines_are_shown_in_part_and_that_is_told(typed, home):
    """Here is no need to wait until a terminal has scrolled through megabytes."""
    Path("bar.log").write_bytes(b"first\n" + b"50%\r" * 1_000_000 + b"needle" + b"-" * 1_000_000)
    last = typed("logs", "show", "bar.log", "--tail", "5")
    assert 10_000 < len(last.stdout) < 200_000
    assert "bar.log: its last lines are very long, so they are shown from byte " in last.stderr
    start = int(last.stderr.split("from byte ")[1].split()[0])
    assert typed("logs", "show", "bar.log", "--offset", str(start)).stdout == last.stdout
    found = typed("logs", "search", "bar.log", "needle").stdout
    assert found.startswith("2:[")
    assert "needle" in found
    assert found.rstrip().endswith(" bytes more]")
    assert len(found) < 20_000


def test_a_prediction_file_is_a_series(typed, home):
    Path("predictions.csv").write_text("step,probability,label\n10,0.25,cat\n20,0.75,dog\n")
    (series,) = typed("logs", "metrics", "predictions.csv", "--output", "json").json["series"]
    assert (series["metric"], series["points"]) == ("probability", [[10, 0.25, 0], [20, 0.75, 0]])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "rank0.log", "--since", "noon"], "--since: 'noon' is no time"),
        (["show", "rank0.log", "-f", "--until", "1h"], "--follow goes with neither"),
        (["show", "rank0.log", "--merge", "-n", "1"], "--tail goes with neither"),
        (["show", "rank0.log", "rank1.log.gz", "-f"], "only one file can be followed"),
        (["show", "rank0.log", "-f", "--offset", "3"], "--offset and --size go with no other"),
        (["show", "rank0.log", "-n", "1", "--size", "3"], "--size: --offset and --size go with no"),
        (
            ["show", "rank0.log", "rank1.log.gz", "--size", "3"],
            "only one file can be shown by bytes",
        ),
        (["show", "rank9.log", "--merge"], "rank9.log is no file, and no run has this name"),
        (["show", "s3:/rank9.log", "--merge"], "s3:/rank9.log is no file"),
        (["show", "nosuch://bucket/rank9.log"], "nosuch://bucket/rank9.log"),
        (["search", "rank0.log", "(step"], "PATTERN: missing ): (step"),
    ],
)
def test_mistakes_are_named(typed, ranks, words, said):
    answer = typed("logs", *words)
    assert answer.code == 2
    assert said in answer.stderr
    assert answer.stdout == ""


@pytest.mark.e2e
def test_a_file_is_followed_across_a_rotation(home):
    path = Path("train.log")
    path.write_bytes(b"one\ntwo\n")
    words = [*COMMAND, "logs", "show", str(path), "--tail", "1", "--follow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        try:
            assert following.stdout.readline() == b"two\n"
            with path.open("ab") as file:
                file.write(b"three\n")
            assert following.stdout.readline() == b"three\n"
            path.rename("train.log.1")
            path.write_bytes(b"four\n")
            assert following.stdout.readline() == b"four\n"
            assert b"rotated" in following.stderr.readline()
        finally:
            following.kill()


@pytest.mark.e2e
def test_the_logs_of_a_run(command, home):
    script = (
        "for i in 1 2 3 4 5 6 7 8; do"
        ' echo "$(date -u +%Y-%m-%dT%H:%M:%S.%N | cut -c1-23)Z step $i of $TRAINING_ROLE $TRAINING_INDEX";'
        " sleep 0.02; done"
    )
    path = job_file(Path("job.yaml"), ("master", 1), ("worker", 2), command=["sh", "-c", script])
    before = time.time()
    assert command("run", str(path), "--run-id", "one").code == 0
    merged = command("logs", "show", "one", "--merge").stdout.splitlines()
    assert len(merged) == 24
    assert {line.split(" | ")[0].strip() for line in merged} == {"master-0", "worker-0", "worker-1"}
    times = [line.split(" | ")[1].split()[0] for line in merged]
    assert times == sorted(times)
    assert (
        len(command("logs", "show", "one", "--merge", "--role", "worker").stdout.splitlines()) == 16
    )
    tail = command("logs", "show", "one", "--role", "worker", "--index", "1", "-n", "1").stdout
    assert "step 8 of worker 1" in tail
    assert tail.count("\n") == 1
    one = ("logs", "show", "one", "--role", "worker")
    whole = command(*one).stdout
    assert command(*one, "--offset", "30", "--size", "40").stdout == whole[30:70]
    assert command(*one, "--offset", "30").stdout == whole[30:]
    followed = command("logs", "show", "one", "--role", "worker", "-n", "2", "--follow").stdout
    assert followed.count("\n") == 2
    found = command("logs", "search", "one", "step 3", "-o", "json").json["matches"]
    assert [(each["role"], each["index"], each["rank"]) for each in found] == [
        ("master", 0, 0), ("worker", 0, 1), ("worker", 1, 2),
    ]  # fmt: skip
    ago = f"{time.time() - before + 60:.0f}s"
    all_of_it = command("logs", "show", "one", "--role", "worker", "--since", ago).stdout
    assert all_of_it.count("\n") == 8
    later = command("logs", "show", "one", "--role", "worker", "--until", ago).stdout
    assert later == ""
    assert "name one with --role" in command("logs", "show", "one").stderr
    assert "no run" in command("logs", "show", "two").stderr


@pytest.mark.e2e
def test_the_log_of_a_run_of_one_instance_needs_no_role(command, home):
    path = job_file(Path("job.yaml"), ("worker", 1), command=["sh", "-c", "echo hello; echo world"])
    assert command("run", str(path), "--run-id", "one").code == 0
    shown = command("logs", "show", "one")
    assert shown.stdout == "hello\nworld\n", shown.stderr
    assert command("logs", "show", "one", "-n", "1").stdout == "world\n"
    assert command("logs", "show", "one", "--index", "0", "--size", "5").stdout == "hello"
    assert "several logs" in command("logs", "show", "one", "--index", "3").stderr
    silent = job_file(Path("silent.yaml"), ("worker", 1), command=["true"])
    assert command("run", str(silent), "--run-id", "two").code == 0
    assert command("logs", "show", "two").stderr == "worker-0 printed nothing\n"


@pytest.mark.e2e
def test_a_run_that_stopped_printing_hangs(command, home):
    """It ends 40 s after its last step by its own clock: the log's times are those of the past."""
    script = (
        "import datetime as d\n"
        "now = d.datetime.now(d.timezone.utc)\n"
        "for step in range(60):\n"
        "    at = now - d.timedelta(seconds=100 - step)\n"
        "    print(f'{at:%Y-%m-%d %H:%M:%S} step: {step} loss: 0.5 lr: 0.1', flush=True)\n"
        "raise SystemExit(code)\n"
    )
    Path("train.py").write_text(script.replace("code", "1"))
    path = job_file(
        Path("job.yaml"),
        ("worker", 1),
        command=[sys.executable, "train.py"],
        restart={"maxRestarts": 0},
    )
    assert command("run", str(path), "--run-id", "one").code == 1
    (finding,) = command("logs", "metrics", "one", "--output", "json").json["findings"]
    assert (finding["kind"], finding["role"], finding["line"]) == ("hang", "worker", 60)
    Path("train.py").write_text(script.replace("code", "0"))
    assert command("run", str(path), "--run-id", "two").code == 0
    assert command("logs", "metrics", "two", "--output", "json").json["findings"] == []


@pytest.mark.e2e
def test_a_run_that_reports_nothing_has_progress_from_its_log(command, home):
    script = (
        "import time\n"
        "for step in range(1, 25):\n"
        "    print(f'step: {step}/24 loss: {1 / step:.4f} lr: 0.1', flush=True)\n"
        "    time.sleep(0.5)\n"
    )
    Path("train.py").write_text(script)
    path = job_file(Path("job.yaml"), ("worker", 1), command=[sys.executable, "train.py"])
    done = command("run", str(path), "--run-id", "one", "-o", "json")
    assert done.code == 0, done.stderr
    progress = done.json["instances"][0]["progress"]
    assert (progress["step"], progress["total_steps"]) == (24, 24)
    assert "loss 0.0417" in command("status", "one").stdout
    store = Store(f"sqlite:///{home / 'airflow_training.db'}")
    uid = store.find_run("one").uid
    assert [each.step for each in store.metrics.series(uid, name="loss")] == [*range(1, 25)]
    store.close()
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    mine = [line for line in left.splitlines() if "supervise.log_worker" in line]
    assert mine == [] or "PYTEST_XDIST_WORKER" in os.environ, "the worker ends with the run"


@pytest.mark.e2e
def test_samples_that_are_spread_unevenly_are_told(command, home):
    script = (
        "import json, os\n"
        "samples = 900 if os.environ['TRAINING_INDEX'] == '2' else 300\n"
        "with open(os.environ['TRAINING_PROGRESS_FILE'], 'a') as file:\n"
        "    file.write(json.dumps({'step': 1, 'samples': samples}) + '\\n')\n"
        "import time; time.sleep(2)\n"
    )
    Path("train.py").write_text(script)
    path = job_file(Path("job.yaml"), ("worker", 3), command=[sys.executable, "train.py"])
    assert command("run", str(path), "--run-id", "one").code == 0
    answer = command("logs", "metrics", "one", "--output", "json").json
    spread = answer["distributions"]["samples per instance of one"]
    assert (spread["total"], spread["median"], spread["fullest"]) == (1500, 300, "worker-2")
    (finding,) = answer["findings"]
    assert finding["kind"] == "imbalance"
    assert "worker-2 has 900" in finding["message"]
    assert "1500 over 3, from 300 to 900" in command("logs", "metrics", "one").stderr
