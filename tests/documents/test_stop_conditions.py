"""Conditions under which a training has done enough: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.stop_conditions import StopComparison, parse_condition
from airflow_training.errors import InputError


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("loss < 0.1", [[("loss", "<", 0.1, None)]]),
        ("epoch>=20", [[("epoch", ">=", 20.0, None)]]),
        ("val/loss == -1e-3", [[("val/loss", "==", -0.001, None)]]),
        ("mean( loss ) <= .5", [[("loss", "<=", 0.5, "mean")]]),
        (
            "loss < 0.1 and step > 10 or max(f1) != 3",
            [[("loss", "<", 0.1, None), ("step", ">", 10.0, None)], [("f1", "!=", 3.0, "max")]],
        ),
        ("order < 1 and brand > 2", [[("order", "<", 1.0, None), ("brand", ">", 2.0, None)]]),
    ],
)
def test_a_condition_is_read(text, groups):
    expected = tuple(
        tuple(
            StopComparison(metric=metric, operator=operator, number=number, over=over)
            for metric, operator, number, over in group
        )
        for group in groups
    )
    assert parse_condition(text).any_of == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss",
        "loss <",
        "0.1 > loss",
        "loss < accuracy",
        "loss = 0.1",
        "(loss < 0.1)",
        "loss < 0.1 and",
        "sum(loss) < 1",
        "loss < 1 + 1",
        "__import__('os').system('true') < 1",
        "x" * 2000,
    ],
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError, match=r"comparison|longer"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loss < 0.3 && epoch > 2", "; && is written and"),
        ("loss < 0.3 || epoch > 2", "; || is written or"),
        ("loss < 0.3 AND epoch > 2", "; AND is written and"),
        ("loss =< 0.3", "; =< is written <="),
        ("loss => 0.3", "; => is written >="),
        ("loss = 0.3", "; = is written =="),
        ("loss < 1 and acc ≥ 0.9", "; ≥ is written >="),
        ("avg(loss) < 0.3", "; avg( is written mean("),
        ("loss below 0.3", "; below is written <"),
        ("acc > 90%", "; 90% is written a part of 1, as 0.9"),
        ("loss < 0.3, step > 3", "; , is written and"),
        ("loss <> 0.3 & epoch > 2", "; & is written and; <> is written !="),
    ],
)
def test_what_other_languages_write_is_told_as_it_is_written_here(text, said):
    with pytest.raises(ValueError, match="is no comparison") as caught:
        parse_condition(text)
    assert str(caught.value).endswith(f"'mean(accuracy) >= 0.9'{said}")


def job(**stop: object) -> TrainingJob:
    spec: Any = {"framework": "custom", "command": ["true"], "roles": [{"name": "a"}], "stop": stop}
    metadata: Any = {"name": "a"}
    return TrainingJob(metadata=metadata, spec=spec)


def test_a_job_has_one():
    assert job(until="loss < 0.1", rank="mean").spec.stop.over == "mean"


def test_a_mistake_in_a_job_names_its_field():
    with pytest.raises(InputError, match=r"spec\.stop\.until: 'loss' is no comparison"):
        job(until="loss")
