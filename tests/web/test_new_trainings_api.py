"""A training that a page has put together is checked, begun once, by who may; presets have versions."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException

from airflow_training.admission.check import check_file
from airflow_training.state.account_records import Account, AccountLimit
from airflow_training.state.store import open_store
from airflow_training.web.data_files import list_data_files
from airflow_training.web.presets import FOLDER, read_preset, shipped_presets
from tests.web.conftest import FakeNewRuns
from tests.web.test_rerun_api import JOB, WRONG

KEY = {"Idempotency-Key": "k", "user": "admin"}


def begin(client: Any, document: str = JOB, *, user: str = "admin", key: str = "k") -> Any:
    headers = {"user": user, "Idempotency-Key": key}
    return client.post("/api/runs", headers=headers, json={"document": document})


def test_a_double_click_begins_one_run_and_another_document_another(client, new_runs: FakeNewRuns):
    answers = [begin(client) for _ in range(3)]
    assert {each.status_code for each in answers} == {202}
    [name] = new_runs.begun
    assert {each.json()["run_id"] for each in answers} == {name}
    assert answers[0].json()["dag"] == "training_job"
    assert new_runs.begun == {name: JOB}
    assert begin(client, f"# again\n{JOB}").json()["run_id"] != name
    assert begin(client, key="other").json()["run_id"] != name


def test_a_document_with_mistakes_begins_nothing_and_is_told_field_and_line(
    client, new_runs: FakeNewRuns
):
    refused = begin(client, WRONG)
    assert refused.status_code == 422
    assert "spec.roles[0].replicas" in refused.json()["detail"]
    checked = client.post("/api/check", headers=KEY, json={"document": WRONG}).json()
    assert [(each["field"], each["line"]) for each in checked["mistakes"]] == [
        ("spec.roles[0].replicas", 7)
    ]
    assert new_runs.begun == {}


def test_only_who_may_submit_and_only_from_our_own_pages(client, new_runs: FakeNewRuns):
    for path in ("/api/runs", "/api/check", "/api/plan", "/api/presets", "/api/data-files"):
        body = {"document": JOB, "name": "x", "uri": "."}
        for user in ("viewer", "op"):  # the op's DAG is another one
            headers = {**KEY, "user": user}
            assert client.post(path, headers=headers, json=body).status_code == 403, path
        assert client.post(path, headers={**KEY, "user": ""}, json=body).status_code == 401
        foreign = {**KEY, "Sec-Fetch-Site": "cross-site"}
        assert client.post(path, headers=foreign, json=body).status_code == 403, path
        assert client.post(path, headers=KEY, content="{}").status_code == 415, path
        long = {**body, "document": "#" * 3_000_000, "uri": "x" * 3_000_000}
        assert client.post(path, headers=KEY, json=long).status_code == 413, path
    assert new_runs.begun == {}


def test_who_may_not_is_told_so_and_sees_the_form(client):
    offer = client.get("/api/new", headers={"user": "op"}).json()
    assert offer["possible"] is False
    assert "training_job" in offer["why"]
    mine = client.get("/api/new", headers={"user": "admin"}).json()
    assert (mine["possible"], mine["user"], mine["folder"]) == (True, "admin", "")
    assert {"local", "kubernetes"} <= {each["name"] for each in mine["runtimes"]}
    refused = {each["name"]: each["why"] for each in mine["runtimes"]}
    assert "off inside Airflow" in refused["local"]
    assert "pytorch" in mine["frameworks"]
    assert "TrainingJobSpec" in client.get("/api/schema").json()["$defs"]


def save(client: Any, name: str, document: str, *, user: str = "admin") -> Any:
    body = {"name": name, "document": document, "description": "mine"}
    return client.post("/api/presets", headers={"user": user}, json=body)


def read(client: Any, version: int, *, user: str = "admin") -> Any:
    query = {"name": "mine", "version": version, "by": "admin"}
    return client.get("/api/presets/saved", params=query, headers={"user": user})


def test_a_saved_preset_keeps_all_its_versions_byte_for_byte(client):
    first, second = f"# one\r\n{JOB}", f"{JOB}# <b>two</b> \N{SNOWMAN}\n"
    assert save(client, "mine", first).json()["version"] == 1
    assert save(client, "mine", second).json()["version"] == 2
    assert save(client, "mine", second).json()["version"] == 2, "the same document is no new one"
    assert read(client, 1).json()["document"] == first
    assert read(client, 2).json()["document"] == second
    assert read(client, 3).status_code == 404
    [saved] = client.get("/api/presets", headers={"user": "admin"}).json()["saved"]
    assert (saved["name"], saved["version"], saved["user"]) == ("mine", 2, "admin")
    # two users may use one name
    open_store().presets.save("op", "mine", JOB, description="")
    listed = client.get("/api/presets", headers={"user": "op"}).json()["saved"]
    assert [each["user"] for each in listed] == ["op"], "of those who may start trainings"
    assert read(client, 1, user="op").status_code == 404
    assert len(client.get("/api/presets", headers={"user": "admin"}).json()["saved"]) == 2


@pytest.mark.parametrize("name", ["", "A", "../x", "<b>", "a/b", "-a", "a" * 64])
def test_a_name_that_no_preset_can_have_is_refused(client, name: str):
    assert save(client, name, JOB).status_code == 422
    assert open_store().presets.newest() == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_preset_is_a_job_with_a_title_and_words(path: Path):
    preset = read_preset(path)
    assert preset.title != preset.name
    assert 40 < len(preset.description) < 400
    [checked] = check_file(path, run_uid="new")
    assert [str(each) for each in checked.problems] == []
    assert checked.resolved is not None
    assert checked.resolved.name == path.stem


def test_the_presets_are_offered(client):
    told = client.get("/api/presets").json()["shipped"]
    assert {"hugging-face", "own-image", "pytorch-script", "xgboost"} <= {
        each["name"] for each in told
    }
    assert [each["document"] for each in told] == [each.document for each in shipped_presets()]


def test_files_are_listed_with_their_sizes(tmp_path: Path):
    for name, size in (("b.csv", 3), ("a/c.csv", 5), (".hidden", 9), (".git/x", 9)):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"x" * size)
    found = list_data_files("data", folder=tmp_path)
    assert [(each.name, each.bytes) for each in found.files] == [("a/c.csv", 5), ("b.csv", 3)]
    assert (found.more, found.why) == (False, "")
    [alone] = list_data_files(f"file://{tmp_path}/data/b.csv", folder=tmp_path).files
    assert (alone.name, alone.bytes) == ("b.csv", 3)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("", "no address"),
        ("nowhere", "there is no nowhere"),
        ("s3://bucket/x", "files of s3:// are not listed"),
        ("{{ params.data }}", "not known before"),
        ("a\0b", "not known before"),
        ("x" * 5000, "cannot be read"),
        ("file://[x/data", "is no address"),
        ("file:///%00", "cannot be read"),
    ],
)
def test_why_no_files_are_listed_is_said(tmp_path: Path, uri: str, why: str):
    found = list_data_files(uri, folder=tmp_path)
    assert found.files == []
    assert why in found.why


def test_a_tree_without_files_is_not_looked_through_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow_training.web.data_files._MOST_LOOKED_AT", 20)
    for number in range(30):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f".hidden-{number}").write_text("x")
    (tmp_path / "0/0").mkdir()
    (tmp_path / "0/0/train.csv").write_text("x")
    found = list_data_files(str(tmp_path), folder=None)
    assert (found.files, found.more) == ([], True)
    assert "a folder further down" in found.why
    within = list_data_files(str(tmp_path / "0"), folder=None)
    assert ([each.name for each in within.files], within.more) == (["0/train.csv"], False)


def test_a_look_at_a_slow_disk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow_training.web.data_files._LONGEST_LOOK_SECONDS", -1)
    (tmp_path / "train.csv").write_text("x")
    assert list_data_files(str(tmp_path), folder=None).more


def test_what_no_document_can_name_keeps_nobody_from_the_others(
    client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / os.fsdecode(b"caf\xe9.csv")).write_text("x")
    (folder / "train.csv").write_text("x")
    (folder / "gone.csv").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.csv")
    answer = client.post("/api/data-files", headers=KEY, json={"uri": str(folder)})
    assert [each["name"] for each in answer.json()["files"]] == ["train.csv"]


def test_links_to_folders_are_not_followed(tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/secret.csv").write_text("x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/link").symlink_to(tmp_path / "other")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data")
    assert list_data_files(str(tmp_path / "data"), folder=None).files == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
def test_a_folder_that_may_not_be_read_is_no_empty_one(tmp_path: Path):
    (tmp_path / "data").mkdir(mode=0)
    assert "cannot be read" in list_data_files(str(tmp_path / "data"), folder=None).why


def test_files_of_a_server_are_not_listed(client):
    assert client.post("/api/data-files", headers=KEY, json={"uri": "/"}).status_code == 404
    assert client.get("/api/new", headers=KEY).json()["lists_files"] is False


def test_files_of_a_server_are_listed_to_whoever_may_run_commands_on_it(
    client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/train.libsvm").write_text("1 qid:1 1:0.5\n")
    assert client.get("/api/new", headers=KEY).json()["lists_files"] is True
    assert client.get("/api/new", headers={"user": "op"}).json()["lists_files"] is False
    found = client.post("/api/data-files", headers=KEY, json={"uri": f"{tmp_path}/lists"}).json()
    assert found["files"] == [{"name": "train.libsvm", "bytes": 14}]
    relative = client.post("/api/data-files", headers=KEY, json={"uri": "jobs"}).json()
    assert (relative["files"], "write the whole path" in relative["why"]) == ([], True)
    viewer = {**KEY, "user": "viewer"}
    answer = client.post("/api/data-files", headers=viewer, json={"uri": str(tmp_path)})
    assert answer.status_code == 403


PLAN = """\
  plan:
    model: {hidden: 1024, layers: 8, heads: 8, seq: 512, vocab: 32000}
    cluster: {name: one, nodes: [{count: 1, device: A100-SXM4-80GB, devices_per_node: 4}]}
    globalBatch: 32
    apply: []
"""


def test_a_plan_is_predicted_and_a_model_that_runs_code_is_not_asked(client):
    told = client.post("/api/plan", headers=KEY, json={"document": JOB + PLAN}).json()
    assert told["why"] == "", told
    assert told["plan"]["step_time_s"] > 0
    assert told["plan"]["peak_memory_bytes"] > 0
    traced = PLAN.replace("{hidden: 1024, layers: 8, heads: 8, seq: 512, vocab: 32000}", "os:abort")
    refused = client.post("/api/plan", headers=KEY, json={"document": JOB + traced}).json()
    assert refused["plan"] is None
    assert "refused in a job that came through a form" in refused["why"]
    assert client.post("/api/plan", headers=KEY, json={"document": JOB}).json() == {
        "plan": None,
        "why": "",
    }


def test_an_account_holds_what_a_form_begins_and_refuses_what_it_may_not_have(
    client, new_runs: FakeNewRuns
):
    store = open_store()
    store.accounts.save(Account(name="ann"))
    refused = begin(client)
    assert refused.status_code == 422
    assert "login: admin has no account here" in refused.json()["detail"]
    assert "airflow-training accounts add admin" in refused.json()["detail"]
    store.accounts.save(Account(name="admin"))
    begun = begin(client).json()
    held = store.reservations.of_run(begun["uid"])
    assert held is not None
    assert held.account == "admin"
    assert begin(client).json() == begun
    assert len(store.reservations.live(account="admin")) == 1
    limit = AccountLimit(account="admin", kind="instance_hours", period="total", amount=Decimal(1))
    store.accounts.set_limit(limit)
    refused = begin(client, key="other")
    assert refused.status_code == 422
    assert "quota: admin may use 1 instance-hours" in refused.json()["detail"]
    assert [*new_runs.begun] == [begun["run_id"]]


def test_what_airflow_refuses_to_begin_is_held_no_longer(client, new_runs: FakeNewRuns):
    async def refuse(*_: Any, **__: Any) -> None:
        raise HTTPException(403, "Airflow: no")

    store = open_store()
    store.accounts.save(Account(name="admin"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_runs, "begin_new", refuse)
        assert begin(client).status_code == 403
    assert [each.reservation for each in store.reservations.live(account="admin")] == []
    assert begin(client).status_code == 202
    assert len(store.reservations.live(account="admin")) == 1
