"""What environment, files and folders an instance finds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.limits import own_cgroup
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.runtimes.local.runtime import LocalRuntime
from airflow_training.runtimes.port import ReleaseAnswer
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import attempt_folder, local_harness, python_script, run_quick

pytestmark = pytest.mark.e2e

TELL_ENVIRONMENT = python_script("import json, os; print(json.dumps(dict(os.environ)))")


async def environment_of(harness: Harness, local_dir: Path, **changes: Any) -> dict[str, str]:
    folder = await run_quick(harness, local_dir, command=TELL_ENVIRONMENT, **changes)
    found: dict[str, str] = json.loads(folder.log.read_text())
    return found


async def test_the_environment_is_allow_listed(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "secret")
    monkeypatch.setenv("MY_SECRET", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    found = await environment_of(harness, tmp_path)
    assert "secret" not in found.values()
    assert not [name for name in found if "AIRFLOW" in name]
    assert found["LC_TIME"] == "C"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


async def test_more_names_can_be_allowed_but_never_those_of_airflow(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("AIRFLOW_HOME", "secret")
    wider = LocalRuntime(local_dir=tmp_path, inherit=("HF_*", "AIRFLOW*"))
    harness = Harness(runtime=wider, run=harness.run, commands=harness.commands)
    found = await environment_of(harness, tmp_path)
    assert found["HF_HOME"] == "/models"
    assert "AIRFLOW_HOME" not in found


async def test_an_instance_is_told_where_its_things_are(harness: Harness, tmp_path: Path) -> None:
    found = await environment_of(harness, tmp_path)
    folder = attempt_folder(tmp_path, harness, "quick")
    assert found["TRAINING_INSTANCE_DIR"] == str(folder.path)
    assert found["TRAINING_OUTPUT_DIR"] == str(folder.output)
    assert found["TRAINING_PROGRESS_FILE"] == str(folder.progress)
    assert found["TRAINING_PREDICTIONS_DIR"] == str(folder.predictions)
    assert os.access(found["TRAINING_REMOTE_SHELL"], os.X_OK)
    assert found["PYTHONUNBUFFERED"] == "1"


async def test_references_are_expanded_as_kubernetes_does(harness: Harness, tmp_path: Path) -> None:
    folder = await run_quick(
        harness,
        tmp_path,
        command=("sh", "-c", 'echo "$A|$B|$0|$1"', "$(TRAINING_OUTPUT_DIR)"),
        args=("$(A) $$(A) $(UNKNOWN)",),
        env={"A": "one", "B": "$(A)-two $(LATER)", "LATER": "x"},
    )
    output = folder.output
    assert folder.log.read_text() == f"one|one-two $(LATER)|{output}|one $(A) $(UNKNOWN)\n"


@pytest.mark.parametrize(
    ("resources", "env", "threads"),
    [
        pytest.param({"cpu": "2"}, {}, "2", id="whole"),
        pytest.param({"cpu": "2500m"}, {}, "2", id="rounded-down"),
        pytest.param({"cpu": "100m"}, {}, "1", id="at-least-one"),
        pytest.param({"cpu": "4"}, {"OMP_NUM_THREADS": "7"}, "7", id="the-job-knows-better"),
        pytest.param({}, {}, None, id="nothing-asked"),
    ],
)
async def test_threads_follow_the_cpu_request(
    harness: Harness,
    tmp_path: Path,
    resources: dict[str, str],
    env: dict[str, str],
    threads: str | None,
) -> None:
    found = await environment_of(harness, tmp_path, resources=resources, env=env)
    assert found.get("OMP_NUM_THREADS") == threads


async def test_python_is_the_one_that_runs_us(harness: Harness, tmp_path: Path) -> None:
    command = ("python", "-c", "import sys; print(sys.executable)")
    folder = await run_quick(harness, tmp_path, command=command)
    said = Path(folder.log.read_text().strip())
    assert said.parent == Path(sys.executable).parent


async def test_files_are_written_before_the_command_starts(
    harness: Harness, tmp_path: Path
) -> None:
    folder = await run_quick(
        harness,
        tmp_path,
        command=("sh", "-c", "cat $TRAINING_INSTANCE_DIR/etc/hosts; $TRAINING_INSTANCE_DIR/hello"),
        files={"etc/hosts": "a b\n", "hello": "#!/bin/sh\necho hello\n"},
        executables=frozenset({"hello"}),
    )
    assert folder.log.read_text() == "a b\nhello\n"


@pytest.mark.parametrize("path", ["/etc/mpi/hostfile", "../outside"])
async def test_files_outside_the_instance_are_refused(harness: Harness, path: str) -> None:
    outcome = (await harness.runtime.create([harness.spec("quick", files={path: "x"})]))[0]
    assert outcome.result == "impossible"
    assert path in outcome.message


async def test_live_files_are_written_on_release(harness: Harness, tmp_path: Path) -> None:
    script = "cat $TRAINING_INSTANCE_DIR/peers $TRAINING_INSTANCE_DIR/addresses.json"
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "quick", command=("sh", "-c", script), held=True, live_files={"peers": "host:1\n"}
        )
        made = (await harness.runtime.create([spec]))[0]
        await seen.state("quick", 0, "pending", held=True)
        folder = attempt_folder(tmp_path, harness, "quick")
        assert not (folder.path / "peers").exists()
        answer = ReleaseAnswer(kind="List", addresses={"sleeper": ["127.0.0.1:5"]})
        await harness.runtime.release([made.ref], answer)
        await seen.state("quick", 0, "succeeded")
    assert folder.log.read_text() == 'host:1\n{"sleeper": ["127.0.0.1:5"]}'


@pytest.mark.parametrize(
    ("working_dir", "expected"),
    [
        pytest.param("", "jobs", id="the-folder-of-the-job-file"),
        pytest.param("src", "jobs/src", id="relative-to-it"),
        pytest.param("{tmp}", "", id="absolute"),
    ],
)
async def test_the_working_directory(tmp_path: Path, working_dir: str, expected: str) -> None:
    jobs = tmp_path / "jobs"
    (jobs / "src").mkdir(parents=True)
    async with local_harness(tmp_path / "local") as harness:
        role = ResolvedRole(name="quick", replicas=1)
        job = ResolvedJob(name="contract", roles=(role,), base_dir=str(jobs))
        await harness.runtime.prepare(harness.run, job)
        folder = await run_quick(
            harness,
            tmp_path / "local",
            command=("pwd",),
            working_dir=working_dir.format(tmp=tmp_path),
        )
        assert folder.log.read_text().strip() == str(tmp_path / expected).rstrip("/")


@pytest.mark.parametrize(
    ("changes", "exit_code", "message"),
    [
        pytest.param(
            {"command": ("pythn", "x")}, 127, "pythn: command not found", id="no-such-program"
        ),
        pytest.param({"command": ("/etc/hostname",)}, 126, "/etc/hostname: ", id="not-executable"),
        pytest.param({"working_dir": "/nowhere"}, 127, "'/nowhere'", id="no-such-folder"),
    ],
)
async def test_what_cannot_be_started_says_so(
    harness: Harness, tmp_path: Path, changes: dict[str, Any], exit_code: int, message: str
) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", **changes)])
        found = await seen.state("quick", 0, "failed")
        assert (found.reason, found.exit_code) == ("StartError", exit_code)
        assert message in found.message
    assert message in attempt_folder(tmp_path, harness, "quick").log.read_text()


async def test_no_command_is_an_error_that_says_why(harness: Harness) -> None:
    outcome = (await harness.runtime.create([harness.spec("quick", command=())]))[0]
    assert outcome.result == "impossible"
    assert "no command" in outcome.message


async def test_a_memory_limit_holds(harness: Harness, tmp_path: Path) -> None:
    greedy = python_script("x = b'x' * (512 << 20); print(len(x))")
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec("quick", command=greedy, resources={"memory": "200Mi"})
        await harness.runtime.create([spec])
        found = await seen.state("quick", 0, "failed")
    log = attempt_folder(tmp_path, harness, "quick").log.read_text()
    if "RLIMIT_DATA" in log:  # no cgroup v2 that we may write
        assert "MemoryError" in log
    else:
        assert own_cgroup() is not None
        assert found.reason == "OOMKilled"
