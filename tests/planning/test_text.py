"""Numbers as people read them."""

from __future__ import annotations

import pytest

from airflow_training.planning.answers.text import seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0215, "21.5 ms"), (-0.229, "-229 ms"), (3.2e-6, "3.2 us"), (0.0, "0 s")],
)
def test_seconds_have_a_unit_that_fits(seconds: float, text: str):
    assert seconds_text(seconds) == text
