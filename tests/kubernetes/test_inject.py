"""The agent in a pod: what is injected, and the program itself as a real process."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent.devices import COMMAND
from airflow_training.agent.order import ORDER_VARIABLE, VERSION, Order
from airflow_training.agent.package import portable_agent
from airflow_training.control.readiness import required_hardware
from airflow_training.documents.resolved_blocks import ResolvedCheckpoint, StallRules
from airflow_training.runtimes.kubernetes import inject, names
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.gangs import pod_requests
from airflow_training.runtimes.kubernetes.objects import agent_document, answer_documents
from airflow_training.runtimes.kubernetes.pod_files import answer_shards
from airflow_training.runtimes.kubernetes.pods import PodOptions, needs_agent
from tests.kubernetes.emulator.environment import expand
from tests.kubernetes.samples import (
    OPTIONS,
    RUN,
    a_container,
    a_job,
    a_pod,
    a_role,
    an_instance,
    main_container,
)
from tests.kubernetes.strict import complaints
from tests.rounds import Reads
from tests.waiting import PATIENCE, wait_until

UID = "3f0c"


# what is injected --------------------------------------------------------------------------------
def hold_of(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(
        each for each in pod["spec"]["initContainers"] if each["name"] == names.AGENT_CONTAINER
    )
    return found


def order_of(pod: dict[str, Any]) -> Order:
    """Return the order that the agent of a pod gets from its kubelet."""
    variables = {each["name"]: each.get("value", "") for each in main_container(pod)["env"]}
    return Order.of_text(expand(variables[ORDER_VARIABLE], {}))


def test_an_image_without_anything_works_when_nothing_is_asked():
    distroless = a_role(main={"name": "main", "image": "gcr.io/distroless/static"})
    pod = a_pod(a_job(distroless))
    assert "initContainers" not in pod["spec"]
    assert "command" not in main_container(pod)
    assert not any("agent" in volume["name"] for volume in pod["spec"]["volumes"])
    assert not needs_agent(an_instance(a_job(distroless)), OPTIONS)
    reporting = PodOptions(callback_url="http://airflow")
    assert "command" not in main_container(a_pod(a_job(distroless), options=reporting))


def test_a_held_instance_waits_in_a_restricted_init_container():
    pod = a_pod(a_job(a_role(spec={"initContainers": [a_container("fetch")]})), held=True)
    assert complaints(pod) == []
    assert [each["name"] for each in pod["spec"]["initContainers"]] == [
        "fetch",
        names.AGENT_CONTAINER,
    ]
    hold = hold_of(pod)
    assert hold["image"] == "agent:1"
    security = hold["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert main_container(pod)["command"] == ["python", "train.py"]
    assert pod["metadata"]["annotations"][names.HELD] == "true"


@pytest.mark.parametrize(
    ("asked", "beside"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"requests": {"cpu": "1"}}, [], id="only-cpu-as-in-a-queue-of-cpus"),
        pytest.param(
            {"requests": {"cpu": "50m", "memory": "32Mi"}}, [], id="less-than-an-agent-had"
        ),
        pytest.param({"limits": {"cpu": "2", "memory": "1Gi"}}, [], id="guaranteed"),
        pytest.param({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, [], id="burstable"),
        pytest.param({"limits": {"cpu": 2, "nvidia.com/gpu": 8}}, [], id="with-gpus"),
        pytest.param(
            {"requests": {"cpu": "1"}},
            [a_container("proxy", restartPolicy="Always", resources={"requests": {"cpu": "1"}})],
            id="after-a-sidecar",
        ),
    ],
)
def test_a_held_pod_asks_for_what_it_would_ask_for_otherwise(asked, beside):
    main = a_container(**({"resources": asked} if asked else {}))
    job = a_job(a_role(main=main, spec={"initContainers": beside} if beside else {}))
    held, plain = a_pod(job, held=True)["spec"], a_pod(job)["spec"]
    assert pod_requests(held) == pod_requests(plain)
    assert quality_of(held) == quality_of(plain)
    assert "nvidia.com/gpu" not in str(hold_of({"spec": held})["resources"])


def quality_of(spec: dict[str, Any]) -> str:
    """Return the class that Kubernetes gives a pod: by limits and requests of all of its containers."""
    asked = [
        each.get("resources") or {}
        for each in [*(spec.get("initContainers") or ()), *spec["containers"]]
    ]
    if all(
        each.get("limits", {}).keys() >= {"cpu", "memory"}
        and {**each["limits"], **each.get("requests", {})} == each["limits"]
        for each in asked
    ):
        return "Guaranteed"
    return "Burstable" if any(asked) else "BestEffort"


@pytest.mark.parametrize(
    ("pod_security", "configured", "user"),
    [
        pytest.param({}, 65532, 65532, id="nobody-is-named"),
        pytest.param({"runAsUser": 0}, 65532, 65532, id="never-root"),
        pytest.param({"runAsUser": 1000}, 65532, None, id="the-pods-own"),
        pytest.param({}, 0, None, id="openshift-says-who"),
        pytest.param({"runAsUser": 1000}, 7, None, id="the-pods-own-first"),
        pytest.param({"runAsNonRoot": True}, 7, 7, id="as-configured"),
    ],
)
def test_who_the_init_container_runs_as(pod_security, configured, user):
    options = dataclasses.replace(OPTIONS, agent_user=configured)
    job = a_job(a_role(spec={"securityContext": pod_security}))
    security = hold_of(a_pod(job, held=True, options=options))["securityContext"]
    assert security.get("runAsUser") == user
    assert security["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("agent_image", "policy"), [("agent:latest", "IfNotPresent"), ("", "Always")]
)
def test_the_agents_image_is_pulled_only_where_it_is_missing(agent_image, policy):
    options = dataclasses.replace(OPTIONS, agent_image=agent_image)
    job = a_job(a_role(main=a_container(imagePullPolicy="Always")))
    assert hold_of(a_pod(job, held=True, options=options))["imagePullPolicy"] == policy


def test_without_an_agent_image_the_users_own_is_taken():
    pod = a_pod(held=True, options=PodOptions(agent_config_map="m"))
    assert hold_of(pod)["image"] == "train:1"


def test_the_release_reaches_the_pod_without_rights():
    pod = a_pod(held=True)
    (volume,) = [v for v in pod["spec"]["volumes"] if "downwardAPI" in v]
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{names.RELEASE}']"
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_large_answers_have_a_place_from_the_start():
    small, large = a_job(a_role("worker", 100)), a_job(a_role("worker", 5000))
    assert answer_shards(facts_of(RUN, small)) == 0
    shards = answer_shards(facts_of(RUN, large))
    pod = a_pod(large, held=True)
    (volume,) = [v for v in pod["spec"]["volumes"] if "projected" in v]
    sources = [source["configMap"] for source in volume["projected"]["sources"]]
    assert all(source["optional"] for source in sources)
    documents = answer_documents(
        RUN, pod["metadata"]["name"], UID, "x" * 1000, shard_bytes=999, record_uid="u"
    )
    assert len(sources) == shards >= len(documents) == 2
    assert [d["metadata"]["name"] for d in documents] == [s["name"] for s in sources[:2]]


def test_output_and_progress_make_the_agent_the_parent_of_the_command():
    job = a_job(output_uri="s3://b/$(x)", output_role="worker")
    pod = a_pod(job)
    command = main_container(pod)["command"]
    assert command[:5] == ["python3", "-I", "-S", command[3], "run"]
    assert command[command.index("--") + 1 :] == ["python", "train.py"]
    text = next(e["value"] for e in main_container(pod)["env"] if e["name"] == ORDER_VARIABLE)
    assert "s3://b/$$(x)" in text
    order = order_of(pod)
    assert order.output_uri == "s3://b/$(x)"
    assert order.predictions_dir == "/training/predictions"
    assert order.predictions_uri.startswith("s3://b/$(x).predictions/")
    assert order.predictions_uri.endswith("/worker-0")
    env = {each["name"]: each.get("value") for each in main_container(pod)["env"]}
    assert env["TRAINING_PREDICTIONS_DIR"] == "/training/predictions"
    assert order.progress_uri == "s3://b/$(x).progress/worker-0.json"
    mounts = {m["mountPath"]: m for m in main_container(pod)["volumeMounts"]}
    assert command[3].startswith(f"{inject.AGENT_FOLDER}/program/")
    assert mounts[f"{inject.AGENT_FOLDER}/program"]["readOnly"] is True
    assert "initContainers" not in pod["spec"]
    assert a_pod(job, index=1)["spec"]["containers"][0]["command"] == ["python", "train.py"]


def test_progress_beside_a_whole_bucket_is_inside_it():
    pod = a_pod(a_job(output_uri="s3://b/", output_role="worker"))
    assert order_of(pod).progress_uri == "s3://b/progress/worker-0.json"


def test_progress_goes_to_the_callback_with_a_token_that_is_a_secret():
    options = PodOptions(agent_config_map="m", callback_url="https://airflow/training/")
    pod = a_pod(options=options)
    assert order_of(pod).progress_url == f"https://airflow/training/runs/{RUN.uid}/progress"
    token = main_container(pod)["env"][-1]
    assert token["valueFrom"]["secretKeyRef"]["name"] == names.callback_secret_name(RUN)
    silent = a_job(a_role(metadata={"annotations": {names.AGENT: "false"}}))
    assert main_container(a_pod(silent, options=options))["command"] == ["python", "train.py"]


# the program -------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(portable_agent())
    return path


def test_the_program_fits_into_a_config_map_and_brings_no_byte_code():
    assert len(portable_agent()) <= 512 * 1024
    assert b".pyc" not in portable_agent()
    assert portable_agent() == portable_agent()
    document = agent_document(RUN, portable_agent(), record_uid="u")
    digest = hashlib.sha256(portable_agent()).hexdigest()[:8]
    assert document["metadata"]["name"] == f"digits-01234-agent-{digest}"


def pythons() -> list[Any]:
    """Return this Python, and the oldest that the agent has to run on, where there is one."""
    found = [pytest.param(sys.executable, id="this-python")]
    old = [*Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8")]
    with contextlib.suppress(TypeError):
        old.append(Path(shutil.which("python3.8")))  # type: ignore[arg-type]
    for each in old:
        probe = subprocess.run([each, "-c", "pass"], check=False, capture_output=True)
        if probe.returncode == 0:
            return [*found, pytest.param(str(each), id="python-3.8")]
    return found


@pytest.fixture(params=pythons())
def python(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@contextlib.contextmanager
def agent(
    python: str, program: Path, order: Order, *arguments: object, **env: str
) -> Iterator[subprocess.Popen[str]]:
    """Start the agent; it is gone at the end, whatever happened."""
    ordered = {ORDER_VARIABLE: order.text()}
    process = subprocess.Popen(
        [python, "-I", "-S", str(program), *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **ordered, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until_it_looked(process: subprocess.Popen[str], release: Path) -> None:
    """Return when it has read its release several times, and waits on."""
    with Reads(release) as reads:
        wait_until(reads.more(), alive=lambda: process.poll() is None)


def holding(tmp_path: Path) -> Order:
    (tmp_path / "files").mkdir()
    source = tmp_path / "files" / "live-0"
    source.write_text("host a\n")
    return Order(
        held=True,
        release_file=str(tmp_path / "release"),
        answers_dir=str(tmp_path / "answers"),
        addresses_file=str(tmp_path / "training" / "addresses.json"),
        live_files={
            str(tmp_path / "live" / "live-0"): {"source": str(source)},
            str(tmp_path / "live" / "run"): {"source": str(source), "executable": True},
        },
    )


def test_hold_waits_for_the_release_that_means_this_pod(tmp_path, program, python):
    release = tmp_path / "release"
    release.write_text(json.dumps({"uid": "another", "kind": "Confirmation"}))
    with agent(python, program, holding(tmp_path), "hold", TRAINING_POD_UID=UID) as process:
        until_it_looked(process, release)
        assert not (tmp_path / "live").exists()
        answer = {"uid": UID, "kind": "List", "addresses": {"ps": ["a:1"]}}
        release.write_text(json.dumps(answer))
        assert process.wait(PATIENCE) == 0
    written = tmp_path / "live" / "live-0"
    assert written.read_text() == "host a\n"
    assert written.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "live" / "run").stat().st_mode & 0o777 == 0o755
    assert json.loads((tmp_path / "training" / "addresses.json").read_text()) == {"ps": ["a:1"]}


def test_hold_puts_a_large_answer_together(tmp_path, program, python):
    addresses = {"worker": [f"digits-{i}:1" for i in range(50)]}
    documents = answer_documents(
        RUN, "p", UID, json.dumps(addresses), shard_bytes=100, record_uid="u"
    )
    release = tmp_path / "release"
    release.write_text(json.dumps({"uid": UID, "kind": "List", "shards": len(documents)}))
    folder = tmp_path / "answers"
    folder.mkdir()
    parts = {key: text for each in documents for key, text in each["data"].items()}
    last = list(parts)[-1]
    for key in list(parts)[:-1]:
        (folder / key).write_text(parts[key])
    (folder / f"other-{len(parts) - 1}").write_text("of an older pod")
    with agent(python, program, holding(tmp_path), "hold", TRAINING_POD_UID=UID) as process:
        until_it_looked(process, release)
        (folder / last).write_text(parts[last])
        assert process.wait(PATIENCE) == 0
    assert json.loads((tmp_path / "training" / "addresses.json").read_text()) == addresses


def test_hold_ends_when_it_is_told_to(tmp_path, program, python):
    release = tmp_path / "release"
    release.write_text("{}")
    with agent(python, program, holding(tmp_path), "hold", TRAINING_POD_UID=UID) as process:
        until_it_looked(process, release)  # before that it would end by the signal itself
        process.terminate()
        assert process.wait(PATIENCE) == 143


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["true"], 0),
        (["there-is-no-such-command"], 127),
        (["/"], 126),
    ],
)
def test_run_ends_as_the_command_did(tmp_path, program, python, command, code):
    log = tmp_path / "termination-log"
    with agent(python, program, Order(termination_log=str(log)), "run", "--", *command) as process:
        assert process.wait(PATIENCE) == code
    if code in (126, 127):
        assert json.loads(log.read_text())["airflow-training"]["reason"] in (
            "CommandNotFound",
            "StartError",
        )
    else:  # then the end of the log is the message
        assert not log.exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_run_passes_signals_on(tmp_path, program, python, name):
    ready, got = tmp_path / "ready", tmp_path / "got"
    script = f"trap 'echo {name} > {got}; exit 9' {name[3:]}; echo > {ready}; while :; do sleep 0.05; done"
    with agent(python, program, Order(), "run", "--", "sh", "-c", script) as process:
        wait_until(ready.exists)
        process.send_signal(getattr(signal, name))
        assert process.wait(PATIENCE) == 9
    assert got.read_text().strip() == name


def test_run_buries_orphans_and_keeps_the_commands_streams(program, python):
    script = "(sleep 0.2 &) ; echo out; echo err >&2; exit 3"
    with agent(python, program, Order(), "run", "--", "sh", "-c", script) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (3, "out\n", "err\n")


def uploading(tmp_path: Path, uri: str) -> Order:
    (tmp_path / "output").mkdir()
    return Order(
        output_dir=str(tmp_path / "output"),
        output_uri=uri,
        termination_log=str(tmp_path / "log"),
    )


def last_words(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "log").read_text())["airflow-training"]
    return found


def test_run_uploads_the_output_and_leaves_the_result(tmp_path, program, python):
    uri = f"file://{tmp_path}/bucket/final"
    order = uploading(tmp_path, uri)
    script = f"echo model > {tmp_path}/output/m.txt"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "bucket" / "final" / "m.txt").read_text() == "model\n"
    output = last_words(tmp_path)["output"]
    assert (output["uri"], output["bytes"], output["files"]) == (uri, 6, 1)
    assert output["digest"].startswith("sha256:")
    assert (tmp_path / "log").stat().st_size <= 4096


def test_a_failed_upload_fails_the_instance(tmp_path, program, python):
    (tmp_path / "file").write_text("in the way")
    order = uploading(tmp_path, f"file://{tmp_path}/file/final")
    script = f"echo model > {tmp_path}/output/m.txt"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        assert process.wait(PATIENCE) == 1
    said = last_words(tmp_path)
    assert said["reason"] == "OutputFailed"
    assert "could not be uploaded" in said["message"]


@pytest.mark.parametrize("code", [0, 5])
def test_run_publishes_predictions_however_the_command_ends(tmp_path, program, python, code):
    there = tmp_path / "bucket" / "worker-0"
    folder = tmp_path / "predictions"  # the agent makes it
    order = Order(predictions_dir=str(folder), predictions_uri=f"file://{there}")
    script = f"cd {folder}; echo 1 > .a; mv .a step-1.csv; echo x > a.html; exit {code}"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert [each.name for each in there.iterdir()] == ["step-1.csv"]
    assert "'a.html' is not published: its name" in err


@pytest.mark.parametrize("code", [0, 5])
def test_what_was_told_to_end_uploads_nothing(tmp_path, program, python, code):
    order = uploading(tmp_path, f"file://{tmp_path}/bucket")
    ready = tmp_path / "ready"
    script = f"trap 'exit {code}' TERM; echo > {ready}; while :; do sleep 0.05; done"
    with agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        wait_until(ready.exists)
        process.terminate()
        assert process.wait(PATIENCE) == (code or 143)
    assert not (tmp_path / "bucket").exists()


def test_a_failed_command_uploads_nothing(tmp_path, program, python):
    order = uploading(tmp_path, f"file://{tmp_path}/bucket")
    with agent(python, program, order, "run", "--", "false") as process:
        assert process.wait(PATIENCE) == 1
    assert not (tmp_path / "bucket").exists()


# progress ----------------------------------------------------------------------------------------
class Callback(HTTPServer):
    """Keeps what was posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/runs/x/progress"


class _Handler(BaseHTTPRequestHandler):
    server: Callback

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def callback() -> Iterator[Callback]:
    server = Callback()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


SCRIPT = """
echo '{"step": 1}' >> "$FILE"; echo '{"step": 2}' >> "$FILE"; printf '{"step": 3' >> "$FILE"
test -z "$TRAINING_CALLBACK_TOKEN"
"""


def test_run_posts_the_newest_progress_with_its_token(tmp_path, program, python, callback):
    progress = tmp_path / "progress.jsonl"
    order = Order(progress_file=str(progress), progress_url=callback.url)
    env = {
        "TRAINING_CALLBACK_TOKEN": "secret",
        "TRAINING_ROLE": "worker",
        "TRAINING_INDEX": "3",
        "TRAINING_ATTEMPT": "1",
        "TRAINING_JOB_ATTEMPT": "0",
        "FILE": str(progress),
    }
    with agent(python, program, order, "run", "--", "sh", "-c", SCRIPT, **env) as process:
        assert process.wait(PATIENCE) == 0  # also: the command does not see the token
    path, authorization, body = callback.posted[-1]
    assert (path, authorization) == ("/runs/x/progress", "Bearer secret")
    record = json.loads(body.pop("environment"))
    assert (record["on"], record["exit"]) == ("exit", {"exit_code": 0, "signal": None})
    kept = (tmp_path / "environment.jsonl").read_text().splitlines()
    assert json.loads(kept[-1]) == record, "a checkpoint can name it"
    assert body == {
        "role": "worker",
        "index": "3",
        "attempt": "1",
        "job_attempt": "0",
        "progress": {"step": 2},
    }


def test_the_command_starts_once_its_port_can_be_bound(program, python):
    """Of a pod that stays: what is left of the connections of the attempt before keeps the port."""
    binds = "import os, socket; socket.socket().bind(('', int(os.environ['PORT'])))"
    with socket.create_server(("", 0)) as before:
        port = str(before.getsockname()[1])
        order = Order(ports={"first": int(port)})
        with agent(python, program, order, "run", "--", python, "-c", binds, PORT=port) as process:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert f"waits until port {port} is free" in said
            before.close()
            assert process.wait(PATIENCE) == 0


def test_without_a_callback_progress_is_left_in_storage(tmp_path, program, python):
    progress, target = tmp_path / "progress.jsonl", tmp_path / "out.progress" / "worker-0.json"
    order = Order(progress_file=str(progress), progress_uri=f"file://{target}")
    env = {"FILE": str(progress), "TRAINING_INDEX": "0"}
    with agent(python, program, order, "run", "--", "sh", "-c", SCRIPT, **env) as process:
        assert process.wait(PATIENCE) == 0
    assert json.loads(target.read_text())["progress"] == {"step": 2}


def test_training_goes_on_when_nobody_takes_its_reports(tmp_path, program, python):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        progress = tmp_path / "p"
        order = Order(progress_file=str(progress), progress_url=url)
        env = {"FILE": str(progress)}
        with agent(python, program, order, "run", "--", "sh", "-c", SCRIPT, **env) as process:
            _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert err.count("cannot report progress") == 1


@pytest.mark.parametrize(
    ("text", "arguments", "why"),
    [
        pytest.param("{}", ["hold"], "nothing is to be held", id="hold-nothing"),
        pytest.param("{}", ["run"], "no command", id="no-command"),
        pytest.param("{}", ["run", "--"], "no command", id="an-empty-command"),
        pytest.param("{", ["run", "--", "true"], "no JSON", id="no-json"),
        pytest.param("[]", ["run", "--", "true"], "no JSON object", id="no-object"),
        pytest.param(
            json.dumps({"version": VERSION + 1}),
            ["run", "--", "true"],
            f"understands versions up to {VERSION}",
            id="of-a-later-version",
        ),
        pytest.param(
            json.dumps({"version": VERSION, "what": 1}),
            ["run", "--", "true"],
            "has no field 'what'",
            id="an-unknown-field",
        ),
    ],
)
def test_an_order_that_is_not_understood_is_refused(program, python, text, arguments, why):
    with agent(python, program, Order(), *arguments, **{ORDER_VARIABLE: text}) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert why in err
    assert "usage: agent hold" in err
    assert "Traceback" not in err


def test_last_words_are_never_too_long_to_be_read(tmp_path, program, python):
    log = tmp_path / "termination-log"
    command = "ü" * 1500
    with agent(python, program, Order(termination_log=str(log)), "run", "--", command) as process:
        assert process.wait(PATIENCE) == 126
    assert log.stat().st_size <= 2000
    words = json.loads(log.read_text())["airflow-training"]
    assert words["reason"] == "StartError"
    assert words["message"].startswith("ü" * 100)


def test_run_ends_what_hangs_and_says_where_it_stood(tmp_path, program, python):
    progress = tmp_path / "progress"
    script = f"""
import json, time
def here_it_waits():
    time.sleep(600)
with open({str(progress)!r}, "a") as file:
    for step in range(12):
        file.write(json.dumps({{"step": step, "time": step / 100}}) + "\\n")
here_it_waits()
"""
    order = Order(
        progress_file=str(progress),
        stall={"stallSeconds": 0.5},
        termination_log=str(tmp_path / "log"),
    )
    command = [sys.executable, "-X", "faulthandler", "-c", script]
    with agent(python, program, order, "run", "--", *command) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert last_words(tmp_path)["reason"] == "Hang"
    assert "after step 11" in last_words(tmp_path)["message"]
    assert "here_it_waits" in err


def test_a_folder_that_cannot_be_committed_keeps_the_command_from_starting(tmp_path, program):
    told = {
        "root": "nowhere://a/b", "group": "job", "incarnation": "0.0.0", "order": 0, "keep": 3,
        "keep_every": None, "resume": {"kind": "latest", "not_after": None}, "initial": None,
        "environment": "",
    }  # fmt: skip
    order = Order(watch=str(tmp_path / "out"), termination_log=str(tmp_path / "log"))
    command = ["touch", tmp_path / "started"]
    env = {"TRAINING_CHECKPOINT": json.dumps(told)}
    with agent(sys.executable, program, order, "run", "--", *command, **env) as process:
        assert process.wait(PATIENCE) == 1
    assert last_words(tmp_path)["reason"] == "CheckpointRefused"
    assert not (tmp_path / "started").exists()


# what has to be there before the command starts --------------------------------------------------
NPU = '[{"id": "0", "name": "NPU"}]'


def readiness(tmp_path: Path, *, progress_uri: str = "", **more: Any) -> Order:
    asked = required_hardware(
        a_job(checkpoint=ResolvedCheckpoint(uri="s3://b/c")), {"nvidia.com/gpu": "1"}
    )
    assert asked is not None
    return Order(
        progress_file=str(tmp_path / "progress"),
        progress_uri=progress_uri,
        termination_log=str(tmp_path / "log"),
        readiness={**asked.to_document(), "timeout_seconds": 30.0, **more},
    )


def test_a_pod_of_a_job_with_a_checkpoint_is_checked_for_what_its_limits_say():
    gpus = a_container(resources={"limits": {"nvidia.com/gpu": 8}})
    job = a_job(a_role(main=gpus), checkpoint=ResolvedCheckpoint(uri="s3://b/c"))
    asked = order_of(a_pod(job)).readiness
    assert asked is not None
    assert (asked["devices"], asked["timeout_seconds"]) == (8, 60.0)
    assert "before" not in asked
    keeps_none = a_job(output_uri="s3://b", output_role="worker")
    assert order_of(a_pod(keeps_none)).readiness is None


@pytest.mark.parametrize(
    ("rules", "ordered"),
    [
        pytest.param(None, {}, id="as-the-agent-thinks-right"),
        pytest.param(StallRules(seconds=30), {"stallSeconds": 30, "sections": {}}, id="the-jobs"),
    ],
)
def test_a_pod_of_a_job_with_a_checkpoint_looks_for_hangs(rules, ordered):
    job = a_job(checkpoint=ResolvedCheckpoint(uri="s3://b/c", stall=rules))
    assert order_of(a_pod(job)).stall == ordered


def test_run_starts_the_command_once_all_is_there(tmp_path, program, python):
    there = tmp_path / "there"
    env = {COMMAND: f"if [ -e {there} ]; then echo '{NPU}'; else echo '[]'; fi"}
    command = ["sh", "-c", f"test -e {there} && echo started"]
    with agent(python, program, readiness(tmp_path), "run", "--", *command, **env) as process:
        assert process.stderr is not None
        assert "devices: 0 of 1 are there" in process.stderr.readline()
        there.touch()
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "started\n"), err
    assert "checked: node, devices, memory, disk" in err


def test_run_does_not_start_the_command_where_something_stays_away(tmp_path, program, python):
    order = readiness(tmp_path, timeout_seconds=0.5)
    env = {COMMAND: "echo '[]'"}
    with agent(
        python, program, order, "run", "--", "touch", tmp_path / "started", **env
    ) as process:
        assert process.wait(PATIENCE) == 1
    assert last_words(tmp_path)["reason"] == "EnvironmentNotReady"
    assert "devices: 0 of 1 are there" in last_words(tmp_path)["message"]
    assert not (tmp_path / "started").exists()


def test_run_ends_when_it_is_told_to_while_it_looks(tmp_path, program, python):
    pid = tmp_path / "pid"
    env = {COMMAND: f"echo $$ > {pid}; exec sleep 600"}
    with agent(python, program, readiness(tmp_path), "run", "--", "true", **env) as process:
        wait_until(lambda: pid.exists() and pid.read_text().strip())
        process.terminate()
        assert process.wait(PATIENCE) == 143
    hung = Path("/proc", pid.read_text().strip())
    wait_until(lambda: not hung.exists() or "\nState:\tZ" in (hung / "status").read_text())


def test_the_first_record_has_the_devices_that_were_found(tmp_path, program, python):
    """What an attempt had is what the next one has to find."""
    uri = f"file://{tmp_path / 'told'}"
    order = readiness(tmp_path, progress_uri=uri)
    env = {COMMAND: f"echo '{NPU}'"}
    with agent(python, program, order, "run", "--", "sleep", "600", **env) as process:
        record = tmp_path / "environment.jsonl"
        try:
            wait_until(lambda: record.exists() and "\n" in record.read_text())
            first = json.loads(record.read_text().splitlines()[0])
        finally:
            process.terminate()  # with its command
            process.wait(PATIENCE)
    assert first["on"] == "start"
    assert [each["name"] for each in first["devices"]] == ["NPU"]


def test_run_ends_when_it_is_told_to_while_its_port_is_taken(tmp_path, program, python):
    with socket.create_server(("", 0)) as before:
        order = Order(ports={"first": before.getsockname()[1]})
        with agent(python, program, order, "run", "--", "touch", tmp_path / "started") as process:
            assert process.stderr is not None
            assert "is free" in process.stderr.readline()
            process.terminate()
            assert process.wait(PATIENCE) == 143
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("at", ["while-it-runs", "before-it-starts"])
def test_a_command_that_was_ordered_to_stop_has_not_succeeded(tmp_path, program, python, at):
    """Nobody may follow: then the pod ends, and what ended well was still stopped."""
    ready, orders = tmp_path / "ready", tmp_path / "order"
    script = f"trap 'exit 0' TERM; echo > {ready}; while :; do sleep 0.05; done"
    before = socket.create_server(("", 0))
    order = Order(
        orders_file=str(orders),
        in_place_seconds=0.2,
        ports={"first": before.getsockname()[1]} if at == "before-it-starts" else {},
    )
    with before, agent(python, program, order, "run", "--", "sh", "-c", script) as process:
        if at == "while-it-runs":
            wait_until(ready.exists)
        stop = {"turn": 0, "do": "stop", "grace_seconds": 30, "dump_stacks": False}
        orders.write_text(json.dumps(stop))
        assert process.wait(PATIENCE) == 143
    assert ready.exists() == (at == "while-it-runs")


def test_an_agent_ends_its_command_at_a_deadline_of_its_own_in_a_pod_too(program, python):
    order = Order(deadline_seconds=0.3, grace_seconds=1)
    with agent(python, program, order, "run", "--", "sleep", "600") as process:
        assert process.wait(PATIENCE) == 143
