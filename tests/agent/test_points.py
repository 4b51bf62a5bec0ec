"""Every value of every metric that a script reports, however fast: what one look tells of them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent import reporter
from airflow_training.agent.order import Order
from airflow_training.agent.progress_tail import MOST_POINTS, NewestProgress, merge_points
from airflow_training.runtimes.progress import progress_of

START = 1_700_000_000.0
NAN = math.nan


def line(step: Any, at: float | None, **metrics: Any) -> str:
    timed = {} if at is None else {"time": at}
    return json.dumps({"step": step, **timed, "metrics": metrics}) + "\n"


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(lines)


def test_a_look_tells_every_line_since_the_look_before(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    append(path, *(line(i, START + i, loss=float(i)) for i in range(3)))
    newest = NewestProgress(path)
    first = newest.poll()
    assert first["points"] == {"loss": [[i, START + i, float(i)] for i in range(3)]}
    assert newest.poll() is first, "nothing new: the same is told"
    append(path, line(3, START + 3, loss=3.0, acc=1), '{"section": "eval"}\n')
    second = newest.poll()
    assert second["points"] == {"loss": [[3, START + 3, 3.0]], "acc": [[3, START + 3, 1]]}
    append(path, '{"section": null}\n')
    assert "points" not in newest.poll()


def test_lines_of_one_time_or_of_none_are_points_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    newest = NewestProgress(path)
    newest.poll()
    append(path, *(line(i, 1_700_000_000, loss=float(i)) for i in range(50)))
    append(path, *(line(i, None, loss=float(i)) for i in range(50)))
    points = newest.poll()["points"]["loss"]
    assert [value for _, _, value in points] == [*range(50), *range(50)]
    assert len({at for _, at, _ in points}) == 100


def test_old_lines_without_a_time_are_not_told_anew(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    append(path, line(1, None, loss=1.0), line(2, START, loss=2.0))
    assert NewestProgress(path).poll()["points"] == {"loss": [[2, START, 2.0]]}


@pytest.mark.parametrize("spike", [1e9, -1e9, math.inf, NAN])
def test_no_spike_is_lost_in_many_lines(tmp_path: Path, spike: float) -> None:
    path = tmp_path / "progress.jsonl"
    chance = random.Random(7)
    values = [chance.random() for _ in range(2000)]
    values[chance.randrange(2000)] = spike
    append(path, *(line(i, START + i, loss=value) for i, value in enumerate(values)))
    points = NewestProgress(path).poll()["points"]["loss"]
    assert len(points) <= MOST_POINTS * 5 / 4
    assert [point[:2] for point in (points[0], points[-1])] == [[0, START], [1999, START + 1999]]
    assert points == sorted(points, key=lambda point: point[1])
    assert str(spike) in {str(value) for _, _, value in points}


def test_points_merged_again_and_again_stay_few_and_keep_every_extreme() -> None:
    merged: dict[str, list[Any]] = {}
    for look in range(100):
        values = [100.0 if look == 3 and i == 5 else 1.0 + i / 100 for i in range(60)]
        fresh = [[i, START + look * 60 + i, value] for i, value in enumerate(values)]
        merged = merge_points(merged, {"loss": fresh})
    assert len(merged["loss"]) <= MOST_POINTS
    assert [5, START + 3 * 60 + 5, 100.0] in merged["loss"]


@pytest.mark.parametrize(
    "points",
    [
        3,
        "loss",
        [[1, 2.0, 3.0]],
        {"loss": 3},
        {"loss": [3, None, [], [1, 2.0], [1, 2.0, 3.0, 4.0]]},
        {"loss": [[1, None, 1.0], [1, NAN, 1.0], [1, math.inf, 1.0], [1, 1 << 63, 1.0]]},
        {"loss": [[1, True, 1.0], [1, 2.0, True], [1, 2.0, "3"], [1, 2.0, 10**400]]},
    ],
)
def test_points_that_make_no_sense_are_left_out(points: Any) -> None:
    found = progress_of({"step": 1, "points": points})
    assert found is not None
    assert found.points == {}


def test_points_are_read_as_numbers_and_only_so_many() -> None:
    odd = [["x", 1, 2], [True, 2.0, 3.0], [1.0, 3.0, NAN], [1 << 63, 4.0, 5.0]]
    found = progress_of({"points": {"loss": odd}})
    assert found is not None
    assert [each[:2] for each in found.points["loss"]] == [
        (None, 1.0),
        (None, 2.0),
        (1, 3.0),
        (None, 4.0),
    ]
    many = {f"m{i}": [[j, float(j), 1.0] for j in range(1000)] for i in range(1000)}
    found = progress_of({"points": many})
    assert found is not None
    assert sum(len(each) for each in found.points.values()) == 1 << 13


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any] | None]:
    """Return what is posted; None in front: the next ones are refused."""
    taken: list[dict[str, Any] | None] = []

    def post(url: str, document: bytes, token: str) -> None:
        assert len(document) <= 1 << 16
        if url == "refused":
            raise OSError(url)
        taken.append(json.loads(document)["progress"])

    monkeypatch.setattr(reporter, "_post", post)
    return taken


def a_reporter(path: Path, **order: str) -> reporter.Reporter:
    fields: dict[str, Any] = {
        "progress_file": str(path),
        "progress_url": "",
        "progress_uri": "",
        **order,
    }
    return reporter.Reporter(
        Order(**fields),
        "",
        0,
        [],
        {},
        root=1,
        say=lambda _: None,
    )


def tell(each: reporter.Reporter) -> bool:
    return each._report({"progress": each._poll(), "environment": "{}"})


def test_points_wait_until_a_report_is_answered(tmp_path: Path, posted: list[Any]) -> None:
    path = tmp_path / "progress.jsonl"
    each = a_reporter(path, progress_url="refused")
    append(path, line(1, START, loss=9.0))
    assert not tell(each)
    append(path, line(2, START + 1, loss=1.0))
    assert not tell(each)
    each._url = "taken"
    assert tell(each)
    assert tell(each)
    assert posted[0]["points"] == {"loss": [[1, START, 9.0], [2, START + 1, 1.0]]}
    assert "points" not in posted[1], "nothing is told twice"
    assert posted[1]["step"] == 2


def test_a_report_has_room_for_the_points_of_many_metrics(
    tmp_path: Path, posted: list[Any]
) -> None:
    path = tmp_path / "progress.jsonl"
    each = a_reporter(path, progress_url="taken")
    names = [f"a metric of a long name, one of many: {i}" for i in range(40)]
    for step in range(60):
        spikes = dict.fromkeys(names, 1000000000.0 if step == 37 else math.pi * step)
        append(path, line(step, START + step / 7, **spikes))
    assert tell(each)
    assert {name for name in names if 1e9 in [p[2] for p in posted[0]["points"][name]]} == {*names}


def test_what_lies_in_storage_is_told_twice(tmp_path: Path) -> None:
    """It is read every 15 seconds and written every ten."""
    path, target = tmp_path / "progress.jsonl", tmp_path / "worker-0.json"
    each = a_reporter(path, progress_uri=f"file://{target}")
    told = []
    for step in range(4):
        append(path, line(step, START + step, loss=0.5))
        assert tell(each)
        points = json.loads(target.read_text())["progress"]["points"]["loss"]
        told.append([point[0] for point in points])
    assert told == [[0], [0, 1], [1, 2], [2, 3]]


def test_software_is_told_until_a_report_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    each = a_reporter(tmp_path / "progress.jsonl", progress_url="taken")
    each._recorder._software.line = '{"on": "software"}'
    monkeypatch.setattr(reporter, "_post", lambda *_: 1 / 0)
    assert not each._report(each._news_of_software() | {"progress": {}})
    monkeypatch.setattr(
        reporter, "_post", lambda _, document, __: taken.append(json.loads(document))
    )
    for _ in range(2):
        assert each._report(each._news_of_software() | {"progress": {}})
    assert [said.get("software") for said in taken] == ['{"on": "software"}', None]
