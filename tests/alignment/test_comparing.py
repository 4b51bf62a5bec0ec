"""What two recorded runs are found to be: equal only where something was compared, and nothing is missing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from airflow_training.alignment.comparing import compare_runs
from airflow_training.alignment.records import (
    RecordedRun,
    RecordKind,
    StepWriter,
    TensorRecord,
    describe_rank,
    read_run,
    read_step,
)
from airflow_training.alignment.report import AlignmentReport, report_document
from airflow_training.alignment.sketch import sketch_tensor
from airflow_training.errors import InputError, TrainingError
from airflow_training.execution import ExecutionPlan

pytestmark = pytest.mark.e2e

Tensors = dict[tuple[RecordKind, str], torch.Tensor]
SAME: Tensors = {
    ("output", "0"): torch.arange(24.0, dtype=torch.float64).reshape(3, 8),
    ("gradient", "w"): torch.ones(4, dtype=torch.float64),
    ("loss", "loss"): torch.tensor(1.0, dtype=torch.float64),
    ("parameter", "w"): torch.ones(4, dtype=torch.float64),
}


def record(folder: Path, plan: ExecutionPlan, *ranks: Tensors, step: int = 0) -> RecordedRun:
    for number, tensors in enumerate(ranks):
        records = [
            TensorRecord(
                kind=kind,
                name=operator,
                order=order,
                value=value,
                stage=number // (plan.dp * plan.tp),
            )
            for order, ((kind, operator), value) in enumerate(tensors.items(), 1)
        ]
        writer = StepWriter(folder, rank=number, step=step)
        for each in records:
            writer.add(each)
        writer.close()
    return RecordedRun(folder=folder, plan=plan, steps=(step,))


def planned(*, precision: str = "fp64", **split: int) -> ExecutionPlan:
    size = 8 // split.get("dp", 1)
    return ExecutionPlan(
        **{"global_batch": 8, "micro_batch": size, "precision": precision, **split}
    )


def compare(
    folder: Path, serial: Tensors, *ranks: Tensors, precision: str = "fp64"
) -> AlignmentReport:
    first = record(folder / "serial", planned(precision=precision), serial)
    plan = planned(dp=len(ranks), precision=precision)
    return compare_runs(first, record(folder / "split", plan, *ranks))


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


def halves() -> list[Tensors]:
    """Two replicas with the halves of a gradient, whose loss counts twice inside them."""
    whole = SAME["output", "0"]
    return [
        {
            ("output", "0"): half,
            ("output gradient", "0"): 2 * half,
            **{key: value for key, value in SAME.items() if key[0] != "output"},
        }
        for half in whole.split(4, dim=1)
    ]


def test_two_splits_are_compared_with_each_other(tmp_path: Path):
    whole = SAME["output", "0"]
    replicas = record(tmp_path / "dp", planned(dp=2), *halves())
    # the same as two tensor parallel ranks, each of which has all rows
    tensors = {**SAME, ("output gradient", "0"): whole}
    ranks = record(tmp_path / "tp", planned(tp=2), tensors, tensors)
    assert compare_runs(replicas, ranks).equal
    assert compare_runs(ranks, replicas).equal
    wrong = {**tensors, ("output", "0"): whole + torch.eye(3, 8, dtype=torch.float64)}
    other = record(tmp_path / "wrong", planned(tp=2), tensors, wrong)
    for pair in ((replicas, other), (other, replicas)):
        first = compare_runs(*pair).first
        assert first is not None
        assert (first.kind, first.operator, first.rank) == ("output", "0", 1)


def test_stages_are_compared_in_the_order_of_the_module(tmp_path: Path):
    first: Tensors = {("output", "0"): SAME["output", "0"], ("gradient", "w"): torch.ones(4)}
    second: Tensors = {("output", "1"): SAME["output", "0"] * 2, ("gradient", "v"): torch.ones(4)}
    rest: Tensors = {("loss", "loss"): torch.tensor(1.0), ("parameter", "w"): torch.ones(4)}
    serial = record(tmp_path / "serial", planned(), {**first, **second, **rest})
    plan = planned(pp=2)
    assert compare_runs(
        serial, record(tmp_path / "same", plan, {**first, **rest}, {**second, **rest})
    ).equal
    # the earlier stage computes it first, though it is the second of its rank
    first["output", "0"] = SAME["output", "0"] + 1
    second["output", "1"] = SAME["output", "0"] + 1
    found = compare_runs(
        serial, record(tmp_path / "other", plan, {**rest, **first}, {**second, **rest})
    )
    assert found.first is not None
    assert (found.first.operator, found.first.rank, found.first.stage) == ("0", 0, 0)
    assert {each.kind: each.diverged for each in found.kinds}["output"] == 2


def test_a_module_that_ends_in_a_later_stage_is_compared_there(tmp_path: Path):
    whole = SAME["output", "0"]
    states = torch.zeros(2, 3, dtype=torch.float64)
    rest: Tensors = {key: value for key, value in SAME.items() if key[0] != "output"}
    outputs: Tensors = {("output", "lstm[0]"): whole, ("output", "lstm[1]"): states + 1}
    serial = record(tmp_path / "serial", planned(), {**outputs, **rest})
    # a recurrent layer whose initial states the stage before makes, and hands on
    begun: Tensors = {("output", "lstm[0]"): states, ("output", "lstm[1]"): states, **rest}
    ended: Tensors = {("output", "lstm"): whole, **rest}
    same = record(tmp_path / "same", planned(pp=2), begun, ended)
    assert compare_runs(serial, same).equal
    assert compare_runs(same, serial).equal
    wrong = record(
        tmp_path / "wrong", planned(pp=2), begun, {**ended, ("output", "lstm"): whole + 1}
    )
    first = compare_runs(serial, wrong).first
    assert first is not None
    assert (first.operator, first.rank, first.stage) == ("lstm", 1, 1)


def test_runs_of_other_batches_or_steps_are_refused(tmp_path: Path):
    one = record(tmp_path / "one", planned(), SAME)
    later = record(tmp_path / "later", planned(), SAME, step=3)
    with pytest.raises(InputError, match="no step is in both"):
        compare_runs(one, later)
    large = ExecutionPlan(global_batch=16, micro_batch=8, precision="fp64")
    with pytest.raises(InputError, match="16"):
        compare_runs(one, record(tmp_path / "large", large, SAME))


def test_where_micro_batches_are_unlike_only_what_is_of_the_step_is_compared(tmp_path: Path):
    one = record(tmp_path / "one", planned(), SAME)
    plan = ExecutionPlan(global_batch=8, micro_batch=2, precision="fp64")
    rows = {**SAME, ("output", "0"): SAME["output", "0"][:1]}
    found = compare_runs(one, record(tmp_path / "small", plan, rows))
    assert found.equal
    assert "outputs are not compared" in found.notes[0]
    assert {each.kind: each.left_out for each in found.kinds}["output"] == 1


def test_a_run_is_read_where_all_ranks_wrote_a_step_whole(tmp_path: Path):
    strategy = {"global_batch": 8, "micro_batch": 4, "dp": 2, "precision": "fp64"}
    with pytest.raises(InputError, match=r"0\.json cannot be read"):
        read_run(tmp_path)
    for rank, steps in ((0, [0, 1]), (1, [0])):
        describe_rank(tmp_path, rank=rank, strategy=strategy, steps=steps, versions={"torch": "2"})
    found = read_run(tmp_path)
    assert (found.steps, found.plan.dp, found.versions) == ((0,), 2, {"torch": "2"})
    describe_rank(tmp_path, rank=1, strategy=strategy, steps=[], versions={})
    with pytest.raises(InputError, match="no step"):
        read_run(tmp_path)


def test_tensors_leave_memory_before_the_step_ends(tmp_path: Path):
    writer = StepWriter(tmp_path, rank=0, step=0, memory=1000)
    values = [torch.full((100,), float(number)) for number in range(10)]
    for number, value in enumerate(values):
        writer.add(TensorRecord(kind="output", name=str(number), order=number, value=value))
        assert len(list(tmp_path.iterdir())) == (number + 1) // 3
    writer.close()
    read = list(read_step(tmp_path, rank=0, step=0))
    assert [each.name for each in read] == [str(number) for number in range(10)]
    assert all(torch.equal(each.value, value) for each, value in zip(read, values, strict=True))


@pytest.mark.parametrize("size", [100, 256, 257, 100_000])
def test_a_sketch_differs_as_much_as_its_tensor(size: int):
    generator = torch.Generator().manual_seed(size)
    one = torch.randn(size, generator=generator, dtype=torch.float64)
    change = torch.zeros(size, dtype=torch.float64)
    change[:: max(1, size // 50)] = 1e-6
    apart = sketch_tensor(one + change, "w") - sketch_tensor(one, "w")
    assert sketch_tensor(one, "w").numel() <= 256
    assert float(apart.norm()) == pytest.approx(float(change.norm()), rel=0.5)


def test_steps_whose_gradients_overflow_in_fp16_are_no_alarm(tmp_path: Path):
    broken: Tensors = {**SAME, ("output gradient", "0"): torch.full((3, 8), math.nan)}
    del broken["gradient", "w"]
    plan, runs = planned(precision="fp16"), []
    for name in ("serial", "split"):
        record(tmp_path / name, plan, broken)
        record(tmp_path / name, plan, SAME, step=1)
        runs.append(RecordedRun(folder=tmp_path / name, plan=plan, steps=(0, 1)))
    found = compare_runs(*runs)
    assert found.equal
    assert any("overflow in steps 0" in each for each in found.notes)


@pytest.mark.parametrize("swapped", [False, True])
def test_an_overflow_of_one_run_alone_is_told_and_is_no_divergence(tmp_path: Path, swapped):
    broken = {key: value for key, value in SAME.items() if key[0] != "gradient"}
    runs = [
        record(tmp_path / "split", planned(precision="fp16"), broken),
        record(tmp_path / "serial", planned(precision="fp32"), SAME),
    ]
    with pytest.raises(TrainingError, match="overflow in fp16"):
        compare_runs(*(reversed(runs) if swapped else runs))


def test_a_file_that_is_cut_off_is_named(tmp_path: Path):
    run = record(tmp_path, planned(), SAME)
    (file,) = tmp_path.glob("0-0.*.pt")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=file.name):
        list(read_step(run.folder, rank=0, step=0))


def test_ranks_of_different_plans_are_no_run(tmp_path: Path):
    for rank, zero in enumerate((0, 1)):
        strategy = {"global_batch": 8, "micro_batch": 4, "dp": 2, "zero": zero}
        describe_rank(tmp_path, rank=rank, strategy=strategy, steps=[0], versions={})
    with pytest.raises(InputError, match="different plans"):
        read_run(tmp_path)
