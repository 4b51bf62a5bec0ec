"""Generated modules as a user has them: imported from a file, run on made-up data."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow_training.networks.generator import module_text
from airflow_training.networks.reading import read_network
from airflow_training.networks.resolving import ResolvedNetwork

__all__ = ["FIXTURES", "fixture", "import_generated", "samples"]

FIXTURES = Path(__file__).parent / "fixtures"


def fixture(name: str) -> ResolvedNetwork:
    """Return the network of a file of `fixtures/`."""
    return read_network(FIXTURES / f"{name}.yaml")


def import_generated(network: ResolvedNetwork, folder: Path) -> ModuleType:
    """Write the module of a network into a folder, and import it."""
    path = folder / "net.py"
    path.write_text(module_text(network), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("net", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def samples(network: ResolvedNetwork, count: int, **largest: int) -> dict[str, Any]:
    """Return a batch for the training net; whole numbers are below those of `largest`, or 2."""
    import torch

    generator = torch.Generator().manual_seed(1)
    batch = {}
    for each in network.nets["train"].inputs:
        output = network.layers[each.layer.name].inferred.output
        shape = (count, *output.shape)
        if output.dtype == "int64":
            below = largest.get(each.layer.name, 2)
            batch[each.layer.name] = torch.randint(below, shape, generator=generator)
        else:
            batch[each.layer.name] = torch.rand(shape, generator=generator)
    return batch
