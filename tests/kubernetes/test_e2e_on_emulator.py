"""The suite for real clusters, on an emulated one whose containers are real processes: the quick part."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
QUICK = (
    "rendezvous or its_servers or an_exit_code or deleted_pod or drain_of_a_node"
    " or restricted or survives_the_death or a_paused_run or sweep or coscheduling or across_pods[2] or adopts or log_offsets"
)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    if shutil.which("unshare") is None:
        pytest.skip("containers as processes need namespaces of this machine")
    with Cluster(kubelet="processes", installed=["coscheduling"], offline=True) as cluster:
        yield cluster.write_kubeconfig(tmp_path / "kubeconfig")


@pytest.mark.e2e
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_its_quick_part_passes_and_ends_with_the_count(kubeconfig: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "tests/kubernetes/e2e",
            "-q",
            "-m",
            "cluster",
            "-k",
            QUICK,
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "TRAINING_IMAGE": "train",  # no tag: it would be pulled, and there is no registry
            "BUSYBOX_IMAGE": "busybox",
            "E2E_PATIENCE_SECONDS": str(PATIENCE),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1]
    passed, _, rest = last.partition(" passed, ")
    assert rest == "0 failed", done.stdout[-20000:]
    assert int(passed) >= 12
