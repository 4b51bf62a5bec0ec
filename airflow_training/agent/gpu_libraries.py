"""Which CUDA, cuDNN and driver an instance has. Linux only, Python 3.8 and newer.

What says it is asked in this order: the framework, what was installed beside it, the image. Nothing is
imported for it, and no device is touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.child_calls import LONGEST_TEXT

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["driver_in", "gpu_libraries", "nvidia_driver"]

_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
_SECONDS = 10.0
_TORCH_BUILD = re.compile(r"^(cuda|hip)\s*(?::[^=\n]*)?=\s*['\"]([^'\"\n]+)['\"]", re.MULTILINE)
"""Of torch/version.py: `cuda: Optional[str] = '12.6'`."""
_PACKAGES = {"CUDA": re.compile(r"nvidia-cuda-runtime(-cu\d+)?"), "cuDNN": re.compile(r"nvidia-cudnn(-cu\d+)?")}  # fmt: skip
_VARIABLES = {"CUDA": ("CUDA_VERSION",), "cuDNN": ("NV_CUDNN_VERSION", "CUDNN_VERSION")}
"""What the images of NVIDIA and those that begin with one set."""


def gpu_libraries(
    packages: Mapping[str, str], torch: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return name -> version and what says so: `{"CUDA": "12.6 (torch)"}`; only what is known.

    `packages`: installed ones; `torch`: text of its `version.py`; `environment`: of the process.
    """
    # a variable may be longer than all else that is told
    return {
        name: text[:LONGEST_TEXT] for name, text in _found(packages, torch, environment).items()
    }


def _found(
    packages: Mapping[str, str], torch: str, environment: Mapping[str, str]
) -> dict[str, str]:
    builds = dict(_TORCH_BUILD.findall(torch))
    if "hip" in builds:
        return {"ROCm": f"{builds['hip']} (torch)"}
    found = {"CUDA": f"{builds['cuda']} (torch)"} if "cuda" in builds else {}
    for name, pattern in _PACKAGES.items():
        for package, version in packages.items():
            if name not in found and pattern.fullmatch(package):
                found[name] = f"{version} (package)"
    if torch and "cuda" not in builds:
        return found  # a build for CPUs uses nothing that the image has
    for name, variables in _VARIABLES.items():
        for variable in variables:
            if name not in found and environment.get(variable):
                found[name] = f"{environment[variable]} (image)"
    return found


def nvidia_driver() -> str:
    """Return the version of NVIDIA's driver; "" where there is none that tells. Blocks for some seconds at most."""
    try:
        return driver_in(_KERNEL_MODULE.read_text("utf-8", "replace"))
    except OSError:
        pass  # as where the kernel is not this machine's own
    program = shutil.which("nvidia-smi")
    return _ask_tool(program) if program else ""


def driver_in(text: str) -> str:
    """Return the version in what the kernel's module says of itself, "" where there is none."""
    line = text.partition("\n")[0]
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)*)\s", f"{line} ") if "NVRM version" in line else None
    return found.group(1) if found else ""


def _ask_tool(program: str) -> str:
    import subprocess

    question = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        process = subprocess.Popen(
            question, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return ""  # an empty file in its place, or one for another machine
    try:
        printed, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        started = proc.descendants(process.pid)  # it may be a script around the tool
        process.kill()
        proc.signal_processes(started, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs keeps it
            process.wait(1.0)
        if process.stdout is not None:
            process.stdout.close()
        return ""
    found = re.match(
        r"\s*(\d+(?:\.\d+)+)\s", f"{os.fsdecode(printed)} "
    )  # it may print words instead
    return found.group(1) if process.returncode == 0 and found else ""
