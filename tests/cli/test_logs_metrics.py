"""`logs metrics` on files and on a run of the local runtime."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, job_file
from tests.waiting import PATIENCE

LINES = [
    f"step: {step}  loss: {loss}  mfu: 10.0%  "
    for step, loss in [(1, "2.5"), (2, "nan"), (3, "1.5")]
]


@pytest.fixture
def logs(home) -> list[str]:
    Path("rank0.log").write_text("\n".join(LINES) + "\n")
    Path("rank1.log").write_text("\n".join(LINES[:2]) + "\n")
    return ["rank0.log", "rank1.log"]


def test_the_json_has_every_point_with_its_place(typed, logs):
    answer = typed("logs", "metrics", logs[0], "--output", "json")
    assert answer.code == 0
    assert set(answer.json) == {"series", "findings"}
    series = {each["metric"]: each for each in answer.json["series"]}
    assert set(series) == {"step", "loss", "mfu"}
    loss = series["loss"]
    assert (loss["role"], loss["index"], loss["rank"]) == (None, 0, 0)
    second, third = (sum(len(line) + 1 for line in LINES[:count]) for count in (1, 2))
    assert loss["points"] == [[1, 2.5, 0], [2, "NaN", second], [3, 1.5, third]]
    assert series["mfu"]["points"][0][1] == 0.1


def test_what_is_no_number_is_strict_json_and_a_finding(typed, logs):
    answer = typed("logs", "metrics", logs[0], "--output", "json")
    assert "NaN," not in answer.stdout.replace('"NaN"', "")
    assert "nan" in {finding["kind"] for finding in answer.json["findings"]}


def test_a_finding_says_where_it_is(typed, logs):
    said = typed("logs", "metrics", *logs).stderr
    assert re.search(r"loss is .*nan.* \(rank 0, step 2, rank0\.log:2\)", said), said
    assert re.search(r"loss is .*nan.* \(rank 1, step 2, rank1\.log:2\)", said), said


def test_the_table_tells_ranks_apart(typed, logs):
    answer = typed("logs", "metrics", *logs)
    head, *rows = answer.stdout.splitlines()
    assert head.split() == ["FILE", "RANK", "METRIC", "POINTS", "STEP", "LAST", "LEAST", "MOST"]
    assert ["rank0.log", "0", "loss", "3", "3", "1.5", "1.5", "2.5"] in [
        row.split() for row in rows
    ]
    assert ["rank1.log", "1", "loss", "2", "2", "nan", "2.5", "2.5"] in [
        row.split() for row in rows
    ]


def test_parquet_goes_to_stdout(home, logs):
    parquet = pytest.importorskip("pyarrow.parquet")
    with Path("out.parquet").open("wb") as out:
        words = ["logs", "metrics", *logs, "--output", "parquet"]
        subprocess.run([*COMMAND, *words], stdout=out, check=True, timeout=PATIENCE)
    table = parquet.read_table("out.parquet").to_pylist()
    rows = [row for row in table if row["metric"] == "loss" and row["rank"] == 0]
    assert (rows[0]["step"], rows[0]["line"], rows[0]["offset"]) == (1.0, 1, 0)
    assert rows[1]["value"] != rows[1]["value"]  # NaN, not null
    assert rows[0]["time"] is None


@pytest.mark.e2e
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture(typed, logs, suffix):
    answer = typed("logs", "metrics", *logs, "--plot", f"loss{suffix}")
    assert answer.code == 0
    assert Path(f"loss{suffix}").stat().st_size > 1000


@pytest.mark.e2e
def test_a_chart_shows_a_single_point_and_names_its_axes(typed, home):
    lines = [f"step: {step} loss: {1 / step:.3f} step time: 0.5 s" for step in range(1, 40)]
    Path("one.log").write_text("\n".join([*lines, "step: 39 accuracy: 0.91"]) + "\n")
    assert typed("logs", "metrics", "one.log", "--plot", "one.svg").code == 0
    drawn = Path("one.svg").read_text()
    names = set(re.findall(r"<!-- (.*?) -->", drawn))
    assert {"step", "loss", "accuracy", "step time (s)"} <= names
    lines = re.findall(r'\n   <g id="line2d_\d+">(.*?)\n   </g>', drawn, re.DOTALL)
    assert ["<use" in line for line in lines] == [False, True, False], "a marker for accuracy alone"


def test_a_picture_of_a_wrong_kind_is_refused(typed, logs):
    answer = typed("logs", "metrics", *logs, "--plot", "loss.txt")
    assert answer.code == 2
    assert ".png" in answer.stderr


def test_formats_of_the_user_are_read(typed, home):
    Path("own.log").write_text("round 3 of 9 scored 0.25 points\nround 4 of 9 scored 0.5 points\n")
    Path("own.yaml").write_text(
        "- name: rounds\n"
        "  line: 'round {step} of {total_steps} scored {score} points'\n"
        "  example: round 3 of 9 scored 0.25 points\n"
    )
    assert typed("logs", "metrics", "own.log", "--output", "json").json["series"] == []
    found = typed("logs", "metrics", "own.log", "--patterns", "own.yaml", "--output", "json").json[
        "series"
    ]
    assert {each["metric"]: [p[:2] for p in each["points"]] for each in found} == {
        "step": [[3, 3], [4, 4]],
        "total_steps": [[3, 9], [4, 9]],
        "score": [[3, 0.25], [4, 0.5]],
    }


def test_a_slow_format_is_refused_with_the_reason(typed, home, logs):
    Path("own.yaml").write_text("- {name: a, line: '{step}/{total_steps}', example: 1/2}\n")
    answer = typed("logs", "metrics", *logs, "--patterns", "own.yaml")
    assert answer.code == 2
    assert "patterns[0].line" in answer.stderr
    assert "would be slow" in answer.stderr


def test_a_file_that_is_not_there(typed, home):
    answer = typed("logs", "metrics", "none.log")
    assert answer.code == 2
    assert "none.log" in answer.stderr


@pytest.mark.e2e
def test_what_a_script_of_a_run_reports_is_told_beside_its_log(command, home):
    script = (
        'echo "[rank1]: step: 1  loss: 0.5  lr: 0.1"; echo "[rank0]: step: 1  loss: 0.7  lr: 0.1";'
        """ echo '{"step": 1, "metrics": {"peak_memory_bytes": 5}}' > "$TRAINING_PROGRESS_FILE";"""
        " sleep 1"
    )
    path = job_file(Path("job.yaml"), command=["sh", "-c", script])
    assert command("run", str(path), "--run-id", "one").code == 0
    series = command("logs", "metrics", "one", "--output", "json").json["series"]
    found = {(each["metric"], each["rank"]): each["points"][0] for each in series}
    assert found["loss", 1][:2] == [1, 0.5]
    assert found["loss", 0][:2] == [1, 0.7]
    assert found["peak_memory_bytes", 0] == [1, 5.0, None]


@pytest.mark.e2e
def test_the_formats_of_a_runs_job_are_known(command, home):
    rounds = {
        "name": "rounds",
        "line": "round {step} scored {score} points",
        "example": "round 1 scored 0.5 points",
    }
    path = job_file(
        Path("job.yaml"),
        command=["sh", "-c", "for s in 1 2 3; do echo round $s scored 0.$s points; done"],
        logs={"patterns": [rounds]},
    )
    assert command("run", str(path), "--run-id", "one").code == 0
    series = command("logs", "metrics", "one", "--output", "json").json["series"]
    score = next(each for each in series if each["metric"] == "score")
    assert [point[:2] for point in score["points"]] == [[1, 0.1], [2, 0.2], [3, 0.3]]


@pytest.mark.e2e
def test_a_run_of_the_local_runtime(command, home):
    script = 'for s in 1 2 3; do echo "step: $s  loss: 0.5  "; done'
    path = job_file(Path("job.yaml"), command=["sh", "-c", script])
    assert command("run", str(path), "--run-id", "one").code == 0
    series = command("logs", "metrics", "one", "--output", "json").json["series"]
    loss = next(each for each in series if each["metric"] == "loss")
    assert [point[:2] for point in loss["points"]] == [[1, 0.5], [2, 0.5], [3, 0.5]]
    assert loss["role"] == "worker"
