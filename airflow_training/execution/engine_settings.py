"""What a plan with `engine` trains: its settings, and the functions of the user's module that they name."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow_training.errors import InputError, Problem
from airflow_training.execution.execution_plan import ExecutionPlan, plan_of

__all__ = [
    "EngineSettings",
    "UserFunctions",
    "load_functions",
    "make_model",
    "make_samples",
    "read_engine",
    "seed_generators",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What is trained: `spec.plan.engine` of a job, with names of functions."""

    model: str
    """`module:function`."""
    loss: str = "loss"
    optimizer: str = "optimizer"
    data: str = "data"
    steps: int | None = None
    epochs: int | None = None
    seed: int = 0
    shuffle: bool = True
    randomness: Any = "refuse"
    rebalance: float | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunctions:
    """What a user's module brings to a training."""

    model: Callable[[], Any]
    loss: Callable[..., Any]
    optimizer: Callable[..., Any]
    data: Callable[[], Any]


def read_engine(path: str) -> tuple[EngineSettings, ExecutionPlan]:
    """Read what is trained and how from a plan's file.

    Raises:
        InputError: there is no file, it has no `engine`, or its strategy cannot be carried out.

    """
    if not path:
        raise InputError.of(
            code="NoPlan",
            field="PLAN_FILE",
            message="is not set: the plan of a job names what is trained",
            hint="start it as a job with `apply: [replicas, env, microBatch, engine]`",
        )
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"cannot be read: {error}"
        raise InputError.of(code="BadPlan", field="PLAN_FILE", message=message, path=path) from None
    given = document.get("engine") if isinstance(document, dict) else None
    if not isinstance(given, dict) or not isinstance(given.get("model"), str):
        message = "a plan that is carried out by itself names the module: model: train:example"
        raise InputError.of(code="BadPlan", field="engine.model", message=message, path=path)
    unknown = sorted(set(given) - set(EngineSettings.__slots__))
    if unknown:
        raise InputError.of(
            code="BadPlan",
            field=f"engine.{unknown[0]}",
            message="is no key of it",
            allowed=EngineSettings.__slots__,
            hint="the image may hold another version of airflow-training than planned the job",
            path=path,
        )
    engine = EngineSettings(**given)
    plan = plan_of(document, path=path)
    return engine, plan if engine.precision is None else replace(plan, precision=engine.precision)


def load_functions(engine: EngineSettings) -> UserFunctions:
    """Import the module that a plan names.

    Raises:
        InputError: there is none, or it lacks functions: all of them are named.

    """
    module, _, function = engine.model.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        code = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        raise InputError.of(
            code="BadReference",
            field="spec.plan.engine.model",
            value=engine.model,
            message=f"there is no module {module} in {Path.cwd()}, nor is it installed",
            hint="set workingDir to the folder that has it",
        ) from None
    named = {
        "model": function,
        "loss": engine.loss,
        "optimizer": engine.optimizer,
        "data": engine.data,
    }
    found = {key: getattr(code, name, None) for key, name in named.items()}
    absent = [key for key, value in found.items() if not callable(value)]
    if absent:
        raise InputError(
            problems=[
                Problem(
                    code="BadReference",
                    field=f"spec.plan.engine.{key}",
                    value=named[key],
                    message=f"{module} has no function '{named[key]}'",
                )
                for key in absent
            ]
        )
    return UserFunctions(**{key: value for key, value in found.items() if value is not None})


def make_model(engine: EngineSettings, functions: UserFunctions) -> Any:
    """Make the module that is trained, on this rank's device.

    Raises:
        InputError: its function returns something else.

    """
    import torch

    made = functions.model()
    model = made[0] if isinstance(made, tuple) and made else made
    if not isinstance(model, torch.nn.Module):
        raise InputError.of(
            code="NoModule",
            field="spec.plan.engine.model",
            value=engine.model,
            message=f"returns {type(model).__name__}, and no torch.nn.Module with example inputs",
            hint="return model, (torch.zeros(8, 64),)",
        )
    if torch.cuda.is_available():
        model.to(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    return model


def make_samples(engine: EngineSettings, functions: UserFunctions, plan: ExecutionPlan) -> Any:
    """Make the samples, which have a number each.

    Raises:
        InputError: they have none, or do not fill one step of the plan.

    """
    samples = functions.data()
    if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
        raise InputError.of(
            code="NoSamples",
            field="spec.plan.engine.data",
            value=engine.data,
            message=f"returns {type(samples).__name__}, which has no len() and no samples by number",
            hint="return a torch Dataset of that kind, or a list of pairs of input and target",
        )
    if len(samples) < plan.global_batch:
        raise InputError.of(
            code="NoSamples",
            field="spec.plan.engine.data",
            value=engine.data,
            message=f"returns {len(samples)} samples, and a step takes {plan.global_batch}",
            hint="a smaller spec.plan.globalBatch",
        )
    return samples


def seed_generators(seed: int) -> None:
    """Seed the random numbers of Python, torch and, where it is loaded, numpy."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
