"""Few passes find step, block and operator, whatever their number."""

from __future__ import annotations

from airflow_training.alignment.bisecting import Look, first_look, next_look
from airflow_training.alignment.report import AlignmentReport, Divergence


def report(step: int | None, kind: str = "output", operator: str = "layers.1") -> AlignmentReport:
    first = None
    if step is not None:
        first = Divergence(
            step=step,
            rank=0,
            kind=kind,
            operator=operator,
            order=1,
            micro_batch=0,
            difference=1.0,
            allowed=0.0,
            place="",
            origin="",
        )
    return AlignmentReport(equal=first is None, steps=1, ranks=2, kinds=(), first=first)


def after(look: Look | None, found: AlignmentReport, *recorded: str) -> Look | None:
    assert look is not None
    return next_look(look, found, steps=1000, recorded=recorded)


def test_three_passes_find_an_operator_among_a_thousand_steps():
    look = first_look(1000)
    assert (look.steps, look.detail) == (range(1000), "sketch")
    blocks = after(look, report(700, "gradient", "layers.1.up.weight"))
    assert blocks == Look(steps=(699, 700), blocks=True)
    inside = after(blocks, report(699))
    assert inside == Look(steps=(699,), inside=("layers.1",))
    assert after(inside, report(699, operator="layers.1.up")) is None


def test_a_gradient_inside_is_looked_for_in_what_reads_the_output():
    blocks = Look(steps=(3,), blocks=True)
    inside = after(blocks, report(3, "output gradient"), "layers.0", "layers.1", "layers.2")
    assert inside is not None
    assert inside.inside == ("layers.1", "layers.2")
    last = after(blocks, report(3, "output gradient", "head"), "layers.0", "head")
    assert last is not None
    assert last.inside == ("head",)


def test_the_first_step_has_none_before_it():
    blocks = after(first_look(1000), report(0))
    assert blocks is not None
    assert blocks.steps == (0,)


def test_a_parameter_needs_no_third_pass():
    assert after(Look(steps=(3,), blocks=True), report(3, "parameter", "w")) is None


def test_equal_sketches_are_followed_by_one_whole_step():
    look = after(first_look(1000), report(None))
    assert look == Look(steps=(999,), blocks=True)
    assert after(look, report(None)) is None


def test_a_sketch_that_was_wrong_costs_one_pass_and_no_verdict():
    assert after(Look(steps=(3, 4), blocks=True), report(None)) == Look(
        steps=range(5, 1000), detail="sketch"
    )
