"""The large fixtures on this machine's processor: both nets forward, the training net backward too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.networks.generated import fixture, import_generated, samples
from tests.networks.test_generated import LARGE

pytestmark = pytest.mark.soak

ALONE = {"gpt2-small"}
"""Fixtures of which a batch of two takes too much memory."""


@pytest.mark.parametrize("name", sorted(LARGE))
def test_both_nets_run_with_the_same_weights(name: str, tmp_path: Path):
    import torch

    torch.manual_seed(5)
    network = fixture(name)
    module = import_generated(network, tmp_path)
    train = module.TrainNet()
    test = module.TestNet().share(train)
    batch = samples(network, 1 if name in ALONE else 2)
    train(**batch)["loss"].backward()
    assert [key for key, each in train.named_parameters() if each.grad is None] == []
    assert all(bool(each.grad.isfinite().all()) for each in train.parameters())
    train.zero_grad(set_to_none=True)
    with torch.no_grad():
        given = {each.layer.name: batch[each.layer.name] for each in network.nets["test"].inputs}
        answer, trained = test(**given), train.eval()(**batch)
    for each in network.nets["test"].of_kind("metric"):
        assert bool(answer[each.layer.name].isfinite())
    for key in trained.keys() & answer.keys():
        assert torch.allclose(trained[key], answer[key], atol=1e-4)
