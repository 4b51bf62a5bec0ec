"""`plan estimate`: rows in, answers out."""

from __future__ import annotations

import copy
import json
from importlib.resources import files

import pytest

from airflow_training.planning.answers.estimating import answer, answers

ROWS = json.loads(
    files("airflow_training.planning").joinpath("data/calibration.json").read_text("utf-8")
)["rows"]
ROW = ROWS[0]


def changed(**strategy):
    return {**ROW, "strategy": {**ROW["strategy"], **strategy}}


def test_an_answer_has_what_the_readme_names():
    found = answer(ROW)
    assert list(found) == [
        "id",
        "step_time_s",
        "p10",
        "p90",
        "peak_memory_bytes",
        "fits",
        "breakdown",
    ]
    assert found["id"] == ROW["id"]
    assert 0 < found["p10"] <= found["step_time_s"] <= found["p90"]
    assert found["fits"] is True
    json.dumps(found)


def test_a_breakdown_adds_up():
    found = answer(ROW)
    for whole, name in (("step_time_s", "time_s"), ("peak_memory_bytes", "memory_bytes")):
        parts = found["breakdown"][name]
        assert sum(part["value"] for part in parts) == pytest.approx(found[whole])
        assert {part["origin"] for part in parts} <= {"static", "measured"}


def test_what_was_measured_is_not_read():
    with_nothing = {key: value for key, value in ROW.items() if key != "measured"}
    with_nonsense = {**ROW, "measured": {"step_time_s": 1e9, "oom": True}}
    assert answer(with_nothing) == answer(with_nonsense) == answer(ROW)


def test_unknown_keys_are_ignored():
    strange = copy.deepcopy(ROW)
    for part in (strange, strange["model"], strange["cluster"], strange["strategy"]):
        part["colour"] = "green"
    strange["cluster"]["nodes"][0]["colour"] = "green"
    assert answer(strange) == answer(ROW)


def test_a_bad_row_is_answered_with_its_mistakes_and_the_others_all_the_same():
    bad = changed(zero=7, recompute="ful")
    before, wrong, after = answers([ROW, bad, ROW])
    assert before == after == answer(ROW)
    assert set(wrong) == {"id", "error"}
    assert wrong["id"] == ROW["id"]
    assert "strategy.zero" in wrong["error"]
    assert "did you mean 'full'?" in wrong["error"]


LARGER = {**ROW["cluster"], "nodes": [{**ROW["cluster"]["nodes"][0], "count": 8}]}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (changed(dp=64), "takes 256 devices, the cluster has 8"),
        (
            {**changed(pp=64, tp=1, dp=1), "cluster": LARGER},
            "64 stages are more than the 12 layers",
        ),
        (changed(stage_devices=["8xA100", "nodes"]), "has no group of nodes called '8xA100'"),
        (7, "must be a mapping"),
        ({"id": "alone"}, "model: is required"),
    ],
)
def test_rows_that_cannot_be_say_why(document, said):
    (found,) = answers([document])
    assert said in found["error"]
