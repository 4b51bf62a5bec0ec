"""Submissions over the real app: let in or refused, completed, verified, started once."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_training.admission.check import check_text
from airflow_training.capture.layout import tree_of
from airflow_training.capture.model import Tree
from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.journal import SubmittedRun, keep_run, known_run
from airflow_training.cloud.options import RunOptions
from airflow_training.cloud.packing import plan_packs
from airflow_training.cloud.protocol import SubmissionRequest, key_of
from airflow_training.cloud.returning import ModelReturn
from airflow_training.cloud.service.admission import (
    Caller,
    Grant,
    KeyAdmission,
    QuotaRefused,
    RunRight,
)
from airflow_training.cloud.service.content import ContentFolder
from airflow_training.cloud.service.launching import ProcessLauncher
from airflow_training.cloud.service.layout import changed_files
from airflow_training.cloud.submit import Submission, prepare, submit
from airflow_training.errors import InputError, RuntimeUnavailable, TrainingError
from tests.cloud.conftest import KEY, LoopbackService, captured

LEAST = 4096
"""Bytes that a repetition may send."""


def laid_out(folder: Path) -> Tree:
    return Tree(entries=[each for each in tree_of(folder).entries if each.path != "layout.json"])


def test_a_submission_becomes_a_run_whose_files_are_those_of_here(service, project):
    submission = captured(project, "--lr", "0.1", replicas=2)
    done = submit(service.client(), submission, target="here")
    assert [*service.runs.begun] == [done.run_id]
    folder = service.folder / "runs" / done.run_id
    assert laid_out(folder).digest == submission.request.tree_digest
    assert (folder / "project" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert str((folder / "project" / "link").readlink()) == "train.py"
    [job] = service.runs.begun.values()
    assert job["spec"]["command"][1:] == ["train.py", "--lr", "0.1"]
    assert [each["replicas"] for each in job["spec"]["roles"]] == [1, 1]
    assert changed_files(folder) == []


def test_data_of_a_storage_is_read_there_and_the_job_says_which(service, project):
    submission = captured(project, "--data", "s3://bucket/{{x}}", resources={"cpu": 2}, replicas=2)
    submit(service.client(), submission, target="here")
    [job] = service.runs.begun.values()
    [checked] = check_text(json.dumps(job))
    assert checked.resolved is not None, checked.problems
    assert "bucket" in checked.resolved.data.uri
    [prepared] = [each for each in service.runs.events if each.reason == "EnvironmentReady"]
    assert prepared.message.endswith("; for 2 instances, each with cpu=2")
    assert prepared.data["asked"] == {"instances": 2, "resources": {"cpu": 2}}


@pytest.mark.parametrize("env", [(), ("TRAINING_PARAMETERS=",)])
def test_what_a_script_is_set_to_is_told_unless_the_variable_says_otherwise(service, project, env):
    submit(service.client(), captured(project, env=env), target="here")
    [job] = service.runs.begun.values()
    told = {each["name"]: each["value"] for each in job["spec"]["env"]}
    assert told["TRAINING_PARAMETERS"] == ("" if env else "tell")


def test_a_notebook_runs_as_a_script(service, project):
    cells = [{"cell_type": "code", "source": "from pkg import model\nprint(model.width)"}]
    (project / "train.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}}))
    options = RunOptions(resources={})
    run = submit(
        service.client(), prepare(["train.ipynb"], options, cwd=project), target="here"
    ).run_id
    job = service.runs.begun[run]
    script = service.folder / "runs" / run / "project" / job["spec"]["command"][-1]
    assert "print(model.width)" in script.read_text()


def test_a_secret_is_refused_with_its_place_and_sends_nothing(service, project):
    (project / "pkg" / "keys.py").write_text("\nname = '" + "AK" + "IAIOSFODNN7ABCDEFG'\n")
    with pytest.raises(InputError, match=r"pkg/keys\.py:2: .* access key would travel"):
        captured(project)
    allowed = captured(project, allow_secrets=["pkg/keys.py:2"])
    assert "project/pkg/keys.py" in [each.path for each in allowed.capture.tree.entries]


def test_the_same_again_sends_next_to_nothing_and_is_another_run(service, project):
    first = submit(service.client(), captured(project), target="here")
    again = submit(service.client(), captured(project), target="here")
    assert first.sent > 50_000
    assert again.sent <= LEAST
    assert len(service.runs.begun) == 2


def test_one_changed_file_is_sent_alone(service, project):
    submit(service.client(), captured(project), target="here")
    (project / "train.py").write_text("print(1)\n" * 100)
    again = submit(service.client(), captured(project), target="here")
    assert again.sent <= 900 + LEAST


def test_a_stranger_is_refused_before_anything_moves(service, project):
    client = service.client(key="of somebody else")
    with pytest.raises(InputError, match="cloud login"):
        submit(client, captured(project), target="here")
    assert not (service.folder / "content").exists()


def test_a_job_that_cannot_run_is_refused_before_content_moves(service, project):
    service.runs.refused = InputError.of(code="never_fits", field="resources", message="too many")
    client = service.client()
    with pytest.raises(InputError, match="too many"):
        submit(client, captured(project), target="here")
    assert client.sent <= LEAST
    assert not (service.folder / "content").exists()


@pytest.mark.e2e  # a program may be asked for the GPUs of this machine
def test_more_than_this_machine_has_is_refused_before_content_moves(service, project):
    service.submissions.launcher = ProcessLauncher()
    client = service.client()
    wanted = captured(project, replicas=4, resources={"nvidia.com/gpu": 800})
    with pytest.raises(InputError, match=r"3200 of nvidia\.com/gpu in all, this machine has"):
        submit(client, wanted, target="here")
    assert client.sent <= LEAST
    assert not (service.folder / "content").exists()


class _Poor(KeyAdmission):
    def reserve(self, account: str, submission: str, request: SubmissionRequest) -> Grant:
        raise QuotaRefused.of(code="quota", field="gpu-hours", message="none is left", hint="ask")


def test_a_quota_is_asked_before_content_moves(tmp_path, airflow_home, project):
    service = LoopbackService(tmp_path / "poor", _Poor(KEY, account="ada"))
    client = service.client()
    with pytest.raises(InputError, match="gpu-hours: none is left"):
        submit(client, captured(project), target="here")
    assert client.sent <= LEAST
    assert not (service.folder / "content").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("replicas", 0),
        ("returns", "everything"),
        ("name", "Not A Label"),
        ("manifest", "xyz"),
        ("protocol", 2),
        ("replicas", True),
        ("resources", []),
        ("command.args", [1]),
        ("command.env", {"A": 1}),
        ("command.working_dir", ""),
        ("command", {"working_dir": "project/../.."}),
    ],
)
def test_what_is_no_submission_is_named(service, project, field, value):
    document = {**captured(project).request.to_json()}
    if field.startswith("command"):
        change = value if field == "command" else {field.partition(".")[2]: value}
        document["command"] = {**document["command"], **change}
    else:
        document[field] = value
    answer = service.http().post("/submissions", content=json.dumps(document))
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field


def test_another_account_does_not_reach_a_submission(service, project):
    submission = captured(project)
    answer = service.client().submit(submission.request)
    other = LoopbackService(service.folder, KeyAdmission("other", account="eve"))
    response = other.http(key="other").post(f"/submissions/{answer.id}/start")
    assert response.status_code == 404


def test_the_id_of_another_submissions_run_is_not_taken(service, project, monkeypatch):
    client = service.client()
    first = submit(client, captured(project), target="here").run_id
    monkeypatch.setattr("airflow_training.cloud.service.submissions.run_id_of", lambda *_: first)
    with pytest.raises(InputError, match=f"the run {first} is another submission's"):
        submit(client, captured(project, replicas=2), target="here")
    monkeypatch.undo()
    second = submit(client, captured(project, replicas=2), target="here").run_id
    assert [*service.runs.begun] == [first, second]


@pytest.mark.parametrize("answered", ["../../targets", "another-0123456789"])
def test_a_service_names_no_file_of_here_and_no_run_of_another(
    service, project, monkeypatch, answered
):
    another = SubmittedRun(
        run_id="another-0123456789",
        target="elsewhere",
        root="/",
        returns="none",
        at_ns=0,
        digests={},
    )
    keep_run(another)
    client = service.client()
    asked = client.submit
    monkeypatch.setattr(client, "submit", lambda each: replace(asked(each), run_id=answered))
    with pytest.raises(RuntimeUnavailable, match="is no new run of it"):
        submit(client, captured(project), target="here")
    assert known_run("another-0123456789") == another
    assert service.runs.begun == {}


def test_each_request_may_be_answered_by_another_process(service, project):
    submission = captured(project)
    sizes = {
        name: len(each) for name, each in submission.sources.items() if isinstance(each, bytes)
    }
    sizes |= submission.capture.tree.blobs

    def another() -> CloudClient:
        return LoopbackService(service.folder, service.admission).client()

    while (answer := another().submit(submission.request)).missing:
        for pack in plan_packs(answer.missing, sizes):
            another().send(answer.id, pack, submission.sources)
    assert another().start(answer.id) == another().start(answer.id) == answer.run_id
    assert another().result(answer.run_id)["files"] == []


def test_one_content_is_sent_in_pieces(service, project):
    submission = captured(project)
    http = service.http()
    client = CloudClient(http)
    answer = client.submit(submission.request)
    sha256 = submission.request.manifest
    data = submission.sources[sha256]
    assert isinstance(data, bytes)
    path, size = f"/submissions/{answer.id}/blobs/{sha256}", len(data)
    half = size // 2
    late = http.put(path, params={"size": size, "offset": half}, content=data[half:])
    assert (late.status_code, "0 bytes of it are here" in late.text) == (422, True)
    assert http.put(path, params={"size": size}, content=data[:half]).status_code == 422
    [known] = [each for each in client.submit(submission.request).missing if each.sha256 == sha256]
    assert known.have == half
    done = http.put(path, params={"size": size, "offset": half}, content=data[half:])
    assert done.json() == {"received": size - half}
    assert sha256 not in [each.sha256 for each in client.submit(submission.request).missing]


def test_what_is_no_content_of_a_submission_is_not_taken(service, project):
    http = service.http()
    answer = CloudClient(http).submit(captured(project).request)
    path = f"/submissions/{answer.id}/blobs/{'a' * 64}"
    refused = http.put(path, params={"size": 1}, content=b"x")
    assert (refused.status_code, "no content of this submission" in refused.text) == (422, True)


def test_the_version_of_the_protocol_needs_no_key(service):
    assert service.http(key="nobody's").get("/").json()["protocol"] == 1


def test_a_model_comes_back_and_goes_on_where_it_was_cut_off(service, project, tmp_path):
    client = service.client()
    run = submit(client, captured(project, returns="model"), target="here").run_id
    written = service.folder / "runs" / run / "project"
    (written / "model.pt").write_bytes(bytes(range(256)) * 100)
    (written / "notes.txt").write_text("x")
    result = client.result(run)
    assert [each["path"] for each in result["files"]] == ["model.pt"]
    assert result["others"] == ["notes.txt"]
    part = tmp_path / "part"
    part.write_bytes((bytes(range(256)) * 100)[:1000])
    client.download(run, "model.pt", to=part)
    assert part.read_bytes() == bytes(range(256)) * 100
    with pytest.raises(InputError, match="knows no"):
        client.download(run, "train.py", to=tmp_path / "other")
    outside = service.http().get(f"/runs/{run}/files/..%2F..%2F{run}%2Flayout.json")
    assert (outside.status_code, "knows no" in outside.text) == (404, True)


def test_a_model_of_an_odd_name_comes_back(service, project, monkeypatch):
    monkeypatch.chdir(project)
    client = service.client()
    run = submit(client, captured(project), target="here").run_id
    name = "größe & #1?.pt"
    (service.folder / "runs" / run / "project" / name).write_text("trained")
    known = known_run(run)
    assert known is not None
    ModelReturn(known).bring_back(client, told=lambda _: None)
    assert (project / name).read_text() == "trained"


def test_a_file_that_changes_while_it_is_sent_is_named(service, project):
    submission = captured(project)
    (project / "pkg" / "words").write_bytes(b"other " * 10)
    with pytest.raises(InputError, match=r"words(?s:.*)same command again"):
        submit(service.client(), submission, target="here")
    assert service.runs.begun == {}


def test_a_link_that_takes_the_place_of_a_model_is_not_followed(service, project, tmp_path):
    (tmp_path / "secret").write_text("not for you")
    client = service.client()
    run = submit(client, captured(project, returns="model=out"), target="here").run_id
    folder = service.folder / "runs" / run / "project" / "out"
    folder.mkdir()
    (folder / "model.pt").write_text("trained")
    assert [each["path"] for each in client.result(run)["files"]] == ["out/model.pt"]
    shutil.rmtree(folder)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.pt").write_text("not for you")
    for link, target in ((folder, tmp_path / "theirs"), (folder / "model.pt", tmp_path / "secret")):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(target)
        assert client.result(run)["files"] == []
        with pytest.raises(InputError, match="knows no"):
            client.download(run, "out/model.pt", to=tmp_path / "part")
        link.unlink()


def test_what_this_run_has_brought_before_is_replaced_and_nothing_else(
    service, project, monkeypatch
):
    monkeypatch.chdir(project)
    client = service.client()
    said: list[str] = []
    run = submit(client, captured(project, returns="checkpoints"), target="here").run_id
    there, here = service.folder / "runs" / run / "project" / "model.pt", project / "model.pt"

    def returned() -> ModelReturn:
        known = known_run(run)  # as another process reads it
        assert known is not None
        return ModelReturn(known)

    for text in ("first", "second"):
        there.write_text(text)
        returned().bring_new(client, told=said.append)
        assert here.read_text() == text
    late = returned()  # of a process that has known the run before the next one came
    there.write_text("second and a half")
    returned().bring_new(client, told=said.append)
    there.write_text("the last")
    late.bring_back(client, told=said.append)
    assert here.read_text() == "the last"
    there.write_text("second")
    late.bring_new(client, told=said.append)
    said[2:] = []
    with there.open("wb") as file:
        file.write(b"half")
        file.flush()
        returned().bring_new(client, told=said.append)
        assert here.read_text() == "second"
    here.write_text("mine")
    there.write_text("third")
    model = returned()
    for _ in range(2):
        model.bring_new(client, told=said.append)
    assert here.read_text() == "mine"
    assert (project / f"model.pt.cloud-{run}").read_text() == "third"
    assert [each.partition(":")[0] for each in said] == [
        "model",
        "model",
        "the file here was changed while the run went on",
    ]


def test_a_named_model_that_was_not_written_is_told_with_what_was(service, project):
    client = service.client()
    run = submit(client, captured(project, returns="model=out"), target="here").run_id
    (service.folder / "runs" / run / "project" / "other.pt").write_text("x")
    known = known_run(run)
    assert known is not None
    with pytest.raises(InputError, match=r"has not written 'out'; it wrote other\.pt, below"):
        ModelReturn(known).bring_back(client, told=print)


def test_a_model_is_put_beside_a_file_that_was_changed_here(service, project, monkeypatch):
    monkeypatch.chdir(project)
    client = service.client()
    said: list[str] = []
    (project / "model.pt").write_text("old")
    run = submit(client, captured(project), target="here").run_id
    (service.folder / "runs" / run / "project" / "model.pt").write_text("trained")
    (project / "model.pt").write_text("mine")
    known = known_run(run)
    assert known is not None
    ModelReturn(known).bring_back(client, told=said.append)
    assert (project / "model.pt").read_text() == "mine"
    assert (project / f"model.pt.cloud-{run}").read_text() == "trained"
    assert "was changed while the run went on" in said[0]


def test_a_run_whose_folder_was_removed_has_no_model(service, project):
    client = service.client()
    run = submit(client, captured(project), target="here").run_id
    shutil.rmtree(service.folder / "runs" / run)
    assert client.result(run)["files"] == []


def test_a_model_that_cannot_be_written_here_is_told_with_its_place(service, project):
    client = service.client()
    run = submit(client, captured(project), target="here").run_id
    written = service.folder / "runs" / run / "project"
    (written / "out").mkdir()
    (written / "out" / "model.pt").write_text("trained")
    (project / "out").write_text("a file")
    known = known_run(run)
    assert known is not None
    with pytest.raises(TrainingError, match=f"it is at {written}; .* cloud logs {run}"):
        ModelReturn(known).bring_back(client, told=lambda _: None)


# killed ---------------------------------------------------------------------------------------


class _Killed(BaseException):
    """The client is gone; what the service has, it keeps."""


POINTS = 14


class _KilledClient:
    """A client that dies at a point: before a request, in the middle of its body, or before its answer."""

    def __init__(self, http: Any, point: int) -> None:
        self._http = http
        self._points = itertools.count()
        self._point = point
        self.received = 0
        self.base_url = http.base_url

    def _is_here(self) -> bool:
        return next(self._points) == self._point

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        body = options.pop("content", b"")
        data = body if isinstance(body, bytes) else b"".join(body)
        if self._is_here():
            raise _Killed
        if path.endswith("/pack") and self._is_here():
            self._send(method, path, data[: len(data) * 2 // 3])
            raise _Killed
        answer = self._send(method, path, data)
        if self._is_here():
            raise _Killed
        return answer

    def _send(self, method: str, path: str, data: bytes) -> httpx.Response:
        self.received += len(data)
        answer: httpx.Response = self._http.request(method, path, content=data)
        return answer


def killed_and_tried_again(service: LoopbackService, project: Path, point: int) -> bool:
    """Kill a submission at a point and submit again; return whether it was killed. Asserts all that must hold."""
    submission = captured(project)
    whole = sum(submission.capture.tree.blobs.values())
    killed = _KilledClient(service.http(), point)
    try:
        submit(CloudClient(killed), submission, target="here")  # type: ignore[arg-type]
    except _Killed:
        died = True
    else:
        died = False
    assert len(service.runs.begun) <= 1
    after = _KilledClient(service.http(), -1)
    if died:
        _forget_process()
        submit(CloudClient(after), captured(project), target="here")  # type: ignore[arg-type]
    assert len(service.runs.begun) == 1, point
    manifests = sum(len(each) for each in submission.sources.values() if isinstance(each, bytes))
    lines = 150 * (len(submission.sources) + 2)
    requests = 8 * len(json.dumps(submission.request.to_json()))
    assert killed.received + after.received <= whole + manifests + lines + requests
    return died


def _forget_process() -> None:
    """Let what the journal says be of a process that is gone."""
    from airflow_training.cloud.targets import cloud_folder

    for path in (cloud_folder() / "client" / "submissions").glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": 2**22 + 1}))


@pytest.mark.parametrize("point", range(POINTS))
def test_killed_anywhere_and_tried_again_there_is_one_run_and_nothing_is_sent_twice(
    service, project, point
):
    died = killed_and_tried_again(service, project, point)
    assert died is (point < 12), "the points are all that there are"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_killed_at_any_point_of_a_random_project(service, tmp_path, seed):
    dice = random.Random(seed)
    project = tmp_path / "random"
    project.mkdir()
    (project / "train.py").write_text("print()\n")
    for number in range(dice.randint(1, 30)):
        (project / f"{number}.txt").write_bytes(
            dice.randbytes(dice.choice((0, 10, 5_000, 200_000)))
        )
    killed_and_tried_again(service, project, dice.randrange(14))


# tampered with --------------------------------------------------------------------------------


def tamper(service: LoopbackService, submission: Submission, dice: random.Random) -> None:
    """Send a submission with one thing that is not what was announced; asserts that nothing runs."""
    http = service.http()
    client = CloudClient(http)
    request = replace(submission.request, key=key_of(str(dice.random()), ""))
    kind = dice.choice(("in transit", "in the store", "in the manifest", "another tree"))
    sources = dict(submission.sources)
    if kind == "another tree":
        request = replace(request, tree_digest="f" * 64)
    if kind == "in the manifest":
        sources[request.manifest] = flip(sources[request.manifest], dice)
    sizes = {
        sha256: len(each) if isinstance(each, bytes) else each.stat().st_size
        for sha256, each in sources.items()
    }
    victim = dice.choice([*submission.capture.tree.blobs])
    if kind == "in transit":
        sources[victim] = flip(sources[victim], dice)
    refused = False
    try:
        answer = client.submit(request)
        for _ in range(2):
            for pack in plan_packs(answer.missing, sizes):
                client.send(answer.id, pack, sources)
            answer = client.submit(request)
        if kind == "in the store":
            path = service.submissions.content.path(victim)
            path.write_bytes(flip(path, dice))
        client.start(answer.id)
    except InputError:
        refused = True
    assert refused, kind
    assert service.runs.begun == {}, kind


def flip(source: Path | bytes, dice: random.Random) -> bytes:
    data = bytearray(source if isinstance(source, bytes) else source.read_bytes())
    place = dice.randrange(len(data))
    data[place] ^= 1 << dice.randrange(8)
    return bytes(data)


@pytest.mark.parametrize("seed", range(30))
def test_what_was_tampered_with_is_never_executed(service, project, seed):
    tamper(service, captured(project), random.Random(seed))


@pytest.mark.soak
def test_a_thousand_that_were_tampered_with_are_never_executed(tmp_path, airflow_home, project):
    dice = random.Random(1)
    for number in range(1000):
        service = LoopbackService(tmp_path / f"service-{number}")
        tamper(service, captured(project), dice)


def test_a_content_that_is_damaged_in_the_store_is_sent_again(service, project):
    submission = captured(project)
    submit(service.client(), submission, target="here")
    victim = next(iter(submission.capture.tree.blobs))
    path = service.submissions.content.path(victim)
    path.write_bytes(b"damaged")
    again = submit(service.client(), captured(project), target="here")
    folder = service.folder / "runs" / again.run_id
    assert laid_out(folder).digest == submission.request.tree_digest


# accounts --------------------------------------------------------------------------------------


class _Users(KeyAdmission):
    """The key is the name of the account."""

    def __init__(self) -> None:
        super().__init__(KEY, account="")

    def login(self, key: str, *, right: RunRight) -> Caller:
        return Caller(account=key)


def test_who_knows_the_digests_of_another_gets_nothing_without_the_bytes(
    tmp_path, airflow_home, project
):
    service = LoopbackService(tmp_path / "service", _Users())
    submission = captured(project)
    submit(service.client(key="ada"), submission, target="here")
    thief = service.client(key="eve")
    request = submission.request
    asked = thief.submit(request)
    assert {each.sha256 for each in asked.missing} == {request.environment, request.manifest}
    assert asked.environment == ""
    with pytest.raises(InputError, match="not all of it has arrived"):
        thief.start(asked.id)
    documents = {
        sha256: len(source)
        for sha256, source in submission.sources.items()
        if isinstance(source, bytes)
    }
    for pack in plan_packs(asked.missing, documents):
        thief.send(asked.id, pack, submission.sources)
    blobs = submission.capture.tree.blobs
    asked = thief.submit(request)
    assert {each.sha256: each.have for each in asked.missing} == dict.fromkeys(blobs, 0)
    with pytest.raises(InputError, match="not all of it has arrived"):
        thief.start(asked.id)
    assert len(service.runs.begun) == 1
    wrong = {each: b"?" * size for each, size in blobs.items()}
    for pack in plan_packs(asked.missing, blobs):
        with pytest.raises(InputError, match="other bytes arrived"):
            thief.send(asked.id, pack, wrong)
    assert {each.sha256 for each in thief.submit(request).missing} == {*blobs}
    again = submit(service.client(key="ada"), captured(project, "1"), target="here")
    assert again.sent <= LEAST


def test_what_two_accounts_send_lies_there_once(tmp_path, airflow_home, project):
    service = LoopbackService(tmp_path / "service", _Users())
    for name in ("ada", "eve"):
        submit(service.client(key=name), captured(project, name), target=name)
    whole = service.folder / "content" / "whole"
    assert len(service.runs.begun) == 2
    blobs = captured(project).capture.tree.blobs
    assert {each.name for each in whole.rglob("*") if each.is_file()} > {*blobs}
    sizes = [
        each.stat().st_size
        for each in (service.folder / "content").rglob("*")
        if each.name in blobs
    ]
    assert sum(sizes) == sum(blobs.values())


# environments ---------------------------------------------------------------------------------


class _Reserved(KeyAdmission):
    """Holds something for each submission until that is refused."""

    def __init__(self) -> None:
        super().__init__(KEY, account="ada")
        self.held: set[str] = set()
        self.released: set[str] = set()

    def reserve(self, account: str, submission: str, request: SubmissionRequest) -> Grant:
        self.held.add(submission)
        return Grant()

    def release(self, account: str, submission: str) -> None:
        self.released.add(submission)


def test_an_environment_that_is_not_here_is_refused_before_files_move(
    tmp_path, airflow_home, project
):
    admission = _Reserved()
    service = LoopbackService(tmp_path / "service", admission)
    submission = captured(project)
    sha256 = submission.request.environment
    record = json.loads(submission.sources[sha256])  # type: ignore[arg-type]
    other = json.dumps({**record, "python": "3.7.1"}).encode()
    digest = hashlib.sha256(other).hexdigest()
    request = replace(submission.request, environment=digest)
    changed = replace(submission, request=request, sources={**submission.sources, digest: other})
    with pytest.raises(InputError, match=r"python: 3\.7\.1 here, here has 3\."):
        submit(service.client(), changed, target="here")
    files = {*submission.capture.tree.blobs}
    assert not [each for each in files if service.submissions.content.has(each)]
    assert service.runs.begun == {}
    assert admission.released == admission.held != set()


def test_that_an_account_has_sent_a_content_takes_no_new_file_each(service, project):
    submission = captured(project)
    submit(service.client(), submission, target="here")
    contents = ContentFolder(service.folder / "content")
    proofs = [path for sha256 in submission.capture.tree.blobs for path in contents.proofs(sha256)]
    assert len(proofs) == len(submission.capture.tree.blobs)
    assert len({path.stat().st_ino for path in proofs}) == 1
    assert {path.stat().st_size for path in proofs} == {0}
