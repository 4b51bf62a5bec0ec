"""Which distributions are frameworks, and what their builds run on. Pure."""

from __future__ import annotations

import re

from airflow_training.environments.model import InstalledDistribution, PythonEnvironment

__all__ = [
    "accelerator_of",
    "find_framework",
    "framework_of",
    "has_accelerator_builds",
    "is_accelerator_label",
]

_FRAMEWORKS = frozenset(
    {
        "torch", "torchvision", "torchaudio", "tensorflow", "keras", "jax", "jaxlib", "flax",
        "paddlepaddle", "xgboost", "lightgbm", "lightning", "pytorch-lightning", "transformers",
        "accelerate", "deepspeed", "scikit-learn", "mpi4py",
    }
)  # fmt: skip
"""What a script and its saved models depend on to the last digit of the version."""

_WITH_BUILDS = frozenset(
    {"torch", "torchvision", "torchaudio", "tensorflow", "jax", "jaxlib", "paddlepaddle"}
)
"""Those that are built apart for each accelerator, so that a version alone does not say which."""

_OTHER_NAMES = {
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-macos": "tensorflow",
    "tensorflow-rocm": "tensorflow",
    "xgboost-cpu": "xgboost",
    "paddlepaddle-gpu": "paddlepaddle",
    "paddlepaddle-xpu": "paddlepaddle",
    "jax-rocm": "jax",
}
"""Builds that have a name of their own."""

_ACCELERATOR_NAMES = {"paddlepaddle-gpu": "cuda", "tensorflow-rocm": "rocm", "tensorflow-gpu": "cuda"}  # fmt: skip
_ACCELERATOR_PLUGINS = {
    "jax": re.compile(r"jax-(cuda\d+|rocm\d*)-plugin"),
    "jaxlib": re.compile(r"jax-(cuda\d+|rocm\d*)-plugin"),
}
_LABEL = re.compile(r"(cpu|cu\d+|rocm[\d.]*|xpu)([._].*)?")


def framework_of(name: str) -> str | None:
    """Return which framework a distribution is a build of; None for other packages."""
    found = _OTHER_NAMES.get(name, name)
    return found if found in _FRAMEWORKS else None


def has_accelerator_builds(name: str) -> bool:
    """Say whether a distribution is of a framework that is gigabytes, chosen by the accelerator of the node."""
    return framework_of(name) in _WITH_BUILDS


def find_framework(framework: str, record: PythonEnvironment) -> InstalledDistribution | None:
    """Return the build of a framework that a Python has."""
    return next(
        (each for each in record.by_name.values() if framework_of(each.name) == framework), None
    )


def is_accelerator_label(label: str) -> bool:
    """Say whether a local version label names an accelerator (`cpu`, `cu126`) and not somebody's own build."""
    return _LABEL.fullmatch(label) is not None


def accelerator_of(distribution: InstalledDistribution, record: PythonEnvironment) -> str:
    """Return `cpu`, `cuda 12.6`, `cuda`, `rocm 6.2` ...; empty where nothing tells."""
    if distribution.build:
        return distribution.build.replace("hip", "rocm")
    label = _LABEL.fullmatch(distribution.label)
    if label:
        return _spelled(label[1])
    if distribution.name in _ACCELERATOR_NAMES:
        return _ACCELERATOR_NAMES[distribution.name]
    plugin = _ACCELERATOR_PLUGINS.get(framework_of(distribution.name) or "")
    for other in record.by_name if plugin else ():
        match = plugin.fullmatch(other) if plugin else None
        if match:
            return _spelled(match[1])
    return "cpu" if distribution.name.endswith("-cpu") else ""


def _spelled(label: str) -> str:
    """`cuda 12.6` of `cu126`, `cuda 12` of `cuda12`."""
    match = re.fullmatch(r"cu(?:da)?(\d\d)(\d?)", label)
    if match:
        return f"cuda {match[1]}" + (f".{match[2]}" if match[2] else "")
    return re.sub(r"^(rocm)(\d.*)$", r"\1 \2", label)
