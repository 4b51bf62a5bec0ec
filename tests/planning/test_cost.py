"""What a step takes: properties that hold for any strategy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from airflow_training.errors import InputError
from airflow_training.planning.cost import estimate, evaluate
from airflow_training.planning.cost.constants import FROZEN
from airflow_training.planning.cost.roofline import gemm_seconds
from airflow_training.planning.cost.step import TIME_PARTS
from airflow_training.planning.cost.tables import as_table
from airflow_training.planning.view.catalogue import device, link, network
from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.strategy import Strategy, TransformerModel
from airflow_training.planning.view.transformer import computation
from tests.planning import networks

MODEL = TransformerModel(hidden=2048, layers=24, heads=16, seq=2048, vocab=51200)
VIEW = computation(MODEL)
PLAIN = Strategy(global_batch=64, micro_batch=2, tp=2, pp=4, dp=4, precision="bf16")


def nodes(name="a100", device_name="A100-SXM4-80GB", count=4, **more):
    """Return a group of nodes of eight devices."""
    usual = {
        "name": name,
        "count": count,
        "device": device(device_name),
        "devices_per_node": 8,
        "intra_node": link("nvlink3"),
        "nic": network(200),
        "nics_per_node": 8,
    }
    return NodeGroup(**{**usual, **more})


def cluster(*groups):
    """Return a cluster of the groups, or of four nodes of A100."""
    return ClusterView(name="test", groups=groups or (nodes(),))


def workload(strategy=PLAIN, **more):
    """Return training of the small model with the batch of a strategy."""
    usual = {"view": VIEW, "global_batch": strategy.global_batch, "precision": strategy.precision}
    return Workload(**{**usual, **more})


def seconds(strategy=PLAIN, where=None, view=VIEW):
    """Return the seconds of a step."""
    return estimate(workload(strategy, view=view), where or cluster(), strategy).step_seconds


VARIED = {
    "3d": PLAIN,
    "full-recompute": replace(PLAIN, recompute="full"),
    "sequence": replace(PLAIN, sequence_parallel=True, recompute="selective"),
    "interleaved": replace(PLAIN, virtual_stages=2, schedule="interleaved"),
    "zero-1": replace(PLAIN, tp=1, pp=1, dp=32, zero=1, overlap="dp"),
    "fsdp": replace(PLAIN, tp=1, pp=1, dp=32, zero=3, overlap="fsdp-prefetch"),
    "context": replace(PLAIN, cp=2, dp=2),
    "gpipe": replace(PLAIN, pp=2, dp=8, schedule="gpipe"),
}
EACH = pytest.mark.parametrize("strategy", VARIED.values(), ids=VARIED)


@EACH
def test_parts_add_up_to_the_step(strategy):
    """The breakdown of an estimate sums to its seconds, and no part is negative."""
    found = estimate(workload(strategy), cluster(), strategy)
    assert sum(part.value for part in found.time) == pytest.approx(found.step_seconds)
    assert [part.name for part in found.time] == list(TIME_PARTS)
    assert min(part.value for part in found.time) >= -1e-12
    assert found.p10 <= found.step_seconds <= found.p90


def test_a_table_costs_what_its_strategies_cost_alone():
    """Pricing strategies together changes nothing about any of them."""
    strategies = [each for name, each in VARIED.items() if name != "gpipe"]
    table = evaluate(workload(), cluster(), as_table(strategies))
    for row, strategy in enumerate(strategies):
        alone = estimate(workload(strategy), cluster(), strategy)
        assert table.step_seconds[row] == pytest.approx(alone.step_seconds, rel=1e-12)
        for part in alone.time:
            assert table.time_parts[part.name][row] == pytest.approx(part.value, abs=1e-12)


@EACH
@pytest.mark.parametrize(
    "better",
    [
        pytest.param({"nic": network(400)}, id="faster-nics"),
        pytest.param({"intra_node": replace(link("nvlink3"), bandwidth=6e11)}, id="faster-links"),
        pytest.param(
            {"device": replace(device("A100-SXM4-80GB"), memory_bandwidth=4e12)}, id="memory"
        ),
        pytest.param(
            {
                "device": replace(
                    device("A100-SXM4-80GB"),
                    peak_flops={"bf16": 6.24e14, "fp16": 6.24e14, "fp32": 3.9e13},
                )
            },
            id="arithmetic",
        ),
    ],
)
def test_better_hardware_is_never_slower(strategy, better):
    """More bandwidth or more arithmetic never lengthens a step."""
    assert seconds(strategy, cluster(nodes(**better))) <= seconds(strategy) * (1 + 1e-9)


def test_recomputing_more_takes_longer():
    """Full recompute costs more time than selective, and that more than none."""
    modes = [seconds(replace(PLAIN, recompute=mode)) for mode in ("none", "selective", "full")]
    assert modes == sorted(modes)
    assert modes[2] > 1.15 * modes[0]


def test_overlap_hides_gradient_exchange():
    """Reducing gradients beside the backward pass is quicker than after it."""
    wide = replace(PLAIN, tp=1, pp=1, dp=32)
    assert seconds(replace(wide, overlap="dp")) < seconds(wide)


def test_what_does_not_fit_beside_the_backward_pass_shows():
    """Overlap hides no more of the exchange than there is compute to hide it."""
    strategy = replace(PLAIN, global_batch=32, micro_batch=1, tp=1, pp=1, dp=32, overlap="dp")

    def exchange(gbit):
        view = cluster(nodes(nic=network(gbit), nics_per_node=1))
        found = estimate(workload(strategy), view, strategy)
        parts = {part.name: part.value for part in found.time}
        return parts["dp"], parts["compute"]

    slow, compute = exchange(10)
    quick, _ = exchange(800)
    assert quick < compute
    assert slow > 5 * compute


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_runtimes_use_the_network_as_they_were_seen_to(zero):
    """Where ranks share a node, DeepSpeed's exchange takes one NIC, others' all of them."""
    strategy = replace(PLAIN, tp=1, pp=1, dp=32, zero=zero)

    def exchange(runtime):
        found = estimate(workload(strategy, runtime=runtime), cluster(), strategy)
        return {part.name: part.value for part in found.time}["dp"]

    assert exchange("megatron-deepspeed") > 3 * exchange("megatron-lm")


def test_deepspeeds_pipeline_exchanges_fp16_gradients_in_float32():
    """They take twice the bytes of another of DeepSpeed's runtimes, and nearly twice the time."""
    strategy = replace(PLAIN, tp=1, pp=1, dp=32, precision="fp16")

    def exchange(runtime):
        found = estimate(workload(strategy, runtime=runtime), cluster(), strategy)
        return {part.name: part.value for part in found.time}["dp"]

    ratio = exchange("deepspeed-pipeline") / exchange("megatron-deepspeed")
    assert ratio == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("micro_batches", [8, 32])
@pytest.mark.parametrize(
    ("split", "crossings"), [({"tp": 8, "dp": 1}, 2), ({"tp": 4, "dp": 1}, 1), ({"pp": 2}, 0)]
)
def test_deepspeeds_pipeline_pays_for_each_tensor_that_leaves_a_node(
    micro_batches, split, crossings
):
    """A stage on nodes of its own waits twice for each micro-batch; on half a node it has one neighbour there."""
    strategy = replace(PLAIN, **{"tp": 2, "dp": 2, "pp": 4, **split})
    strategy = replace(strategy, global_batch=micro_batches * strategy.dp * strategy.micro_batch)
    each = FROZEN.runtime_handover_seconds["deepspeed-pipeline"]

    def waiting(runtime):
        found = estimate(workload(strategy, runtime=runtime), cluster(), strategy)
        return {part.name: part.value for part in found.time}["pp"]

    added = waiting("deepspeed-pipeline") - waiting("megatron-lm")
    assert added == pytest.approx(crossings * micro_batches * each, rel=0.01)


def test_gathering_parameters_costs_what_zero_saves_in_memory():
    """ZeRO 1 exchanges as much as ZeRO 0, ZeRO 3 gathers for every micro-batch."""

    def exchange(zero):
        wide = replace(PLAIN, tp=1, pp=1, dp=32, precision="fp16", micro_batch=1)
        strategy = replace(wide, zero=zero, global_batch=128)
        found = estimate(workload(strategy), cluster(), strategy)
        return {part.name: part.value for part in found.time}["dp"]

    assert exchange(1) == pytest.approx(exchange(0), rel=0.1)
    assert exchange(3) > 2 * exchange(1)


def test_more_micro_batches_shrink_the_bubble():
    """The share of the bubble falls as a step has more micro-batches."""

    def share(batch):
        strategy = replace(PLAIN, global_batch=batch)
        found = estimate(workload(strategy), cluster(), strategy)
        return {part.name: part.value for part in found.time}["bubble"] / found.step_seconds

    assert share(16) > share(64) > share(512)


def test_small_models_wait_for_the_host():
    """Where kernels are short, the time to launch them is what a step takes."""
    tiny = TransformerModel(hidden=256, layers=24, heads=4, seq=128, vocab=1000)
    alone = Strategy(global_batch=1, micro_batch=1)
    one = cluster(nodes(count=1))
    found = estimate(workload(alone, view=computation(tiny)), one, alone)
    parts = {part.name: part.value for part in found.time}
    assert parts["launch"] > parts["compute"]


def test_the_slowest_device_of_a_stage_sets_its_pace():
    """Stages on V100 beside stages on A100: layers moved to the A100 make the step shorter."""
    mixed = cluster(
        nodes(count=1), nodes("v100", "V100-SXM2-16GB", count=1, intra_node=link("nvlink2"))
    )
    half = Strategy(global_batch=32, micro_batch=1, pp=2, dp=8, precision="fp16")
    even = replace(half, stage_layers=(12, 12), stage_devices=("a100", "v100"))
    uneven = replace(even, stage_layers=(16, 8))
    assert seconds(uneven, mixed) < seconds(even, mixed)
    swapped = replace(uneven, stage_devices=("v100", "a100"))
    assert seconds(swapped, mixed) > seconds(uneven, mixed)


@pytest.mark.parametrize(
    ("stage_devices", "says"),
    [
        pytest.param(("a100", "v10"), "did you mean 'v100'", id="no-such-group"),
        pytest.param(("h100", "h100"), "no group called 'h100'", id="none-of-them"),
        pytest.param(("a100",), "2 names of groups", id="too-few"),
    ],
)
def test_stages_lie_on_groups_of_the_cluster(stage_devices, says):
    """A stage on a group that is not there gets an error that says what is."""
    mixed = cluster(nodes(count=1), nodes("v100", "V100-SXM2-16GB", count=1))
    strategy = Strategy(global_batch=32, pp=2, dp=8, stage_devices=stage_devices)
    with pytest.raises(InputError, match=says):
        seconds(strategy, mixed)


def test_a_cluster_of_one_group_has_no_other():
    """Where there is nothing to choose from, a wrong name is still wrong."""
    strategy = Strategy(global_batch=32, pp=2, dp=8, stage_devices=("a100", "v100"))
    with pytest.raises(InputError, match="no group called 'v100'"):
        seconds(strategy)


def test_devices_measured_slower_than_their_kind_take_longer():
    """A group at 80 % of its kind's speed computes at 80 % of it."""
    assert seconds(where=cluster(nodes(efficiency=0.8))) > 1.1 * seconds()


def test_unseen_hardware_has_a_wider_range():
    """What the constants were not fitted on is known less well."""
    known = estimate(workload(runtime="fsdp"), cluster(), PLAIN)
    other = estimate(workload(runtime="fsdp"), cluster(nodes(device_name="MI300X")), PLAIN)
    assert other.p90 / other.step_seconds > known.p90 / known.step_seconds


def test_products_fill_the_device_in_waves():
    """One tile more than a wave holds costs more than that tile's share; whole tiles are made."""
    sharp = replace(FROZEN, wave_quantisation=1.0)

    def time(m, n):
        one, rows, columns, depth = (np.array([float(size)]) for size in (1, m, n, 4096))
        found = gemm_seconds(one, rows, columns, depth, rate=2.7e14, units=108, constants=sharp)
        return float(found[0])

    assert time(128 * 108, 256 + 1) > 1.2 * time(128 * 108, 256)
    assert time(1000, 1024) == pytest.approx(time(1024, 1024))


def test_networks_that_nobody_described_are_priced():
    """A traced CNN and an MLP with uneven layers are cut into stages and priced like any view."""
    for view in (networks.cnn(64, 128, 256), networks.mlp(1024, 4096, 512, 8192, 1024, 16)):
        layers = sum(unit.repeat for unit in view.units)
        strategy = Strategy(global_batch=4096, micro_batch=64, pp=layers, dp=4)
        found = estimate(workload(strategy, view=view), cluster(), strategy)
        parts = {part.name: part.value for part in found.time}
        assert min(parts["compute"], parts["pp"], parts["bubble"]) > 0


def test_convolutions_run_on_tensor_cores():
    """Both passes of a convolution take the rate of a matrix product, not that of vector units."""
    view = networks.cnn(256, 512, side=64)
    alone = Strategy(global_batch=64, micro_batch=64)
    slow = replace(device("A100-SXM4-80GB"), peak_flops={"fp32": 1.95e13, "bf16": 1.95e13})
    quick = seconds(alone, cluster(nodes(count=1)), view=view)
    assert seconds(alone, cluster(nodes(count=1, device=slow)), view=view) > 3 * quick
