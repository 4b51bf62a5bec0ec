"""Which CUDA, cuDNN and driver an instance has, by what says so."""

from __future__ import annotations

import os

import pytest

from airflow_training.agent import gpu_libraries as gpu_libraries_module
from airflow_training.agent.gpu_libraries import driver_in, gpu_libraries, nvidia_driver
from airflow_training.agent.proc import living_processes
from tests.waiting import wait_until

TORCH = """__version__ = '2.7.0+cu126'
debug = False
cuda: Optional[str] = '12.6'
git_version = '134179474539648ba7dee1317959529fbd0e7f89'
hip: Optional[str] = None
"""
PACKAGES = {"nvidia-cuda-runtime-cu12": "12.6.77", "nvidia-cudnn-cu12": "9.5.1.17", "numpy": "2.1"}
IMAGE = {"CUDA_VERSION": "12.2.0", "NV_CUDNN_VERSION": "8.9.7.29-1", "PATH": "/bin"}


@pytest.mark.parametrize(
    ("packages", "torch", "environment", "found"),
    [
        pytest.param({}, "", {}, {}, id="nothing"),
        pytest.param(
            PACKAGES,
            TORCH,
            IMAGE,
            {"CUDA": "12.6 (torch)", "cuDNN": "9.5.1.17 (package)"},
            id="torch",
        ),
        pytest.param(
            PACKAGES, "", {}, {"CUDA": "12.6.77 (package)", "cuDNN": "9.5.1.17 (package)"}, id="jax"
        ),
        pytest.param(
            {}, "", IMAGE, {"CUDA": "12.2.0 (image)", "cuDNN": "8.9.7.29-1 (image)"}, id="image"
        ),
        pytest.param(
            {}, TORCH, IMAGE, {"CUDA": "12.6 (torch)", "cuDNN": "8.9.7.29-1 (image)"}, id="conda"
        ),
        pytest.param(
            {},
            TORCH.replace("'12.6'", "None"),
            IMAGE,
            {},
            id="torch-for-cpus-in-an-image-with-cuda",
        ),
        pytest.param(
            {}, "cuda = None\nhip = '6.2.41133'\n", IMAGE, {"ROCm": "6.2.41133 (torch)"}, id="rocm"
        ),
        pytest.param({}, "cuda = find_version()", {}, {}, id="no-torch-of-ours"),
        pytest.param({"nvidia-cudnn-frontend": "1.0"}, "", {}, {}, id="another-package"),
    ],
)
def test_the_framework_counts_before_packages_and_packages_before_the_image(
    packages, torch, environment, found
):
    assert gpu_libraries(packages, torch, environment) == found


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@host)\n",
            "570.86.15",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54", "550.54"),
        ("GCC version:  gcc version 12.3.0 (x)\n", ""),
        ("", ""),
    ],
)
def test_the_kernels_module_names_the_driver(text, version):
    assert driver_in(text) == version


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 560.35.03; echo 560.35.03", "560.35.03"),
        ("echo NVIDIA-SMI has failed; exit 9", ""),
        ("exec sleep 600", ""),
        ("echo No devices were found", ""),
    ],
    ids=["two GPUs", "fails", "hangs", "no GPU"],
)
def test_where_the_kernel_says_nothing_the_drivers_tool_is_asked(
    tmp_path, monkeypatch, script, version
):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    monkeypatch.setattr(gpu_libraries_module, "_KERNEL_MODULE", tmp_path / "missing")
    monkeypatch.setattr(gpu_libraries_module, "_SECONDS", 1.0)
    assert nvidia_driver() == version


@pytest.mark.e2e
def test_nothing_of_a_script_around_the_tool_lives_on(tmp_path, monkeypatch):
    tool, told = tmp_path / "nvidia-smi", tmp_path / "pid"
    tool.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {told}\nwait\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    monkeypatch.setattr(gpu_libraries_module, "_KERNEL_MODULE", tmp_path / "missing")
    monkeypatch.setattr(gpu_libraries_module, "_SECONDS", 1.0)
    assert nvidia_driver() == ""
    pid = int(told.read_text())
    wait_until(lambda: pid not in living_processes(), what="the end of what it had started")


@pytest.mark.e2e
def test_a_tool_that_is_no_program_says_nothing(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_libraries_module, "_KERNEL_MODULE", tmp_path / "missing")
    assert nvidia_driver() == ""


def test_a_variable_of_any_length_takes_little_room():
    [(_, text)] = gpu_libraries({}, "", {"CUDA_VERSION": "12" * 50_000}).items()
    assert len(text) <= 120
