"""What two recorded runs are found to be: equal only where something was compared, and nothing is missing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from airflow_training.alignment.comparing import AlignmentReport, compare_runs, report_document
from airflow_training.alignment.records import RecordKind, TensorRecord, write_step
from airflow_training.errors import TrainingError
from airflow_training.execution import ExecutionPlan

pytestmark = pytest.mark.e2e

Tensors = dict[tuple[RecordKind, str], torch.Tensor]
SAME: Tensors = {
    ("output", "0"): torch.arange(24.0, dtype=torch.float64).reshape(3, 8),
    ("gradient", "w"): torch.ones(4, dtype=torch.float64),
    ("loss", "loss"): torch.tensor(1.0, dtype=torch.float64),
    ("parameter", "w"): torch.ones(4, dtype=torch.float64),
}


def compare(
    folder: Path, serial: Tensors, *ranks: Tensors, precision: str = "fp64"
) -> AlignmentReport:
    for name, number, tensors in [
        ("serial", 0, serial),
        *(("split", rank, each) for rank, each in enumerate(ranks)),
    ]:
        records = [
            TensorRecord(kind=kind, name=operator, order=order, sums=1, value=value)
            for order, ((kind, operator), value) in enumerate(tensors.items(), 1)
        ]
        write_step(folder / name, rank=number, step=0, records=records)
    plan = ExecutionPlan(global_batch=8, micro_batch=4, dp=len(ranks), precision=precision)
    return compare_runs(
        folder / "serial", folder / "split", plan=plan, steps=1, replicas=range(len(ranks))
    )


def parts(*outputs: torch.Tensor) -> list[Tensors]:
    return [{**SAME, ("output", "0"): each} for each in outputs]


def test_an_operator_that_no_rank_ran_is_a_difference(tmp_path: Path):
    first, second = parts(SAME["output", "0"][:, :4], SAME["output", "0"][:, 4:])
    del first["gradient", "w"], second["gradient", "w"]
    other: Tensors = {("gradient", "v"): SAME["gradient", "w"]}
    found = compare(tmp_path, {**SAME, **other}, {**first, **other}, {**second, **other})
    assert not found.equal
    assert found.first is not None
    assert (found.first.kind, found.first.operator) == ("gradient", "w")
    assert "no rank computed it" in found.first.origin
    document = json.dumps(report_document(found), allow_nan=False)
    assert json.loads(document)["first"]["difference"] is None


def test_where_nothing_was_compared_nothing_is_said_to_be_equal(tmp_path: Path):
    with pytest.raises(TrainingError, match="no gradient could be compared"):
        compare(tmp_path, {}, {}, {})


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5)])
def test_replicas_have_parts_along_any_dimension_and_of_any_size(tmp_path: Path, sizes):
    whole = SAME["output", "0"]
    assert compare(tmp_path, SAME, *parts(*whole.split(list(sizes), dim=1))).equal
    swapped = parts(*reversed(whole.split(list(sizes), dim=1)))
    assert not compare(tmp_path, SAME, *swapped).equal


def test_an_infinity_equals_itself_and_what_is_no_number_equals_nothing(tmp_path: Path):
    masked = SAME["output", "0"].clone()
    masked[0] = -math.inf
    assert compare(
        tmp_path, {**SAME, ("output", "0"): masked}, *parts(*masked.split(4, dim=1))
    ).equal
    unlike = masked.clone()
    unlike[1] = -math.inf
    assert not compare(
        tmp_path, {**SAME, ("output", "0"): masked}, *parts(*unlike.split(4, dim=1))
    ).equal
    masked[0] = math.nan
    found = compare(tmp_path, {**SAME, ("output", "0"): masked}, *parts(*masked.split(4, dim=1)))
    assert not found.equal
    assert math.isnan(found.kinds[0].largest)


def test_imaginary_parts_are_compared(tmp_path: Path):
    name: tuple[RecordKind, str] = ("parameter", "w")
    one = {**SAME, name: torch.ones(4, dtype=torch.complex128)}
    other = {**SAME, name: torch.ones(4, dtype=torch.complex128) + 0.1j}
    halves = [{**other, ("output", "0"): each} for each in SAME["output", "0"].split(4, dim=1)]
    found = compare(tmp_path, one, *halves)
    assert found.first is not None
    assert found.first.kind == "parameter"


@pytest.mark.parametrize("precision", ["fp64", "bf16"])
def test_numbers_whose_gradient_is_rounding_alone_are_left_out_one_by_one(tmp_path, precision):
    gradient = torch.tensor([1.0, 1.0, 1e-18, 1.0], dtype=torch.float64)
    moved = torch.tensor([1.0, 1.0, 1.3, 1.0], dtype=torch.float64)
    serial = {**SAME, ("gradient", "w"): gradient}
    halves = [
        {**serial, ("output", "0"): each, ("parameter", "w"): moved}
        for each in SAME["output", "0"].split(4, dim=1)
    ]
    assert compare(tmp_path, serial, *halves, precision=precision).equal
    for half in halves:
        half["parameter", "w"] = moved + torch.tensor([3.0, 0, 0, 0], dtype=torch.float64)
    assert not compare(tmp_path, serial, *halves, precision=precision).equal
