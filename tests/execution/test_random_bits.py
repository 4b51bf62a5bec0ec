"""Random numbers that follow from a key and places: alike for parts of a batch, and spread as random ones are."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from airflow_training.execution.position_streams import PositionStreams, drawing_modules, draws
from airflow_training.execution.random_bits import draw_by_position

aten = torch.ops.aten


def drawn(operator, *args, key=1, positions=range(8)):
    return draw_by_position(operator, key, positions, args, {})


def test_a_part_of_a_batch_draws_what_the_whole_does():
    whole = drawn(aten.rand_like.default, torch.empty(8, 3, 5))
    part = drawn(aten.rand_like.default, torch.empty(3, 3, 5), positions=range(2, 5))
    assert torch.equal(part, whole[2:5])
    flat = drawn(aten.rand_like.default, torch.empty(24, 5))  # three rows for each sample
    assert torch.equal(flat.view(8, 3, 5), whole)


def test_numbers_are_spread_evenly_and_normally():
    many = torch.empty(8, 50_000, dtype=torch.float64)
    even, normal = (drawn(each, many) for each in (aten.rand_like.default, aten.randn_like.default))
    assert 0 <= even.min() < even.max() < 1
    assert float(even.mean()) == pytest.approx(0.5, abs=2e-3)
    assert float(even.var()) == pytest.approx(1 / 12, rel=1e-2)
    counts = torch.histc(even, 16, 0, 1) / even.numel()
    assert float((counts - 1 / 16).abs().max()) < 2e-3  # five times what chance explains
    pairs = torch.corrcoef(even)  # of samples
    assert float((pairs - torch.eye(8)).abs().max()) < 0.03
    assert (float(normal.mean()), float(normal.std())) == pytest.approx((0, 1), abs=5e-3)


def test_masks_keep_as_many_as_they_say():
    mask = drawn(aten.bernoulli_.float, torch.empty(8, 10_000), 0.9)
    assert float(mask.mean()) == pytest.approx(0.9, abs=5e-3)
    kept, whole = drawn(aten.native_dropout.default, torch.ones(8, 10_000), 0.25, True)
    assert float(kept.mean()) == pytest.approx(1, abs=1e-2)
    assert torch.equal(kept != 0, whole)


def test_keys_give_other_numbers():
    one, other = (drawn(aten.rand_like.default, torch.empty(8, 100), key=key) for key in (1, 2))
    assert float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]) < 0.1


class Drops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.off = nn.Dropout(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.off(self.inner(x)), 0.1, self.training)


def test_modules_that_draw_are_known_by_their_operators():
    module, x = Drops(), torch.ones(8, 4)
    before = torch.get_rng_state()
    assert drawing_modules(module, (x,)) == {"", "inner.1"}
    assert torch.equal(torch.get_rng_state(), before)
    assert drawing_modules(module.eval(), (x,)) == set()


class Attends(nn.Module):
    """What torch tags as drawing, on each device: fused attention, whatever it drops."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x.view(len(x), 1, 2, -1)
        return nn.functional.scaled_dot_product_attention(
            given, given, given, dropout_p=self.dropout
        )


def test_attention_that_drops_nothing_stays_as_fused_as_torch_has_it():
    assert drawing_modules(Attends(0.0), (torch.ones(8, 4),)) == set()
    assert drawing_modules(Attends(0.1), (torch.ones(8, 4),)) == {""}


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_fused_attention_of_gpus_draws_where_it_drops(kind):
    operator = getattr(aten, f"_scaled_dot_product_{kind}_attention").default
    more = {"flash": (), "efficient": (None, True), "cudnn": (None, True)}[kind]
    given = (torch.empty(1, 1, 2, 8),) * 3
    assert not draws(operator, (*given, *more), {})
    assert not draws(operator, (*given, *more, 0.0, True), {"scale": 0.3})
    assert draws(operator, (*given, *more, 0.1), {})
    assert draws(operator, (*given, *more), {"dropout_p": 0.1})


def test_a_module_draws_by_seed_step_and_place_alone():
    def outputs(seed, step, parts):
        torch.manual_seed(0)
        module = Drops()
        streams = PositionStreams(seed, drawing_modules(module, (torch.ones(8, 4),)))
        streams.attach(module)
        streams.begin(step, parts)
        x = torch.arange(32.0).view(8, 4)
        return torch.cat([module(x[part.start : part.stop]) for part in parts])

    whole = outputs(1, 0, [range(8)])
    assert torch.allclose(outputs(1, 0, [range(3), range(3, 8)]), whole)
    assert 0 < int((whole == 0).sum()) < whole.numel()
    for other in (outputs(2, 0, [range(8)]), outputs(1, 1, [range(8)])):
        assert not torch.equal(other == 0, whole == 0)


def test_a_pass_of_no_step_draws_as_torch_does():
    module, x = Drops(), torch.ones(8, 4)
    streams = PositionStreams(1, drawing_modules(module, (x,)))
    streams.attach(module)
    streams.begin(0, [range(8)])
    module(x)
    torch.manual_seed(3)
    one, other = module(x), module(x)
    torch.manual_seed(3)
    assert torch.equal(module(x), one)
    assert not torch.equal(one, other)
    assert torch.equal(module.eval()(x), module(x))


def test_a_copy_of_a_module_that_draws_computes_with_its_own_parameters():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return nn.functional.dropout(x, 0.5, self.training) * self.scale

    module, x = Own(), torch.ones(8, 4)
    PositionStreams(1, drawing_modules(module, (x,))).attach(module)
    averaged = copy.deepcopy(module).eval()
    with torch.no_grad():
        averaged.scale.fill_(3)
    assert torch.equal(averaged(x), 3 * x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_uniform_numbers_are_below_one_in_any_precision(dtype):
    found = drawn(aten.rand_like.default, torch.ones(8, 4096, dtype=dtype))
    assert found.dtype == dtype
    assert 0 <= float(found.min()) < float(found.max()) < 1
