"""Bytes read of a checkpoint: against sets of elements that are counted one by one."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.planning.reshard.relayout import STATE_BYTES, relayout
from airflow_training.planning.view.lowering import split_parameters
from airflow_training.planning.view.program import Sharding
from airflow_training.planning.view.strategy import Strategy, TransformerModel
from airflow_training.planning.view.transformer import computation
from tests.examples import examples

LAYERS = 4
DENSE = computation(TransformerModel(hidden=8, layers=LAYERS, heads=4, seq=4, vocab=12))
LLAMA = computation(
    TransformerModel(
        hidden=8,
        layers=LAYERS,
        heads=4,
        seq=4,
        vocab=12,
        ffn=16,
        mlp="swiglu",
        tied_embeddings=False,
    )
)
EXPERTS = computation(
    TransformerModel(
        hidden=8,
        layers=LAYERS,
        heads=4,
        seq=4,
        vocab=12,
        experts=4,
        experts_per_token=2,
        expert_ffn=8,
    )
)


def owned(view, strategy):
    """Return for each device the elements whose states it holds, spelt out."""
    sharding = Sharding(tp=strategy.tp, ep=strategy.ep, sequence_parallel=strategy.tp > 1)
    stage_of = layer_stages(strategy)
    replicas = strategy.dp * strategy.cp
    devices: list[set[object]] = [set() for _ in range(strategy.devices)]
    for parameter in split_parameters(view, sharding):
        if parameter.units == ("layer",):
            copies = [(layer, {stage_of[layer]}) for layer in range(LAYERS)]
        else:
            ends = {"embedding": 0, "head": strategy.pp - 1}
            copies = [(0, {ends[unit] for unit in parameter.units})]
        for device in range(strategy.devices):
            stage, place = divmod(device, replicas * strategy.tp)
            replica, tp = divmod(place, strategy.tp)
            outer, ep = divmod(replica, strategy.ep)
            at = {"tp": (tp, strategy.tp), "ep": (ep, strategy.ep)}
            elements = part_of(parameter, at, strategy, outer, ep)
            for copy, stages in copies:
                if stage in stages:
                    devices[device] |= {(parameter.name, copy, element) for element in elements}
    return devices


def part_of(parameter, at, strategy, outer, ep):
    ranges = [range(size) for size in parameter.shape]
    used = set()
    for dim, axes in enumerate(parameter.dims):
        for axis in axes:
            ranges[dim] = slice_of(ranges[dim], *at[axis])
            used.add(axis)
    if strategy.zero:
        ranges[0] = slice_of(ranges[0], outer, strategy.dp * strategy.cp // strategy.ep)
        if "ep" not in used:
            ranges[0] = slice_of(ranges[0], ep, strategy.ep)
    return set(product(*ranges))


def slice_of(whole: range, index: int, parts: int) -> range:
    """Cut into parts as even as can be, bigger ones first."""
    share, more = divmod(len(whole), parts)
    begin = index * share + min(index, more)
    return whole[begin : begin + share + (index < more)]


def layer_stages(strategy: Strategy) -> list[int]:
    chunks = strategy.pp * strategy.virtual_stages
    return [layer * chunks // LAYERS % strategy.pp for layer in range(LAYERS)]


@st.composite
def strategies(draw, experts=False):
    pp = draw(st.sampled_from([1, 2, 4]))
    dp = draw(st.sampled_from([1, 2, 3, 4]))
    return Strategy(
        global_batch=64,
        pp=pp,
        dp=dp,
        tp=draw(st.sampled_from([1, 2, 4])),
        cp=draw(st.sampled_from([1, 2])),
        ep=draw(st.sampled_from([e for e in (1, 2, 4) if dp % e == 0])) if experts else 1,
        virtual_stages=draw(st.sampled_from([1, 2])) if 1 < pp < LAYERS else 1,
        zero=draw(st.sampled_from([0, 1, 3])),
    )


def counted(view, old, new):
    before, after = owned(view, old), owned(view, new)
    read = [len(part) for part in after]
    had = [before[i] if i < len(before) else set() for i in range(len(after))]
    moved = [len(part - own) for part, own in zip(after, had, strict=True)]
    return STATE_BYTES * sum(read), STATE_BYTES * sum(moved), STATE_BYTES * max(read)


def found(view, old, new):
    result = relayout(view, old, new)
    return result.read_bytes, result.moved_bytes, result.busiest_bytes


@settings(deadline=None, max_examples=examples(60))
@given(st.sampled_from([DENSE, LLAMA]), strategies(), strategies())
def test_bytes_are_those_counted_element_by_element(view, old, new):
    assert found(view, old, new) == counted(view, old, new)


@settings(deadline=None, max_examples=examples(30))
@given(strategies(experts=True), strategies(experts=True))
def test_experts_are_counted_too(old, new):
    assert found(EXPERTS, old, new) == counted(EXPERTS, old, new)


@settings(deadline=None, max_examples=examples(30))
@given(strategies())
def test_the_same_split_moves_nothing(strategy):
    assert relayout(DENSE, strategy, strategy).moved_bytes == 0
