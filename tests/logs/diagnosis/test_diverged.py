"""A loss that becomes NaN or infinite and stays so is why a run is lost, however it ended."""

from __future__ import annotations

import pytest

from airflow_training.logs.model import InstanceFact
from tests.logs.diagnosis.asking import ask


def losses(*values: str, more: str = "") -> str:
    return "".join(f"step {10 * n}: loss {v}{more}\n" for n, v in enumerate(values, start=1))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("", id="cut-off"),
        pytest.param("Training complete\n", id="went-well"),
        pytest.param(
            'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\n'
            "ValueError: cannot convert float NaN to integer\n",
            id="exception",
        ),
    ],
)
@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_the_first_bad_step_proves_it(bad, end):
    found = ask(losses("2.5", "2.4", bad, bad, "nan") + end)
    assert not found.healthy
    root = found.causes[0]
    assert (root.id, root.retryable, root.line) == ("nan-loss", "no", 3)
    assert "step 30" in root.evidence


def test_exit_code_0_does_not_make_it_well():
    found = ask(losses("2.5", "nan", "nan", "nan"), [InstanceFact(role="", index=0, exit_code=0)])
    assert [each.id for each in found.causes] == ["nan-loss"]


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(losses("2.5", "nan", "2.4", "2.3"), id="once"),
        pytest.param(losses("2.5", "2.4", "2.3", more=" grad_norm nan"), id="gradients-alone"),
        pytest.param(losses("2.5", "2.4", "2.3", more=" val_loss nan"), id="no-validation-samples"),
        pytest.param(losses("2.5", "2.4", "2.3", more=" ep_rew_mean nan"), id="no-episode"),
    ],
)
def test_others_are_no_failure(log):
    assert ask(log).healthy


def test_a_loss_scale_that_reached_its_end_goes_before():
    log = losses("2.5", "nan", "nan") + (
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.\n"
    )
    assert ask(log).causes[0].id == "loss-scale-underflow"
