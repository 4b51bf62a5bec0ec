"""What a hint says: only words that are near, by the same rule wherever a name is wrong."""

from __future__ import annotations

import pytest

from airflow_training.documents.spelling import did_you_mean


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        pytest.param("tpp", ["tp", "pp", "dp"], "tp", id="one-letter-too-many"),
        pytest.param("ful", ["full", "none"], "full", id="one-left-out-of-a-short-word"),
        pytest.param("bf61", ["bf16", "fp32"], "bf16", id="two-swapped"),
        pytest.param("pmi", ["mpi", "jax"], "mpi", id="two-swapped-in-a-short-word"),
        pytest.param("mame", ["name", "namespace"], "name", id="another-letter"),
        pytest.param("metadat", ["metadata", "spec"], "metadata", id="the-end"),
        pytest.param("depends_on", ["dependsOn"], "dependsOn", id="case-and-hyphens"),
        pytest.param("LR", ["lr", "rl"], "lr", id="the-nearest-of-two"),
        pytest.param("backofLimt", ["backoffLimit", "replicas"], "backoffLimit", id="two-slips"),
        pytest.param("foo", ["for", "fro"], "", id="another-word"),
        pytest.param("gpu", ["cpu", "npu"], "", id="another-device"),
        pytest.param("x", ["xs", "y", ""], "", id="too-short-for-a-slip"),
        pytest.param("_xyz", ["_abc", "xa", "lr"], "", id="nothing-like-it"),
        pytest.param("replicas", ["template", "parallel", "resources"], "", id="some-letters-shared"),
        pytest.param("", ["a"], "", id="nothing"),
        pytest.param(7, ["7"], "", id="no-text"),
        pytest.param("a", [7, None], "", id="no-texts"),
    ],
)  # fmt: skip
def test_a_hint_names_a_near_word_only(typed, known, meant):
    assert did_you_mean(typed, known) == (f"did you mean '{meant}'?" if meant else "")


def test_long_names_cost_no_time():
    assert did_you_mean("a" * 250, ["b" * 250] * 10_000) == ""
