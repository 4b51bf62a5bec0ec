"""The two nets of a training: loaded from their source, given batches, started from an earlier model."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from airflow_training.networks.trainer.addresses import find_files, read_bytes
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.samples import Samples
from airflow_training.networks.trainer.settings import TrainerSettings

if TYPE_CHECKING:
    import torch

__all__ = ["batch_of", "load_nets", "load_weights", "unused_parameters"]

WEIGHTS = ("model.safetensors", "model.pt")
"""Names under which weights are kept, the first that is there counts."""


def load_nets(settings: TrainerSettings) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return the training net and the test net, not yet sharing their weights."""
    module = ModuleType("net")
    with tempfile.TemporaryDirectory() as folder:
        # a file, so that torch finds the source of what it compiles, and tracebacks show lines
        path = Path(folder) / "net.py"
        path.write_text(settings.module, encoding="utf-8")
        exec(compile(settings.module, str(path), "exec"), module.__dict__)  # noqa: S102 - the generator made it
    return module.TrainNet(), module.TestNet()


def batch_of(
    samples: Samples, names: Sequence[str], settings: TrainerSettings, device: torch.device
) -> list[torch.Tensor]:
    """Return samples as tensors, in the order in which a net takes its inputs."""
    import torch

    kinds = {each.name: each.dtype for each in settings.inputs}
    found = []
    for name in names:
        tensor = torch.from_numpy(samples.arrays[name])
        if tensor.dtype == torch.uint8 and kinds[name] == "float32":
            found.append(tensor.to(device).float() / 255)
        else:
            found.append(tensor.to(device, getattr(torch, kinds[name])))
    return found


def unused_parameters(net: torch.nn.Module, batch: Sequence[torch.Tensor]) -> bool:
    """Whether some parameter of a net has no part in its loss: DistributedDataParallel has to know."""
    was = net.training
    net.eval()  # running statistics stay as they are
    net(*batch)["loss"].backward()
    unused = any(each.grad is None for each in net.parameters() if each.requires_grad)
    net.zero_grad(set_to_none=True)
    net.train(was)
    return unused


def load_weights(net: torch.nn.Module, address: str) -> list[str]:
    """Begin with the weights of an earlier model; return the names of those it has not.

    Args:
        net: what takes them.
        address: a file of weights (safetensors, or a state dict of torch), or a folder with one.

    Raises:
        TrainerError: there is none, or none of its weights fits.
    """
    state = _read_weights(address)
    own = net.state_dict()
    fitting = {
        name: value
        for name, value in state.items()
        if name in own and own[name].shape == value.shape
    }
    misfits = [name for name in own if name not in fitting]
    if not fitting:
        fix = "start from a model of the same network, or take data.initialModel out"
        raise TrainerError(
            address, "has no weight of the name and shape of one in the network", fix
        )
    net.load_state_dict(fitting, strict=False)
    return misfits


def _read_weights(address: str) -> Mapping[str, torch.Tensor]:
    import torch

    files = find_files("", [address], WEIGHTS)
    chosen = min(files, key=lambda each: not each.address.endswith(WEIGHTS[0]))
    content = read_bytes(chosen.address)
    try:
        if chosen.address.endswith(".safetensors"):
            from safetensors.torch import load

            return load(content)
        loaded: Any = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except ImportError:
        raise TrainerError(
            address, "safetensors is needed to read it", "add it to the environment"
        ) from None
    except Exception as error:  # noqa: BLE001 - readers raise their own classes, and pickle any
        fix = "a file of safetensors, or what torch.save made of a state_dict"
        raise TrainerError(
            os.fspath(chosen.address), f"holds no weights: {str(error)[:200]}", fix
        ) from None
    return {name: value for name, value in loaded.items() if isinstance(value, torch.Tensor)}
