"""Peak memory of a device: by hand-made pieces whose sums anybody can check."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.errors import InputError
from airflow_training.planning.cost.memory import PARTS, TrainingSettings, memory, stage_memory
from airflow_training.planning.cost.memory_constants import FROZEN, MemoryConstants, RuntimeMemory
from airflow_training.planning.cost.model_states import BytesPerParameter
from airflow_training.planning.view.program import Parameters, Recompute
from airflow_training.planning.view.strategy import Overlap
from tests.planning.pieces import candidates, device, piece, program

EACH = BytesPerParameter(weights=2, gradients=4, optimizer=12)
EXACT = MemoryConstants(
    base_bytes=0.0,
    overhead=0.0,
    runtimes={
        "generic": RuntimeMemory(
            mixed={"fp16": EACH, "bf16": EACH}, overhead=None, bucket_bytes=0.0, source="made up"
        )
    },
)
"""Constants that add nothing to what the pieces say."""

MODEL = program(
    piece("embedding", elements=50.0, saved=0.0),
    piece("layer", repeat=8, elements=10.0, saved=100.0, boundary=7.0),
    piece("head", elements=50.0, saved=0.0, working=400.0, shared_with="embedding"),
)
FULL = get_args(Recompute).index("full")
PREFETCH = get_args(Overlap).index("fsdp-prefetch")


def parts_of(view=MODEL, *, global_batch=64, on=None, constants=EXACT, training=None, **strategy):
    training = training or TrainingSettings(global_batch=global_batch)
    found = memory(
        view, candidates(**strategy), training, device=on or device(), constants=constants
    )
    return {name: float(values[0]) for name, values in found.parts.items()}


def test_one_device_keeps_everything_once():
    parts = parts_of()
    parameters = 50 + 8 * 10
    assert parts["weights"] == 2 * parameters, "tied weights are there once"
    assert parts["gradients"] == 4 * parameters
    assert parts["optimizer"] == 12 * parameters
    assert parts["activations"] == 8 * 100
    assert parts["working"] == 400


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "optimizer"),
    [(0, 260, 520, 1560), (1, 260, 520, 390), (2, 260, 130, 390), (3, 65, 130, 390)],
)
def test_zero_parts_states_among_replicas(zero, weights, gradients, optimizer):
    parts = parts_of(dp=4, zero=zero)
    assert parts["weights"] == weights
    assert parts["gradients"] == gradients
    assert parts["optimizer"] == optimizer


def test_full_precision_keeps_no_second_copy_of_the_weights():
    parts = parts_of(training=TrainingSettings(global_batch=64, precision="fp32"))
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (520, 520, 1040)


def test_context_parallel_ranks_are_replicas_of_the_weights():
    assert parts_of(cp=4, zero=1)["optimizer"] == parts_of(dp=4, zero=1)["optimizer"]


def test_experts_have_fewer_replicas_than_dense_layers():
    expert = Parameters(elements=10.0, replicated_over=("dp", "cp"))
    layers = program(replace(piece("layer", repeat=8), parameters=(expert,)))
    assert parts_of(layers, dp=8, ep=4, zero=1)["optimizer"] == 12 * 8 * 10 / 2


def test_gradients_wait_in_buckets_where_there_are_replicas():
    bucketed = replace(EXACT.runtimes["generic"], bucket_bytes=100.0)
    constants = replace(EXACT, runtimes={"generic": bucketed})
    assert parts_of(constants=constants)["communication"] == 0
    assert parts_of(constants=constants, dp=2)["communication"] == 100


def test_recomputing_keeps_less_and_works_with_one_layer_more():
    kept = parts_of(recompute=FULL)
    assert kept["activations"] == 8 * 10
    assert kept["working"] == 400, "the head needs more than a layer that is computed again"
    layers = program(piece("layer", repeat=8, saved=100.0))
    assert parts_of(layers, recompute=FULL)["working"] == 90


def test_the_first_stage_keeps_the_most_micro_batches():
    parts = parts_of(pp=4)
    assert parts["activations"] == 2 * 100 * 4
    assert parts["weights"] == 2 * (50 + 2 * 10)
    assert parts["communication"] == 2 * 7, "one tensor comes in, one goes out"


def test_few_micro_batches_fill_fewer_places():
    layers = program(piece("layer", repeat=8, saved=100.0))
    assert parts_of(layers, pp=4, global_batch=2)["activations"] == 2 * 100 * 2


def test_gpipe_keeps_all_micro_batches():
    parts = parts_of(pp=4, training=TrainingSettings(global_batch=64, schedule="gpipe"))
    assert parts["activations"] == 2 * 100 * 64


def test_logits_can_make_the_last_stage_the_fullest():
    head = piece("head", elements=50.0, saved=0.0, working=1e6, shared_with="embedding")
    parts = parts_of(replace(MODEL, pieces=(*MODEL.pieces[:2], head)), pp=4)
    assert parts["working"] == 1e6
    assert parts["weights"] == 2 * (50 + 2 * 10), "tied weights are on both ends"


def test_fsdp_gathers_the_unit_that_runs_and_the_next():
    layers = program(piece("layer", repeat=8, elements=100.0))
    gathered = 2 * 100 + 2 * 100  # weights and gradients, as the passes use them
    assert parts_of(layers, dp=8, zero=3)["gathered"] == gathered
    assert parts_of(layers, dp=8, zero=3, overlap=PREFETCH)["gathered"] == 2 * gathered
    assert parts_of(layers, dp=8, zero=2)["gathered"] == 2 * 100
    assert parts_of(layers, dp=8, zero=1)["gathered"] == 0


def test_each_stage_can_be_told_apart():
    found = stage_memory(
        MODEL,
        candidates(pp=2),
        TrainingSettings(global_batch=64),
        devices=[device(), device()],
        stage_layers=[6, 2],
        constants=EXACT,
    )
    assert list(found) == list(PARTS)
    assert found["activations"][:, 0].tolist() == [6 * 100 * 2, 2 * 100]
    assert found["weights"][:, 0].tolist() == [2 * (50 + 60), 2 * (50 + 20)]


def test_more_stages_than_layers_are_refused():
    with pytest.raises(InputError, match="8 layers"):
        parts_of(pp=9)


def test_what_the_allocator_wastes_is_a_share_of_what_is_used():
    wasteful = replace(EXACT, overhead=0.5)
    own = {"generic": replace(EXACT.runtimes["generic"], overhead=0.25)}
    used = sum(parts_of().values())
    assert parts_of(constants=wasteful)["overhead"] == pytest.approx(0.5 * used)
    assert parts_of(constants=replace(wasteful, runtimes=own))["overhead"] == pytest.approx(
        0.25 * used
    )


def test_a_device_can_say_what_a_process_takes_on_it():
    based = replace(EXACT, base_bytes=100.0)
    assert parts_of(constants=based)["runtime"] == 100
    assert parts_of(constants=based, on=device(context_bytes=7.0))["runtime"] == 7


def test_an_unknown_runtime_is_taken_for_a_generic_one():
    generic, unknown = (
        parts_of(training=TrainingSettings(global_batch=64, runtime=name), constants=FROZEN)
        for name in ("generic", "home-made")
    )
    assert unknown == generic


ROWS = st.fixed_dictionaries(
    {
        "pp": st.sampled_from([1, 2, 4, 8]),
        "dp": st.sampled_from([1, 2, 8]),
        "cp": st.sampled_from([1, 2]),
        "zero": st.integers(0, 3),
        "recompute": st.integers(0, 2),
        "overlap": st.integers(0, 3),
        "virtual_stages": st.integers(1, 2),
        "micro_batch": st.sampled_from([1, 2]),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=6))
@settings(deadline=None)
def test_a_table_is_priced_like_its_rows_and_its_parts_add_up(rows):
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    training = TrainingSettings(global_batch=64)
    table = memory(MODEL, candidates(**columns), training, device=device(5e3))
    for index, row in enumerate(rows):
        alone = memory(MODEL, candidates(**row), training, device=device(5e3))
        assert table.peak_bytes[index] == pytest.approx(alone.peak_bytes[0])
    np.testing.assert_allclose(sum(table.parts.values()), table.peak_bytes)


@given(ROWS)
@settings(deadline=None)
def test_the_peak_is_that_of_the_fullest_stage(row):
    training = TrainingSettings(global_batch=64)
    peak = memory(MODEL, candidates(**row), training, device=device(5e3)).peak_bytes[0]
    stages = stage_memory(MODEL, candidates(**row), training, devices=[device(5e3)] * row["pp"])
    assert peak == pytest.approx(np.max(sum(stages.values())))


@given(ROWS, st.sampled_from(["zero", "recompute"]))
@settings(deadline=None)
def test_what_saves_memory_keeps_no_more(row, what):
    more = {"zero": 3, "recompute": FULL}[what]
    training = TrainingSettings(global_batch=64)
    stages = [
        stage_memory(MODEL, candidates(**each), training, devices=[device(1e9)] * row["pp"])
        for each in (row, {**row, what: more})
    ]
    for name in ("weights", "gradients", "optimizer", "activations"):
        assert np.all(stages[1][name] <= stages[0][name])
