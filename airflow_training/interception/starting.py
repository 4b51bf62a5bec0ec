"""What a Python process of a training runs at its start: no more than it needs, since each of its workers is one.

Where only parameters are asked for, that is a look at what is imported later: who reads them is loaded with the first module that
has some. Python 3.8 and newer, standard library only.
"""

from __future__ import annotations

import os
import sys

from airflow_training.interception.module_changes import after_method, watch_modules
from airflow_training.interception.protocol import HookSettings

TYPE_CHECKING = False  # `typing` costs the training's start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

__all__ = ["PARAMETER_MODULES", "start"]

PARAMETER_MODULES = (
    "argparse",
    "torch.optim.optimizer",
    "torch.utils.data.dataloader",
    "keras.src.trainers.trainer",
    "keras.src.backend.tensorflow.trainer",
    "keras.src.backend.torch.trainer",
    "keras.src.backend.jax.trainer",
    "keras.src.optimizers.base_optimizer",
)
"""Those that `parameters` changes."""


def start(environment: Mapping[str, str]) -> None:
    """Watch for the rest of this process what its environment asks for."""
    settings = HookSettings(environment)
    if settings.parameters_file:
        _watch_parameters(settings.parameters_file)
    if settings.is_wanted:
        from airflow_training.interception.hook import watch_loads

        watch_loads(settings)


def _watch_parameters(path: str) -> None:
    import atexit

    found: list[Any] = []

    def parameters() -> Any:
        if not found:
            found.append(_load_beside("parameters").ParameterWatch(path, after_method))
        return found[0]

    def imported(module: ModuleType) -> None:
        try:
            parameters().changes()[module.__name__](module)
        except Exception:  # noqa: BLE001  # an import of the training never fails by who watches it
            return

    def ended() -> None:
        try:
            if found or "dataclasses" in sys.modules:
                parameters().tell_main()  # of a program that no framework tells of
        except Exception:  # noqa: BLE001  # nor is its end disturbed
            return

    watch_modules(dict.fromkeys(PARAMETER_MODULES, imported))
    atexit.register(ended)


def _load_beside(name: str) -> ModuleType:
    """Load a module of this folder that imports none of ours: by then `airflow_training` is the user's business."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100,PTH120  # may lie in a zip
    spec = PathFinder.find_spec(f"{__name__.rpartition('.')[0]}.{name}", [folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not in {folder}", name=name)
    if not hasattr(spec.loader, "exec_module"):  # of a zip, before Python 3.10
        try:
            return spec.loader.load_module(spec.name)
        finally:
            sys.modules.pop(spec.name, None)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
