"""What no client and no service of ours would send is refused, on either side."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.routing import Mount, Route

from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.journal import SubmittedRun
from airflow_training.cloud.protocol import SubmissionRequest, key_of
from airflow_training.cloud.returning import ModelReturn
from airflow_training.cloud.service.app import cloud_app
from airflow_training.cloud.submit import submit
from airflow_training.errors import TrainingError
from tests.cloud.conftest import LoopbackService, captured


def routes(service: LoopbackService) -> Iterator[tuple[str, str]]:
    """Each method and path of the protocol but `GET /`, with names that are none."""
    for mount in cloud_app(service.submissions, service.admission).routes:
        for each in mount.routes if isinstance(mount, Mount) else ():
            if isinstance(each, Route) and each.path != "/":
                path = re.sub(r"\{[^}]+\}", "x", each.path)
                yield from ((method, path) for method in sorted(each.methods or ()))


@pytest.mark.parametrize("key", ["", "of somebody else", "\xff"])
def test_nothing_is_told_without_a_key(service, key):
    asked = [*routes(service)]
    assert len(asked) > 12
    http = service.http()
    header = {"Authorization": f"Bearer {key}".encode("latin-1")}
    codes = {
        (method, path): http.request(method, path, headers=header).status_code
        for method, path in asked
    }
    assert codes == dict.fromkeys(asked, 401)


@pytest.mark.parametrize(
    "body",
    ["[" * 100_000, '{"protocol": NaN}', '{"protocol": "\\ud800"}', "{}x", "[]", "5", "\x00"],
)
def test_a_body_that_is_no_submission_is_refused(service, body):
    assert service.http().post("/submissions", content=body).status_code == 422


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/runs/{'a' * 400}"),
        ("GET", "/runs/%00"),
        ("GET", "/runs/..%5Cx"),
        ("POST", f"/submissions/{'a' * 400}/start"),
        ("POST", "/submissions/%C3%A4/start"),
    ],
)
def test_a_name_that_is_none_is_unknown(service, method, path):
    for name in ("runs", "submissions"):
        (service.folder / name).mkdir(parents=True)
    assert service.http().request(method, path).status_code == 404


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 30, "9" * 5000, "1.5"])
def test_a_number_of_bytes_that_no_file_has_is_refused(service, project, offset):
    http, submission = service.http(), captured(project)
    answer = CloudClient(http).submit(submission.request)
    path = f"/submissions/{answer.id}/blobs/{submission.request.manifest}"
    for name in ("size", "offset"):
        numbers = {"size": "1", "offset": "0", name: offset}
        assert http.put(path, params=numbers, content=b"x").status_code == 422
    run = submit(service.client(), submission, target="here").run_id
    assert http.get(f"/runs/{run}/log", params={"offset": offset}).status_code == 422


def sent_manifest(http: Any, request: SubmissionRequest, data: bytes) -> httpx.Response:
    """Send a manifest that no client would make, and ask what is missing then."""
    sha256 = hashlib.sha256(data).hexdigest()
    odd = replace(request, manifest=sha256, key=key_of(sha256, ""))
    answer = CloudClient(http).submit(odd)
    path = f"/submissions/{answer.id}/blobs/{sha256}"
    assert http.put(path, params={"size": len(data)}, content=data).status_code == 200
    asked: httpx.Response = http.post("/submissions", content=json.dumps(odd.to_json()))
    return asked


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (["project/x", "file", 0o644, 1, "{existing}", ""], "its content has no digest"),
        ([["project"], "file", 0o644, 1, "a" * 64, ""], "no tree of a capture"),
        (["project/x", "file", 0o644, 1, ["a"], ""], "no tree of a capture"),
        (["project/x", "file", 0o644, "1", "a" * 64, ""], "no tree of a capture"),
        (["project/x", "file"], "cannot be read"),
        (["project/x", "file", 0o644, 1 << 60, "a" * 64, ""], "were announced"),
    ],
)
def test_a_manifest_that_no_client_writes_is_refused_before_its_content_is_looked_for(
    service, project, tmp_path, entry, message
):
    (tmp_path / "existing").write_text("somebody else's")
    row = [str(tmp_path / "existing") if each == "{existing}" else each for each in entry]
    data = json.dumps({"entries": [row], "data": []}).encode()
    refused = sent_manifest(service.http(), captured(project).request, data)
    assert (refused.status_code, message in refused.text) == (422, True), refused.text


def test_a_content_larger_than_the_manifest_says_is_not_taken(service, project):
    submission, http = captured(project), service.http()
    [known] = [each for each in submission.capture.tree.entries if each.path.endswith("run.sh")]
    manifest = submission.sources[submission.request.manifest]
    assert isinstance(manifest, bytes)
    assert sent_manifest(http, submission.request, manifest).status_code == 201
    answer = CloudClient(http).submit(submission.request)
    path = f"/submissions/{answer.id}/blobs/{known.sha256}"
    refused = http.put(path, params={"size": 1 << 40}, content=b"x" * 1000)
    assert (refused.status_code, f"at most {known.size} bytes" in refused.text) == (422, True)


class _OddClient(CloudClient):
    """Of a service that answers with a file that is no model."""

    def result(self, run_id: str) -> Mapping[str, Any]:
        return {
            "address": "",
            "others": [],
            "files": [{"path": run_id, "size": 1, "sha256": "0" * 64}],
        }


@pytest.mark.parametrize(
    ("path", "returns"),
    [
        (".git/hooks/pre-commit", "model=out"),
        (".git/hooks/model.pt", "model"),
        ("train.py", "model"),
        ("link/../model.pt", "model"),
        ("../model.pt", "model=out"),
    ],
)
def test_a_service_cannot_replace_programs_of_this_machine(service, project, path, returns):
    run = SubmittedRun(
        run_id=path, target="x", root=str(project), returns=returns, at_ns=0, digests={}
    )
    with pytest.raises(TrainingError, match="which is no model"):
        ModelReturn(run).bring_back(_OddClient(service.http()), told=lambda _: None)
