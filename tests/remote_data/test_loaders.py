"""Every way in which a training reads its data gets the true bytes, or the run fails by the file's name.

Libraries that are not installed are left out; `LOADERS_PYTHON` names a Python that has more of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training.remote_data import (
    http_address,
    instance_environment,
    share,
    start_fetcher,
    start_server,
)
from airflow_training.remote_data.errors import UnfetchedRead
from airflow_training.remote_data.guard import Guard, probe_guard

PYTHON = os.environ.get("LOADERS_PYTHON", sys.executable)
SCRIPT = Path(__file__).with_name("loaders.py")
TIMES = Guard(leases=False, modes=False, times=True)
QUICK = [
    "open_binary", "os_open", "mapped", "csv_rows", "pickled", "gzip", "zipped", "tarred", "sqlite", "numpy_load",
    "numpy_memmap", "pillow", "pyarrow_parquet", "pyarrow_mapped", "h5py_file", "safetensors_safe_open", "other_program",
]  # fmt: skip


def call(what, folder, names=(), *, wrapper=(), env=None):
    done = subprocess.run(
        [*wrapper, PYTHON, SCRIPT, what, folder, *names],
        env={**os.environ, "HF_HUB_OFFLINE": "1", **(env or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    """What all loaders read, by name with the digest of what they read where it really lies."""
    folder = tmp_path_factory.mktemp("laptop") / "data"
    written = call("write", folder)
    true = call("read", folder, [name for name, problem in written.items() if not problem])
    shared = share([folder])
    server = start_server(shared)
    yield (
        shared.manifest,
        server,
        {name: digest for name, digest in true.items() if ":" not in digest},
    )
    server.close()


@pytest.fixture
def node(laptop, tmp_path):
    """Starts a fetcher of the whole set."""
    manifest, server, _ = laptop
    started = []

    def start(guard=None):
        started.append(
            start_fetcher(
                manifest,
                places={"data0": tmp_path / "data"},
                state=tmp_path / "state",
                source=http_address(server.url, server.token),
                cache=str(tmp_path / "cache"),
                guard=guard,
            )
        )
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(UnfetchedRead):  # what a test is about was told before
            each.finish()


def hook(fetcher, loads=""):
    return instance_environment(
        fetcher, loads_file=str(loads), python_path=os.environ.get("PYTHONPATH", "")
    )


needs_leases = pytest.mark.skipif(
    not probe_guard(Path("/tmp"), files=1).leases, reason="no leases on this file system"
)


@needs_leases
@pytest.mark.parametrize("hooked", [True, False], ids=["hook", "no hook"])
def test_all_get_the_true_bytes_when_the_kernel_holds_them_back(laptop, node, tmp_path, hooked):
    true = laptop[2]
    assert len(true) >= 30
    fetcher = node()
    found = call("read", tmp_path / "data", true, env=hook(fetcher) if hooked else None)
    assert {name for name in true if found[name] != true[name]} == set()
    fetcher.finish()


def test_without_that_the_hook_sees_nearly_all_and_the_others_fail_the_run_by_name(
    laptop, node, tmp_path
):
    true = laptop[2]
    fetcher = node(TIMES)
    found = call("read", tmp_path / "data", true, env=hook(fetcher))
    wrong = {name for name in true if found[name] != true[name]}
    assert wrong <= {"duckdb_parquet", "tokenizers_file", "other_program_by_list"}
    with pytest.raises(UnfetchedRead):
        fetcher.finish()
    told = json.loads((tmp_path / "state" / "failure.json").read_text())["paths"]
    named = {Path(path).relative_to(tmp_path / "data").parts[0] for path in told}
    assert named == wrong


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_the_hook_tells_of_all_that_strace_sees(laptop, node, tmp_path):
    names = [name for name in QUICK if name in laptop[2]]
    fetcher = node()
    loads, trace = tmp_path / "loads.jsonl", tmp_path / "trace"
    call(
        "read",
        tmp_path / "data",
        names,
        wrapper=["strace", "-f", "-qq", "-e", "trace=open,openat", "-o", trace],
        env=hook(fetcher, loads),
    )
    opened = {
        match[1]
        for line in trace.read_text().splitlines()
        if (match := re.search(r'"([^"]+)", [^)]*\) = \d+', line)) and "O_DIRECTORY" not in line
        if match[1].startswith(f"{tmp_path}/data/")
    }
    lines = [json.loads(line) for line in loads.read_text().splitlines()]
    told = {line["path"] for line in lines if line["path"].startswith(f"{tmp_path}/data/")}
    assert len(opened) >= len(names)
    assert {path for path in opened - told if "other_program" not in path} == set()
    assert {line["class"] for line in lines if line["path"] in told} <= {"data", "model"}
    ready = {
        json.loads(line) for line in (tmp_path / "state" / "ready.jsonl").read_text().splitlines()
    }
    assert opened <= ready
