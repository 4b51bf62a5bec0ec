"""Which units a pipeline stage holds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from airflow_training.errors import InputError
from airflow_training.planning.view.stages import boundaries, even_layers, expanded, layer_span


@dataclass(frozen=True)
class Unit:
    """A unit that follows itself so many times."""

    repeat: int = 1


TRANSFORMER = [Unit(), Unit(repeat=70), Unit()]
UNEVEN = [Unit(), Unit(), Unit()]


@pytest.mark.parametrize(
    ("layers", "stages", "counts"),
    [
        pytest.param(8, 4, [2, 2, 2, 2], id="they-divide"),
        pytest.param(70, 12, [5, *[6] * 10, 5], id="embedding-and-head-count-as-layers"),
        pytest.param(7, 4, [2, 2, 2, 1], id="the-last-stage-has-fewest"),
        pytest.param(5, 1, [5], id="one-stage"),
    ],
)
def test_layers_spread_evenly(layers, stages, counts):
    """Stages with the head and the embedding get fewer layers where they do not divide."""
    assert list(even_layers(layers, stages)) == counts


def test_the_ends_stay_with_the_first_and_last_stage():
    """What comes before and after the repeated layers belongs to the stages at the ends."""
    assert layer_span(TRANSFORMER) == (1, 71)
    assert list(boundaries(TRANSFORMER, 2)) == [0, 36, 72]
    assert list(boundaries(TRANSFORMER, 2, [40, 30])) == [0, 41, 72]
    assert list(expanded(UNEVEN)) == [0, 1, 2]


def test_units_that_never_repeat_are_all_layers():
    """A traced network without equal layers is cut anywhere between its units."""
    assert layer_span(UNEVEN) == (0, 3)
    assert list(boundaries(UNEVEN, 3)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("stages", "stage_layers", "field", "says"),
    [
        pytest.param(71, None, "strategy.pp", "1 to 70", id="too-many-stages"),
        pytest.param(2, [30, 30], "strategy.stage_layers", "add up to 70", id="too-few-layers"),
        pytest.param(3, [35, 35], "strategy.stage_layers", "3 numbers", id="wrong-count"),
    ],
)
def test_layers_that_cannot_be_placed(stages, stage_layers, field, says):
    """The error names the field and what would work."""
    with pytest.raises(InputError, match=says) as caught:
        boundaries(TRANSFORMER, stages, stage_layers)
    assert caught.value.problems[0].field == field
