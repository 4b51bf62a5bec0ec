"""What scripts predict, as the page gets it; and that hostile files of theirs are only not shown."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_training.settings import load_settings
from airflow_training.state.store import open_store
from airflow_training.web.prediction_files import step_of
from airflow_training.web.predictions import csv_rows, json_rows, table_of
from tests.state.samples import a_job
from tests.web.conftest import SOURCE, FakeRights, a_run
from tests.web.test_runs_api import get

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"


@pytest.fixture
def run(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(FakeRights, "standalone", True)
    return a_run()


@pytest.fixture
def folder(run: Any) -> Path:
    made: Path = load_settings().local_dir.absolute() / run.uid / "predictions" / "worker-0"
    made.mkdir(parents=True)
    return made


def path_of(run: Any, rest: str = "") -> str:
    return f"dags/digits/trainings/{run.uid}/predictions{rest}"


def table(client: Any, run: Any, name: str, **query: Any) -> Any:
    return get(client, path_of(run, "/table"), role="worker", index=0, name=name, **query)


def refused(client: Any, run: Any, name: str, what: str = "table", **query: Any) -> tuple[int, str]:
    asked = {"role": "worker", "index": 0, "name": name, **query}
    answer = client.get(f"/api/{path_of(run, '/' + what)}", params=asked)
    return answer.status_code, answer.json()["detail"]


def test_there_are_none_before_a_script_has_written_any(client, run):
    assert get(client, path_of(run)) == {"files": [], "more": False}


def test_files_are_listed_by_step_and_then_by_time(client, run, folder: Path):
    for number, name in enumerate(("old.png", "step-000009.csv", "step-000100.csv", "new.jsonl")):
        (folder / name).write_text("x")
        os.utime(folder / name, (1000 + number, 1000 + number))
    for name in ("a.html", ".step-1.csv.7.part"):
        (folder / name).write_text("x")
    (folder / "link.csv").symlink_to("/etc/passwd")
    (folder / "folder.csv").mkdir()
    found = get(client, path_of(run))["files"]
    assert [(each["name"], each["step"], each["kind"]) for each in found] == [
        ("step-000100.csv", 100, "table"),
        ("step-000009.csv", 9, "table"),
        ("new.jsonl", None, "table"),
        ("old.png", None, "picture"),
    ]
    assert (found[0]["role"], found[0]["index"], found[0]["bytes"]) == ("worker", 0, 1)
    assert get(client, path_of(run), limit=2)["more"] is True


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-000100.csv", 100),
        ("step_7.png", 7),
        ("confusion.step-12.png", 12),
        ("eval-step=3.jsonl", 3),
        ("footstep-3.csv", None),
        ("predictions.csv", None),
        ("step-9999999999999999999999.csv", None),
    ],
)
def test_a_name_tells_the_step(name, step):
    assert step_of(name) == step


def test_a_table_comes_in_pages(client, run, folder: Path):
    (folder / "a.csv").write_text("id,text\n" + "".join(f"{i},row {i}\n" for i in range(130)))
    first = table(client, run, "a.csv")
    assert (first["columns"], len(first["rows"]), first["rows_read"]) == (["id", "text"], 50, 130)
    assert table(client, run, "a.csv", offset=100)["rows"][-1] == ["129", "row 129"]
    assert (first["confusion"], first["histogram"], first["cut"]) == (None, None, False)


def test_labels_and_predictions_of_classes_are_a_confusion_matrix(client, run, folder: Path):
    rows = [{"label": a, "prediction": b} for a, b in [(0, 0), (0, 1), (1, 1), (10, 10), (2, 2.0)]]
    (folder / "step-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = table(client, run, "step-1.jsonl")["confusion"]
    assert found["classes"] == ["0", "1", "2", "10"]
    assert found["counts"] == [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert found["accuracy"] == pytest.approx(0.8)


def test_labels_and_predictions_of_amounts_are_a_histogram(client, run, folder: Path):
    (folder / "step-1.csv").write_text(
        "label,prediction\n" + "".join(f"{i / 10},{i / 10 + 0.5}\n" for i in range(100))
    )
    found = table(client, run, "step-1.csv")
    assert found["confusion"] is None
    told = found["histogram"]
    assert (len(told["edges"]), sum(told["predictions"]), sum(told["labels"])) == (31, 100, 100)
    assert told["mean_absolute_error"] == pytest.approx(0.5)
    assert (told["edges"][0], told["edges"][-1]) == (0, pytest.approx(10.4))


def test_scores_that_put_rows_in_order_have_no_distance_from_their_labels(
    client, run, folder: Path
):
    (folder / "step-1.csv").write_text(
        "query,label,prediction\n" + "".join(f"7,{i % 5},{i / 10 - 40}\n" for i in range(100))
    )
    told = table(client, run, "step-1.csv")["histogram"]
    assert (sum(told["labels"]), told["mean_absolute_error"]) == (100, None)


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        pytest.param([{"prediction": 0.5}], "histogram", id="no-label"),
        pytest.param([{"prediction": 3}], "histogram", id="one-value"),
        pytest.param([{"prediction": "cat"}], None, id="words-without-labels"),
        pytest.param([{"label": "cat", "prediction": "dog"}], "confusion", id="words"),
        pytest.param([{"label": i, "prediction": i} for i in range(31)], "histogram", id="many"),
        pytest.param(
            [{"label": 0.5, "prediction": p} for p in (0.25, math.nan, "NaN")],
            "histogram",
            id="amounts-nan",
        ),
        pytest.param([{"prediction": p} for p in ("007", "0012")], None, id="names"),
        pytest.param([{"label": math.nan, "prediction": math.nan}], "confusion", id="nan"),
        pytest.param([{"prediction": sign * 1e308} for sign in (-1, 1)], None, id="too-far-apart"),
        pytest.param([{"label": [1], "prediction": {"a": 1}}], "confusion", id="nested"),
        pytest.param([{"label": 1}], None, id="no-prediction"),
        pytest.param([{"Label": 1, "Prediction": 1}], None, id="other-names"),
    ],
)
def test_columns_say_what_is_shown(rows, shown):
    found = table_of(iter(rows), offset=0, limit=10, cut=False)
    assert (found.confusion is not None) is (shown == "confusion")
    assert (found.histogram is not None) is (shown == "histogram")
    found.model_dump_json()


def test_of_very_many_classes_the_most_frequent_are_shown():
    rows = [{"label": f"c{i}", "prediction": f"c{i}"} for i in range(100) for _ in range(i)]
    found = table_of(iter(rows), offset=0, limit=1, cut=False).confusion
    assert found is not None
    assert (len(found.classes), found.classes[-1], found.others) == (30, "others", True)
    assert sum(map(sum, found.counts)) == len(rows)
    assert found.accuracy == 1


def test_of_a_large_file_the_beginning_is_read(client, run, folder: Path):
    (folder / "big.csv").write_bytes(b"label,prediction\n" + b"1,1\n" * (16 << 20))
    found = table(client, run, "big.csv")
    assert found["cut"] is True
    assert found["rows_read"] < 1 << 20
    assert found["problem"] == ""


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", b"", ""),
        ("a.csv", b"\xff\xfe\x00\xd8" * 100, ""),
        ("a.csv", b'a,b\n"1,2\n', "line"),
        ("a.csv", b"a\n" + b"x" * 200_000, "line"),
        ("a.csv", b"\xef\xbb\xbflabel,prediction\n1,1\n", ""),
        ("a.csv", b",".join(b"c%d" % i for i in range(5000)) + b"\n1\n", ""),
        ("a.jsonl", b"", ""),
        ("a.jsonl", b"[1]\n", "line 1 is no JSON object"),
        ("a.jsonl", b'{"a": 1}\n{"a"', "line 2 is no JSON"),
        ("a.jsonl", b"[" * 100_000, "line 1 is no JSON"),
        ("a.jsonl", b'{"a": ' + b"9" * 5000 + b"}\n", "line 1 is no JSON"),
        ("a.jsonl", b'{"\\ud800": "\\ud800", "b": NaN, "label": "\\udfff", "prediction": 1}\n', ""),
        ("a.jsonl", b'{"' + b"x" * 100_000 + b'": 1}\n', ""),
    ],
)
def test_broken_tables_say_what_is_broken(client, run, folder: Path, name, content, problem):
    (folder / name).write_bytes(content)
    found = table(client, run, name)
    assert found["problem"].startswith(problem)
    assert bool(found["problem"]) is bool(problem)
    assert len(found["columns"]) <= 50
    assert all(len(cell or "") <= 200 for row in found["rows"] for cell in row)


@pytest.mark.parametrize(
    "name",
    [
        "none.csv",
        "../worker-0/a.csv",
        "..%2f..%2frun.json",
        "/etc/passwd",
        "link.csv",
        "pipe.csv",
        "folder.csv",
        ".hidden.csv",
        "a.csv\0.png",
        "a" * 199,
        "",
    ],
)
def test_no_name_leads_to_another_file(client, run, folder: Path, name):
    (folder / "link.csv").symlink_to("/etc/passwd")
    (folder / ".hidden.csv").write_text("a")
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "pipe.csv")
    for what in ("table", "picture"):
        code, detail = refused(client, run, name, what)
        assert (code, "Traceback" in detail) == (404, False)


@pytest.mark.parametrize("role", ["..", "", "nobody", "worker-0/..", "."])
def test_no_role_leads_to_another_folder(client, run, folder: Path, role):
    (folder / "a.csv").write_text("a\n1\n")
    assert refused(client, run, "a.csv", role=role)[0] == 404
    assert refused(client, run, "a.csv", index=7)[0] == 404


def test_a_folder_that_became_a_link_is_not_followed(client, run, folder: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.csv").write_text("token\n1\n")
    folder.rmdir()
    folder.symlink_to(secret)
    assert get(client, path_of(run))["files"] == []
    assert refused(client, run, "a.csv")[0] == 404
    folder.parent.rename(tmp_path / "moved")
    folder.parent.symlink_to(tmp_path / "moved")
    assert get(client, path_of(run))["files"] == []


def test_a_picture_is_a_picture_and_nothing_else(client, run, folder: Path):
    (folder / "step-1.png").write_bytes(PNG + b"x" * (1 << 20))
    answer = client.get(
        f"/api/{path_of(run, '/picture')}",
        params={"role": "worker", "index": 0, "name": "step-1.png"},
    )
    assert (answer.status_code, len(answer.content)) == (200, len(PNG) + (1 << 20))
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("content", [b"", b"<svg onload=alert(1)>", b"<html><script>"])
def test_what_only_calls_itself_a_picture_is_refused(client, run, folder: Path, content):
    (folder / "a.png").write_bytes(content)
    assert refused(client, run, "a.png", "picture") == (422, "name: a.png is no PNG")
    (folder / "a.csv").write_bytes(PNG)
    assert refused(client, run, "a.csv", "picture")[0] == 422
    assert refused(client, run, "a.png", "table") == (422, "name: it is a picture")


@pytest.mark.e2e
def test_parquet_is_read_where_pyarrow_is(client, run, folder: Path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 200_000
    pq.write_table(
        pa.table({"label": [i % 3 for i in range(rows)], "prediction": [0] * rows}),
        folder / "step-1.parquet",
    )
    found = table(client, run, "step-1.parquet")
    assert (found["columns"], found["rows"][1]) == (["label", "prediction"], ["1", "0"])
    assert found["cut"] is True
    assert found["confusion"]["accuracy"] == pytest.approx(1 / 3, abs=0.01)
    whole = (folder / "step-1.parquet").read_bytes()
    for broken in (b"", b"PAR1", whole[:-9], whole[:50] + b"\0" * 400 + whole[450:]):
        (folder / "broken.parquet").write_bytes(broken)
        code, detail = refused(client, run, "broken.parquet")
        assert (code, "Traceback" in detail) == (422, False), detail


@pytest.mark.e2e
def test_without_pyarrow_it_is_said_what_is_missing(
    client, run, folder: Path, monkeypatch, tmp_path
):
    (folder / "a.parquet").write_bytes(b"PAR1")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    code, detail = refused(client, run, "a.parquet")
    assert code == 501
    assert "pip install pyarrow" in detail


def stored(uri: str, *, run_id: str) -> Any:
    from airflow_training.documents.resolved import RunKey
    from tests.state.samples import a_ledger, worker

    return open_store().create_run(
        RunKey(source=SOURCE, dag_id="digits", run_id=run_id),
        a_job(output_uri=uri, runtime="kubernetes"),
        a_ledger(worker(0)),
        controller="here",
        queue=False,
    )


@pytest.fixture
def memory() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec")
    storage = fsspec.filesystem("memory")
    yield storage
    storage.rm("/bucket", recursive=True) if storage.exists("/bucket") else None


def test_predictions_in_object_storage_are_read_beside_the_output(client, memory):
    run = stored("memory://bucket/out", run_id="stored")
    root = f"/bucket/out.predictions/{run.uid}"
    assert get(client, path_of(run))["files"] == []
    memory.pipe(f"{root}/worker-0/step-3.csv", b"label,prediction\n1,1\n")
    memory.pipe(f"{root}/worker-0/deeper/step-4.csv", b"x")
    memory.pipe(f"{root}/other-0/step-5.csv", b"x")
    (found,) = get(client, path_of(run))["files"]
    assert (found["name"], found["step"], found["bytes"]) == ("step-3.csv", 3, 21)
    assert table(client, run, "step-3.csv")["rows"] == [["1", "1"]]
    assert refused(client, run, "none.csv")[0] == 404


@pytest.mark.parametrize(
    "uri",
    [
        "http://169.254.169.254/latest",
        "file:///etc",
        "/mnt/out",
        "simplecache::file:///etc",
        "s3::http://inside",
        "memory://bucket::file:///etc",
        "local:///etc",
        "github://a:b@/",
    ],
)
def test_addresses_that_are_no_object_storage_are_not_asked(client, uri):
    answer = client.get(f"/api/{path_of(stored(uri, run_id='r'))}")
    assert answer.status_code == 409
    assert "cannot be read from here" in answer.json()["detail"]


def test_in_airflow_the_files_of_this_machine_are_read_only_where_it_may(client, monkeypatch):
    run = a_run()
    assert client.get(f"/api/{path_of(run)}").status_code == 409
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")
    assert client.get(f"/api/{path_of(run)}").status_code == 200


def test_rows_of_both_formats_are_the_same():
    rows = [*csv_rows(b"a,b\n1,2\n", cut=False)]
    assert rows == [{"a": "1", "b": "2"}]
    assert [*json_rows(b'{"a": "1", "b": "2"}\n\n', cut=False)] == rows
    assert [*csv_rows(b"a,b\n1,2\n3,", cut=True)] == rows


def test_names_that_look_like_numbers_stay_as_they_are():
    rows = [
        ("007", "7"),
        ("02134", "1e5"),
        ("1_000", "9007199254740993"),
        (True, 12345678901234567890),
    ]
    table = [{"label": label, "prediction": prediction} for label, prediction in rows]
    found = table_of(iter(table), offset=0, limit=10, cut=False)
    assert found.rows == [
        ["007", "7"],
        ["02134", "1e5"],
        ["1_000", "9007199254740993"],
        ["true", "12345678901234567890"],
    ]
    assert found.confusion is not None
    assert found.confusion.accuracy == 0
    assert {*found.confusion.classes} == {text or "" for row in found.rows for text in row}


def test_predictions_that_are_no_numbers_are_told_beside_the_histogram():
    rows = [{"label": 0.5, "prediction": each} for each in (0.25, math.nan, "-inf", 0.75)]
    found = table_of(iter(rows), offset=0, limit=10, cut=False).histogram
    assert found is not None
    assert (sum(found.predictions), found.not_finite) == (2, 2)
