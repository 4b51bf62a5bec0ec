"""What an instance of the local runtime finds around it, and what it tells back."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.limits import own_cgroup
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.runtimes.local import watch
from airflow_training.runtimes.local.liveness import AgentLiveness, read_attempt_state
from airflow_training.runtimes.local.observe import observe
from airflow_training.runtimes.local.runtime import LocalRuntime
from airflow_training.runtimes.local.scan import Scanner
from airflow_training.runtimes.port import Cursor, ReleaseAnswer
from tests.contracts.runtime import JOB, Harness, watching
from tests.runtimes.local_runs import attempt_folder, local_harness, python_script
from tests.waiting import until, wait_until

pytestmark = pytest.mark.e2e
TELL_ENVIRONMENT = python_script("import json, os; print(json.dumps(dict(os.environ)))")


async def run_quick(harness: Harness, local_dir: Path, **changes: Any) -> AttemptFolder:
    """Run an instance to its success and return its folder."""
    async with watching(harness.runtime, harness.run) as seen:
        outcome = (await harness.runtime.create([harness.spec("quick", **changes)]))[0]
        assert outcome.result == "created", outcome.message
        await seen.until(lambda now: any(i.finished_at for i in now.values()))
        found = seen.now["quick", 0]
        log = attempt_folder(local_dir, harness, "quick").log.read_text()
        assert found.state == "succeeded", (found, log)
    return attempt_folder(local_dir, harness, "quick")


async def environment_of(harness: Harness, local_dir: Path, **changes: Any) -> dict[str, str]:
    folder = await run_quick(harness, local_dir, command=TELL_ENVIRONMENT, **changes)
    found: dict[str, str] = json.loads(folder.log.read_text())
    return found


# environment -----------------------------------------------------------------------------------
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


# files and folders -------------------------------------------------------------------------------
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


# limits ------------------------------------------------------------------------------------------
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


# output --------------------------------------------------------------------------------------------
WRITE_OUTPUT = ("sh", "-c", "cd $TRAINING_OUTPUT_DIR; mkdir a; printf 12 > a/b; printf 345 > c")


@pytest.mark.parametrize("scheme", ["", "file://"])
async def test_output_is_uploaded_and_described(
    harness: Harness, tmp_path: Path, scheme: str
) -> None:
    target = tmp_path / "models" / "final"
    uri = f"{scheme}{target}"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=WRITE_OUTPUT, output_uri=uri)])
        found = await seen.state("quick", 0, "succeeded")
    assert (target / "a" / "b").read_text() == "12"
    lines = [("12", "a/b"), ("345", "c")]
    listing = "".join(f"{hashlib.sha256(t.encode()).hexdigest()}  {n}\n" for t, n in lines)
    digest = f"sha256:{hashlib.sha256(listing.encode()).hexdigest()}"
    assert found.output == RunOutput(uri=uri, bytes=5, digest=digest)


async def test_output_goes_through_fsspec_elsewhere(harness: Harness, tmp_path: Path) -> None:
    """`local://` is an address that only fsspec knows."""
    target = tmp_path / "far"
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec("quick", command=WRITE_OUTPUT, output_uri=f"local://{target}")
        await harness.runtime.create([spec])
        await seen.state("quick", 0, "succeeded")
    assert (target / "a" / "b").read_text() == "12"


@pytest.mark.parametrize(
    "uri", [pytest.param("/proc/nowhere", id="refused"), pytest.param("nope://x", id="unknown")]
)
async def test_a_failed_upload_fails_the_instance(
    harness: Harness, tmp_path: Path, uri: str
) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=WRITE_OUTPUT, output_uri=uri)])
        found = await seen.state("quick", 0, "failed")
        assert (found.reason, found.exit_code, found.output) == ("OutputFailed", 0, None)
        assert uri in found.message


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (4, "failed")])
async def test_a_framework_may_fetch_what_rank_0_has_written_elsewhere(
    harness: Harness, tmp_path: Path, code: int, state: str
) -> None:
    script = tmp_path / "fetch.sh"
    script.write_text(f"#!/bin/sh\necho model > $TRAINING_OUTPUT_DIR/model; exit {code}\n")
    script.chmod(0o755)
    target = tmp_path / "models"
    env = {"TRAINING_OUTPUT_COMMAND": str(script)}
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", env=env, output_uri=str(target))])
        found = await seen.state("quick", 0, state)
    if code:
        assert found.reason == "OutputFailed"
        assert "exit code 4" in found.message
    else:
        assert (target / "model").read_text() == "model\n"


async def test_an_output_folder_that_stays_empty_is_told(harness: Harness, tmp_path: Path) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", output_uri=str(tmp_path / "models"))])
        found = await seen.state("quick", 0, "succeeded")
    assert found.message == "the output folder is empty"
    assert found.output is not None
    assert found.output.bytes == 0


async def test_nothing_is_uploaded_of_a_failure(harness: Harness, tmp_path: Path) -> None:
    target = tmp_path / "models"
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("broken", output_uri=str(target))])
        await seen.state("broken", 0, "failed")
    assert not target.exists()


# predictions -----------------------------------------------------------------------------------------
async def test_predictions_are_published_while_it_runs_and_at_the_end(
    harness: Harness, tmp_path: Path
) -> None:
    there = tmp_path / "there" / "sleeper-0"
    script = f"""
cd $TRAINING_PREDICTIONS_DIR
echo 1 > .step-1.tmp; mv .step-1.tmp step-1.csv
ln -s /etc/passwd link.csv
until [ -e {there}/step-1.csv ]; do sleep 0.05; done
echo 2 > step-2.csv
exit 3
"""
    async with watching(harness.runtime, harness.run) as seen:
        command = ("sh", "-c", script)
        spec = harness.spec("sleeper", command=command, predictions_uri=str(there))
        await harness.runtime.create([spec])
        found = await seen.state("sleeper", 0, "failed")
        assert found.exit_code == 3
    assert sorted(each.name for each in there.iterdir()) == ["step-1.csv", "step-2.csv"]
    chunk = await harness.runtime.read_log(spec.ref, Cursor(), limit=1 << 16)
    assert chunk.data.count(b"'link.csv' is not published: it is no plain file") == 1


async def test_an_instance_ends_though_its_predictions_reach_nobody(
    harness: Harness, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    command = ("sh", "-c", "echo 1 > $TRAINING_PREDICTIONS_DIR/step-1.csv")
    spec = harness.spec("quick", command=command, predictions_uri=f"{tmp_path}/file/no")
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([spec])
        await seen.state("quick", 0, "succeeded")
    chunk = await harness.runtime.read_log(spec.ref, Cursor(), limit=1 << 16)
    assert b"cannot publish predictions" in chunk.data


# progress, ports, readiness --------------------------------------------------------------------------
async def test_progress_reaches_the_watcher(harness: Harness) -> None:
    reporter = """
import time
from airflow_training.agent.progress import report
report(step=1, total_steps=9)
report(step=2, total_steps=9, epoch=0.5, samples=128, metrics={"loss": 0.25})
time.sleep(3600)
"""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper", command=python_script(reporter))])
        await seen.until(lambda now: any(i.progress and i.progress.step == 2 for i in now.values()))
        found = seen.now["sleeper", 0].progress
        assert found is not None
        assert (found.total_steps, found.epoch, found.samples) == (9, 0.5, 128)
        assert found.metrics == {"loss": 0.25}
        assert found.time is not None


async def test_the_last_progress_is_told_with_the_end(harness: Harness) -> None:
    script = """echo '{"step": 7}' >> $TRAINING_PROGRESS_FILE"""
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("quick", command=("sh", "-c", script))])
        found = await seen.state("quick", 0, "succeeded")
        assert found.progress is not None
        assert found.progress.step == 7


SERVE = """
import socket, sys, time
time.sleep(0.3)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(3600)
"""


async def test_a_command_starts_once_its_port_can_be_bound(
    harness: Harness, tmp_path: Path
) -> None:
    """Without SO_REUSEADDR, as most frameworks bind."""
    binds = python_script("import os, socket; socket.socket().bind(('', int(os.environ['PORT'])))")
    with socket.create_server(("", 0)) as before:
        port = before.getsockname()[1]
        spec = harness.spec("quick", command=binds, env={"PORT": str(port)}, ports={"main": port})
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create([spec])
            waits = await seen.state("quick", 0, "pending", reason="CheckingEnvironment")
            assert waits.message == f"waits until port {port} is free: it is still in use"
            before.close()
            await seen.state("quick", 0, "succeeded")


async def test_nobody_takes_the_port_of_an_instance_that_waits(
    harness: Harness, tmp_path: Path
) -> None:
    port = (await harness.runtime.prepare(harness.run, JOB))["broken"][0].ports["main"]
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create(
            [harness.spec("broken", ports={"main": port}, in_place_seconds=60)]
        )
        found = await seen.state("broken", 0, "failed", in_place=True)
        stranger = socket.socket()
        with stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("", port))
        binds = python_script(f"import socket; socket.socket().bind(('', {port}))")
        again = harness.spec("broken", attempt=1, command=binds, ports={"main": port})
        await harness.runtime.restart_process(harness.ref("broken", uid=found.uid), again)
        await seen.state("broken", 0, "succeeded")


async def test_an_agent_from_before_an_upgrade_is_understood_and_never_handed_a_new_order(
    harness: Harness, tmp_path: Path
) -> None:
    """What it was started with had no version, and fields that are not read any more."""
    folder = attempt_folder(tmp_path, harness, "broken")
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("broken", in_place_seconds=60)])
        await seen.state("broken", 0, "failed", in_place=True)
        written = read_json(folder.spec) or {}
        del written["version"]
        write_json(folder.spec, {**written, "run": "r", "controller": "c", "gpus": []})
        standing = read_attempt_state(folder)
        assert standing is not None
        assert standing.life is AgentLiveness.WAITING
        before = observe(standing)
        assert before is not None
        assert (before.state, before.exit_code, before.uid) == ("failed", 3, written["uid"])
        again = harness.spec("broken", attempt=1, in_place_seconds=60)
        refused = await harness.runtime.restart_process(
            harness.ref("broken", uid=before.uid), again
        )
        assert refused.result == "refused"
        assert "another version" in refused.message
        await harness.runtime.dismiss([harness.ref("broken", uid=before.uid)])
        await seen.state("broken", 0, "failed", in_place=False)
        assert (await harness.runtime.create([again]))[0].result == "created"


async def test_an_open_port_is_seen(harness: Harness) -> None:
    role = ResolvedRole(name="sleeper", replicas=1, ports={"main": 1})
    addresses = await harness.runtime.prepare(harness.run, ResolvedJob(name="c", roles=(role,)))
    ports = addresses["sleeper"][0].ports
    command = (*python_script(SERVE), str(ports["main"]))
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper", command=command, ports=ports)])
        first = await seen.state("sleeper", 0, "running")
        assert not first.port_open
        found = await seen.state("sleeper", 0, "running", port_open=True)
        assert found.address == f"127.0.0.1:{ports['main']}"


def ready_template(probe: dict[str, object]) -> dict[str, object]:
    timing = {"periodSeconds": 0.1, "initialDelaySeconds": 0.1}
    container = {"name": "main", "readinessProbe": {**timing, **probe}}
    return {"spec": {"containers": [container]}}


@pytest.mark.parametrize(
    "probe",
    [
        pytest.param({"exec": {"command": ["test", "-e", "$FLAG"]}}, id="exec"),
        pytest.param({"tcpSocket": {"port": "main"}}, id="tcp"),
        pytest.param({"httpGet": {"port": "main", "path": "/ok"}}, id="http"),
    ],
)
async def test_readiness_is_probed(
    harness: Harness, tmp_path: Path, probe: dict[str, object]
) -> None:
    role = ResolvedRole(name="sleeper", replicas=1, ports={"main": 1})
    addresses = await harness.runtime.prepare(harness.run, ResolvedJob(name="c", roles=(role,)))
    ports = addresses["sleeper"][0].ports
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "ok").touch()
    go = tmp_path / "go"
    serve = f"""
import http.server, os, time
while not os.path.exists({str(go)!r}):
    time.sleep(0.02)
os.chdir({str(tmp_path / "www")!r})
http.server.ThreadingHTTPServer(("127.0.0.1", {ports["main"]}),
    http.server.SimpleHTTPRequestHandler).serve_forever()
"""
    text = json.dumps(ready_template(probe)).replace("$FLAG", str(go))
    async with watching(harness.runtime, harness.run) as seen:
        spec = harness.spec(
            "sleeper",
            command=python_script(serve),
            ports=ports,
            resolved=ResolvedRole(name="sleeper", replicas=2, template=json.loads(text)),
        )
        await harness.runtime.create([spec])
        running = await seen.state("sleeper", 0, "running")
        assert not running.ready
        assert running.address_live
        go.touch()
        await seen.state("sleeper", 0, "running", ready=True)


async def test_an_instance_without_a_probe_is_ready_when_it_runs(harness: Harness) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.create([harness.spec("sleeper")])
        assert (await seen.state("sleeper", 0, "running")).ready


# the remote shell ----------------------------------------------------------------------------------
async def test_the_remote_shell_runs_inside_the_other_instance(
    harness: Harness, tmp_path: Path
) -> None:
    host = f"{harness.run.prefix}-sleeper-0"
    inside = 'echo "$ROLE $PPID"; cat; echo oops >&2; exit 5'
    call = f"echo typed | $TRAINING_REMOTE_SHELL -x -o A=b {host}.anything '{inside}'; echo rc=$?"
    await harness.runtime.create([harness.spec("sleeper", env={"ROLE": "worker"})])
    folder = await run_quick(harness, tmp_path, command=("sh", "-c", call))
    worker = read_json(attempt_folder(tmp_path, harness, "sleeper").state)
    assert worker is not None
    agent = worker["agent"]["pid"]
    assert folder.log.read_text() == f"worker {agent}\ntyped\noops\nrc=5\n"


async def test_the_remote_shell_names_the_hosts_there_are(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "airflow_training.agent.remote_shell"
    call = (
        f"import {program} as r, sys; r._WAIT_SECONDS = 0; sys.exit(r.remote_shell(['w', 'true']))"
    )
    folder = await run_quick(
        harness, tmp_path, command=("sh", "-c", f'{sys.executable} -c "{call}"; echo rc=$?')
    )
    said = folder.log.read_text()
    assert "cannot reach 'w'" in said
    assert f"{harness.run.prefix}-quick-0" in said
    assert said.endswith("rc=255\n")


async def test_a_remote_command_ends_with_its_caller(harness: Harness, tmp_path: Path) -> None:
    host = f"{harness.run.prefix}-sleeper-0"
    call = f"exec $TRAINING_REMOTE_SHELL {host} 'echo $$$$; exec sleep 3600'"
    await harness.runtime.create([harness.spec("sleeper")])
    async with watching(harness.runtime, harness.run) as seen:
        made = await harness.runtime.create([harness.spec("quick", command=("sh", "-c", call))])
        log = attempt_folder(tmp_path, harness, "quick").log
        wait_until(lambda: log.read_text().endswith("\n"))
        remote = int(log.read_text())
        await harness.runtime.delete([made[0].ref], grace_seconds=0)
        await seen.gone("quick", 0)
        wait_until(lambda: not Path(f"/proc/{remote}").exists())
        assert seen.now["sleeper", 0].state == "running"


async def test_a_watch_looks_at_progress_only_while_nothing_happens(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def note(name: str) -> None:
        look = getattr(Scanner, name)

        def noted(*arguments: Any) -> Any:
            looks.append(name)
            return look(*arguments)

        monkeypatch.setattr(Scanner, name, noted)

    for name in ("poll", "poll_progress", "poll_ports"):
        note(name)
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(watch, "_PROGRESS_SECONDS", 0.05)
    await harness.runtime.create([harness.spec("sleeper", i) for i in range(2)])
    async with watching(harness.runtime, harness.run) as seen:
        await seen.until(lambda now: all(i.state == "running" for i in now.values()))
        await until(lambda: looks[-10:] == ["poll_progress"] * 10)


def test_a_watch_looks_at_progress_each_second_and_at_everything_each_five() -> None:
    now = 0.0
    rhythm = watch._PollSchedule(lambda: now)
    scanner: Any = SimpleNamespace(
        poll=lambda _: "all", poll_progress=lambda: "progress", poll_ports=lambda: "ports"
    )
    looks: Counter[Any] = Counter()
    while now < 60:
        now += rhythm.pause(ports=False)
        looks[rhythm.due(scanner)()] += 1
    assert looks == {"all": 12, "progress": 59}  # one more is due now
