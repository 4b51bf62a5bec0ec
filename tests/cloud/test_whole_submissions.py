"""A submission may go as a whole, and start by itself: the other way than to be asked for, of the same protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.packing import Pack, PackHeader, plan_packs
from airflow_training.cloud.protocol import PREFIX, SubmissionRequest
from airflow_training.cloud.service.admission import Grant, KeyAdmission, QuotaRefused
from airflow_training.cloud.service.app import cloud_app
from airflow_training.cloud.submit import Submission, submit
from airflow_training.errors import InputError
from tests.cloud.conftest import KEY, LoopbackService, captured


class Asked:
    """A client that remembers what it has asked for."""

    def __init__(self, service: LoopbackService, *, key: str = KEY) -> None:
        http = service.http(key=key)
        self.paths: list[str] = []
        plain = http.request

        def request(method: str, path: str, **more: Any) -> Any:
            self.paths.append(path)
            return plain(method, path, **more)

        http.request = request
        self.client = CloudClient(http)


def all_of(sent: Submission) -> Pack:
    """All of its contents, what it is described by first."""
    documents = [sent.request.manifest, sent.request.environment]
    sizes = {each: len(data) for each, data in sent.sources.items() if isinstance(data, bytes)}
    sizes |= sent.capture.tree.blobs
    contents = dict.fromkeys([*documents, *sent.sources])
    return Pack(headers=[PackHeader(sha256=each, size=sizes[each]) for each in contents])


def packs_of(client: CloudClient, submission: Submission) -> tuple[str, list[Pack]]:
    """The submission's id, and what it is sent in once its documents are there."""
    sizes = {
        each: len(data) for each, data in submission.sources.items() if isinstance(data, bytes)
    }
    sizes |= submission.capture.tree.blobs
    answer = client.submit(submission.request)
    for pack in plan_packs(answer.missing, sizes):
        client.send(answer.id, pack, submission.sources)
    return answer.id, [*plan_packs(client.submit(submission.request).missing, sizes)]


def body(client: CloudClient, submission: Submission, pack: Pack) -> bytes:
    return b"".join(client._packed(pack, submission.sources))


def test_all_of_it_is_one_request_and_runs(service, project):
    asked = Asked(service)
    told: list[str] = []
    sent = captured(project, replicas=2)
    result = submit(asked.client, sent, target="here", whole=True, told=told.append)
    assert asked.paths == ["/submissions/whole"]
    assert [*service.runs.begun] == [result.run_id]
    assert (service.folder / "runs" / result.run_id / "project" / "pkg" / "model.py").exists()
    assert any(each.startswith("environment: ") for each in told)


def test_it_is_the_run_that_it_would_be_otherwise(service, project):
    """One that was cut off goes on by asking, and is no other run."""
    sent = captured(project)
    asked = Asked(service)
    plain = asked.client.submit_whole

    def cut_off(request: SubmissionRequest, pack: Pack, sources: Any) -> Any:
        documents = replace(pack, headers=pack.headers[:3])
        return plain(request, documents, sources)

    asked.client.submit_whole = cut_off  # type: ignore[method-assign]
    result = submit(asked.client, sent, target="here", whole=True)
    assert asked.paths[0] == "/submissions/whole"
    assert "/start" in asked.paths[-1]
    assert [*service.runs.begun] == [result.run_id]


class Poor(KeyAdmission):
    def reserve(self, account: str, submission: str, request: SubmissionRequest) -> Grant:
        raise QuotaRefused.of(code="quota", field="gpu-hours", message="none is left", hint="ask")


def test_what_is_refused_is_told_once_it_was_sent_and_nothing_of_it_is_kept(
    tmp_path, airflow_home, project
):
    service = LoopbackService(tmp_path / "poor", Poor(KEY, account="ada"))
    with pytest.raises(InputError, match="gpu-hours: none is left"):
        submit(service.client(), captured(project), target="here", whole=True)
    assert not (service.folder / "content").exists()
    stranger = service.client(key="of somebody else")
    with pytest.raises(InputError, match="cloud login"):
        submit(stranger, captured(project), target="here", whole=True)


def test_of_what_is_refused_no_more_is_read_than_may_be_sent(service, monkeypatch):
    monkeypatch.setattr("airflow_training.cloud.service.app._SENDING_BYTES", 1000)
    read: list[int] = []

    def pieces() -> Iterator[bytes]:
        yield b"{}\n"
        for number in range(100):
            read.append(number)
            yield b"x" * 100

    async def receive() -> dict[str, Any]:
        data = next(body, None)
        return {"type": "http.request", "body": data or b"", "more_body": data is not None}

    async def send(message: Any) -> None:
        said.append(message)

    body, said = pieces(), list[Any]()
    key = ("authorization", f"Bearer {KEY}")
    scope = {
        "type": "http", "method": "POST", "path": f"{PREFIX}/submissions/whole", "query_string": b"",
        "headers": [tuple(each.encode() for each in key)],
    }  # fmt: skip
    asyncio.run(cloud_app(service.submissions, service.admission)(scope, receive, send))
    assert said[0]["status"] == 422
    assert len(read) < 20


def test_a_whole_that_is_to_wait_waits_for_its_start(service, project):
    http = service.http()
    client = CloudClient(http)
    sent = captured(project)
    request = replace(sent.request, key="1" * 64)
    line = json.dumps(request.to_json()).encode() + b"\n"
    content = body(client, sent, all_of(sent))
    answer = http.post("/submissions/whole", content=line + content).json()
    assert (answer["missing"], answer["started"], answer["run"]) == ([], False, None)
    assert not service.runs.begun
    assert client.start(answer["id"]) == answer["run_id"]
    again = http.post("/submissions/whole", params={"start": 1}, content=line + content).json()
    assert (again["started"], again["run"]) == (True, answer["run_id"])
    assert len(service.runs.begun) == 1


def test_a_pack_starts_it_where_nothing_is_missing_after_it(service, project):
    http = service.http()
    client = CloudClient(http)
    sent = captured(project)
    submission, packs = packs_of(client, sent)
    [pack] = packs
    path = f"/submissions/{submission}/pack"
    half = replace(pack, headers=pack.headers[:1])
    answer = http.post(path, params={"start": 1}, content=body(client, sent, half)).json()
    assert "run" not in answer
    answer = http.post(path, params={"start": 1}, content=body(client, sent, pack)).json()
    assert [answer["run"]] == [*service.runs.begun]


@pytest.mark.parametrize("line", [b"", b"{}\n", b"no json\n", b"[1]\n", b"x" * (1 << 21)])
def test_a_body_without_a_submission_is_refused(service, line):
    answer = service.http().post("/submissions/whole", content=line)
    assert answer.status_code == 422
    assert not (service.folder / "content").exists()
