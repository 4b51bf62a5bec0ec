"""Submissions whose runs are elsewhere: refused before anything moves, stored by digest, read back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_training.admission.check import check_text
from airflow_training.agent.code_setup import changes_to_upload
from airflow_training.agent.code_tree import lay_out_code
from airflow_training.agent.upload import upload
from airflow_training.cloud.client import CloudClient
from airflow_training.cloud.service.places import OutputStream
from airflow_training.cloud.service.storage_place import StoragePlace
from airflow_training.cloud.service.submissions import Submissions
from airflow_training.cloud.service.target_jobs import TargetJobError
from airflow_training.cloud.service.tree_storage import TreeStorage
from airflow_training.cloud.submit import submit
from airflow_training.cloud.target_settings import TargetSettings
from airflow_training.environments import EnvironmentCatalogue, record
from airflow_training.environments.catalogue import CatalogueImage
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment
from airflow_training.errors import InputError, Problem
from tests.cloud.conftest import LoopbackService, captured

HERE = record()


class StorageService(LoopbackService):
    """The real app whose runs go to a runtime elsewhere."""

    def __init__(self, folder: Path, image: PythonEnvironment = HERE, **settings: Any) -> None:
        super().__init__(folder)
        self.storage = settings.pop("storage", str(folder / "storage"))
        given = {
            "runtime": {"name": "kubernetes"},
            "namespace": "training",
            "storage": self.storage,
            "image": "torch:1",
            **settings,
        }
        catalogue = EnvironmentCatalogue(
            images=[CatalogueImage(name="torch:1", python="/opt/python", record=image)],
            builds=given.get("builds", True),
        )
        parsed = TargetSettings.from_json(given)
        self.submissions = Submissions(
            folder,
            self.admission,
            self.runs,
            same_machine=False,
            place=lambda content: StoragePlace(parsed, catalogue, folder / "environments", content),
            resources=parsed.resources,
        )


@pytest.fixture(autouse=True)
def _home(airflow_home: Path) -> None:
    """Keep what clients keep in a home of the test's own."""


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The jobs that would install packages in an image; each leaves an archive in its output."""
    begun: list[Mapping[str, Any]] = []

    def run_job(settings: TargetSettings, name: str, spec: Mapping[str, Any]) -> Any:
        data = json.dumps(spec["code"]["packages"]).encode()
        begun.append(spec)
        output = Path(spec["output"]["uri"])
        output.mkdir(parents=True)
        (output / "packages.tar").write_bytes(data)
        return {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "bytes": len(data)}

    monkeypatch.setattr("airflow_training.cloud.service.package_archives.run_job", run_job)
    return begun


def refusal(client: CloudClient, submission: Any) -> Problem:
    """What is refused before one file has moved."""
    with pytest.raises(InputError) as refused:
        submit(client, submission, target="office")
    return refused.value.problems[0]


def test_a_job_names_its_tree_and_its_image(tmp_path, project):
    service = StorageService(tmp_path / "service", resources={"cpu": 2})
    sent = captured(project, "--lr", "$HOME {{x}}", replicas=2)
    result = submit(service.client(), sent, target="office")
    job = service.runs.begun[result.run_id]
    [answer] = check_text(json.dumps(job), run_uid="x" * 20)
    assert answer.resolved is not None, answer.problems
    spec = job["spec"]
    assert spec["code"]["digest"] == f"sha256:{sent.capture.tree.digest}"
    assert spec["output"] == {"uri": f"{service.storage}/runs/{result.run_id}"}
    assert (spec["image"], spec["command"][0]) == ("torch:1", "/opt/python")
    assert spec["workingDir"] == "project"
    assert job["metadata"] == {"name": "train", "namespace": "training"}
    assert spec["resources"] == {"limits": {"cpu": "2"}}
    lay_out_code(service.storage, sent.capture.tree.digest, tmp_path / "code")
    assert (tmp_path / "code/project/run.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("replicas", [1, 2])  # whose containers have other names
def test_instances_get_the_volumes_and_credentials_of_their_target(tmp_path, project, replicas):
    claim = {"name": "storage", "persistentVolumeClaim": {"claimName": "training"}}
    mount = {"name": "storage", "mountPath": "/mnt/training"}
    service = StorageService(
        tmp_path / "service",
        env=[
            {"name": "AWS_ENDPOINT_URL", "value": "http://store:9000"},
            {"name": "LR", "value": "1"},
        ],
        envFrom=[{"secretRef": {"name": "bucket"}}],
        volumes=[claim],
        volumeMounts=[mount],
        template={"spec": {"nodeSelector": {"pool": "training"}}},
    )
    sent = captured(project, replicas=replicas, env=["LR=2"])
    job = service.runs.begun[submit(service.client(), sent, target="office").run_id]
    [answer] = check_text(json.dumps(job), run_uid="x" * 20)
    assert answer.resolved is not None, answer.problems
    for role in answer.resolved.roles:
        [container] = [
            each for each in role.template["spec"]["containers"] if each["name"] == role.container
        ]
        assert mount in container["volumeMounts"]
        assert {"secretRef": {"name": "bucket"}} in container["envFrom"]
        values = {each["name"]: each.get("value") for each in container["env"]}
        assert (values["AWS_ENDPOINT_URL"], values["LR"]) == ("http://store:9000", "2")
        assert claim in role.template["spec"]["volumes"]
        assert role.template["spec"]["nodeSelector"] == {"pool": "training"}


def test_the_newest_run_is_listed_first(tmp_path, project):
    service = StorageService(tmp_path / "service")
    client = service.client()
    sent = [submit(client, captured(project, "--lr", each), target="office") for each in "12345678"]
    assert service.submissions.run_ids("ada") == [each.run_id for each in reversed(sent)]


def test_what_the_run_wrote_comes_from_the_storage(tmp_path, project):
    service = StorageService(tmp_path / "service")
    sent = captured(project)
    client = service.client()
    run = submit(client, sent, target="office").run_id
    assert client.result(run)["files"] == []
    code, model = tmp_path / "code", b"weights" * 1000
    lay_out_code(service.storage, sent.capture.tree.digest, code)
    (code / "project/model.pt").write_bytes(model)
    (code / "project/notes.txt").write_text("not a model")
    (tmp_path / "output").mkdir()
    target = f"{service.storage}/runs/{run}"
    upload(tmp_path / "output", target, say=print, beside=changes_to_upload(code))
    result = client.result(run)
    assert [each["path"] for each in result["files"]] == ["model.pt"]
    assert result["others"] == ["notes.txt"]
    assert result["address"] == f"{target}/code/project"
    part = tmp_path / "part"
    part.write_bytes(model[:1000])  # an interrupted download goes on
    client.download(run, "model.pt", to=part)
    assert part.read_bytes() == model
    client.download(run, "model.pt", to=part)
    assert part.read_bytes() == model
    with pytest.raises(InputError, match="knows no"):
        client.download(run, "trees", to=tmp_path / "other")


def test_a_run_that_lists_what_is_not_its_own_shows_nothing_of_it(tmp_path, project):
    service = StorageService(tmp_path / "service")
    client = service.client()
    run = submit(client, captured(project), target="office").run_id
    (tmp_path / "model.pt").write_bytes(b"somebody else's")
    listed = Path(service.storage, "runs", run, "code.json")
    listed.parent.mkdir(parents=True)
    rows = [
        {"path": path, "size": 15, "sha256": "0" * 64}
        for path in ("project/../../../../../../model.pt", "../model.pt", "/model.pt")
    ]
    listed.write_text(json.dumps({"files": rows}))
    assert client.result(run)["files"] == []
    with pytest.raises(KeyError):
        service.submissions.place.output(run, "../../../../../../model.pt", start=0)


def uploaded(service: StorageService, project: Path, rows: object) -> tuple[CloudClient, str, Path]:
    """A run that has left that list; returns also the folder of its output."""
    client = service.client()
    run = submit(client, captured(project), target="office").run_id
    output = Path(service.storage, "runs", run)
    (output / "code/project").mkdir(parents=True)
    (output / "code.json").write_text(json.dumps(rows))
    return client, run, output


@pytest.mark.parametrize("how", ["file", "folder", "list", "pipe"])
def test_a_run_reads_no_file_of_the_service_through_what_it_put_into_the_storage(
    tmp_path, project, how
):
    (tmp_path / "private").mkdir()
    (tmp_path / "private/model.pt").write_bytes(b"of the service")
    rows = {"files": [{"path": "project/model.pt", "size": 14, "sha256": "0" * 64}]}
    client, run, output = uploaded(StorageService(tmp_path / "service"), project, rows)
    project_there = output / "code/project"
    if how == "file":
        (project_there / "model.pt").symlink_to(tmp_path / "private/model.pt")
    elif how == "folder":
        project_there.rmdir()
        project_there.symlink_to(tmp_path / "private")
    elif how == "pipe":
        os.mkfifo(project_there / "model.pt")
    else:
        kept = (output / "code.json").rename(tmp_path / "private/code.json")
        (output / "code.json").symlink_to(kept)
        assert client.result(run)["files"] == []
        return
    found = StorageService(tmp_path / "service").submissions.place.output(run, "model.pt", start=0)
    assert isinstance(found, OutputStream)
    with pytest.raises(InputError, match="cannot be used"):
        next(found.pieces)


@pytest.mark.parametrize("rows", [[], "x", {"files": 3}, {"files": [{"path": "project/x"}]}, None])
def test_a_list_that_is_none_is_said(tmp_path, project, rows):
    client, run, _ = uploaded(StorageService(tmp_path / "service"), project, rows)
    with pytest.raises(InputError, match="is no list of files"):
        client.result(run)


def test_rows_of_another_form_name_no_file(tmp_path, project):
    odd = [("project/a", "1"), ("project/b", -1), (3, 3), ("project/c\0", 3), ("project/d", True)]
    rows = {"files": [{"path": path, "size": size, "sha256": "0" * 64} for path, size in odd]}
    client, run, _ = uploaded(StorageService(tmp_path / "service"), project, rows)
    result = client.result(run)
    assert result["files"] == []
    assert result["others"] == []


def test_a_content_damaged_at_the_service_is_sent_again(tmp_path, project, monkeypatch):
    service = StorageService(tmp_path / "service")
    sent = captured(project)
    put = service.submissions.place.lay_out
    damaged: list[Path] = []

    def damage_first(manifest: Any, run_id: str, **options: Any) -> None:
        if not damaged:
            sha256 = next(iter(manifest.tree.blobs))
            damaged.append(service.submissions.content.path(sha256))
            damaged[0].write_bytes(b"tampered")
        put(manifest, run_id, **options)

    monkeypatch.setattr(service.submissions.place, "lay_out", damage_first)
    submit(service.client(), sent, target="office")
    lay_out_code(service.storage, sent.capture.tree.digest, tmp_path / "code")
    assert b"tampered" not in damaged[0].read_bytes()


def test_a_library_that_the_image_lacks_is_installed_once_for_all_runs(tmp_path, project, installs):
    lacking = replace(HERE, distributions=[d for d in HERE.distributions if d.name != "httpx"])
    service = StorageService(tmp_path / "service", lacking)
    run = submit(service.client(), captured(project), target="office")
    [installing] = installs
    assert [each.split("==")[0] for each in installing["code"]["packages"]] == ["httpx"]
    assert installing["command"][0] == "/opt/python"
    lay_out_code(service.storage, installing["code"]["digest"].partition(":")[2], tmp_path / "code")
    code = service.runs.begun[run.run_id]["spec"]["code"]
    assert "packages" not in code
    path = Path(service.storage, code["archive"]["path"])
    assert f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" == code["archive"]["digest"]
    assert "1 distribution on top" in run.answer.environment
    again = submit(service.client(), captured(project, "--lr", "2"), target="office").run_id
    assert service.runs.begun[again]["spec"]["code"]["archive"] == code["archive"]
    assert len(installs) == 1
    path.unlink()  # somebody has cleared the storage
    third = submit(service.client(), captured(project, "--lr", "3"), target="office").run_id
    assert len(installs) == 2
    archive = service.runs.begun[third]["spec"]["code"]["archive"]
    assert Path(service.storage, archive["path"]).exists()


def test_what_an_installer_says_is_told_and_nothing_runs(tmp_path, project, monkeypatch):
    def run_job(*_: Any) -> Any:
        raise TargetJobError("ERROR: No matching distribution found for httpx==0.1")

    monkeypatch.setattr("airflow_training.cloud.service.package_archives.run_job", run_job)
    lacking = replace(HERE, distributions=[d for d in HERE.distributions if d.name != "httpx"])
    service = StorageService(tmp_path / "service", lacking)
    problem = refusal(service.client(), captured(project))
    assert problem.field == "environment"
    assert "No matching distribution found for httpx" in problem.message
    assert not service.runs.begun


def test_where_nothing_is_installed_a_missing_library_is_refused(tmp_path, project):
    lacking = replace(HERE, distributions=[d for d in HERE.distributions if d.name != "httpx"])
    service = StorageService(tmp_path / "service", lacking, builds=False)
    problem = refusal(service.client(), captured(project))
    assert problem.field == "httpx"
    assert "add httpx==" in problem.hint
    assert not service.runs.begun


def test_another_framework_is_refused_and_not_replaced(tmp_path, project, monkeypatch):
    torch = InstalledDistribution(name="torch", version="2.9.0")
    mine = replace(HERE, distributions=sorted([*HERE.distributions, torch], key=lambda d: d.name))
    monkeypatch.setattr("airflow_training.cloud.submit.record", lambda root: mine)
    bare = replace(HERE, distributions=[d for d in HERE.distributions if d.name != "torch"])
    service = StorageService(tmp_path / "service", bare)
    problem = refusal(service.client(), captured(project))
    assert problem.field == "torch"
    assert "torch:1 has none" in problem.message


def test_of_a_framework_that_is_another_one_alone_is_told_and_a_small_one_that_lacks_is_added(
    tmp_path, project, monkeypatch, installs
):
    def having(**versions: str) -> PythonEnvironment:
        kept = [
            each
            for each in HERE.distributions
            if each.name not in ("lightning", "numpy", "lightgbm")
        ]
        more = [InstalledDistribution(name=name, version=each) for name, each in versions.items()]
        return replace(HERE, distributions=sorted([*kept, *more], key=lambda each: each.name))

    mine = having(lightning="2.6.6", numpy="2.4.6", lightgbm="4.7.0")
    monkeypatch.setattr("airflow_training.cloud.submit.record", lambda root: mine)
    service = StorageService(tmp_path / "other", having(lightning="2.5.0"))
    with pytest.raises(InputError) as refused:
        submit(service.client(), captured(project), target="office")
    assert [each.field for each in refused.value.problems] == ["lightning"]
    assert "2.6.6 here, torch:1 has 2.5.0" in refused.value.problems[0].message
    service = StorageService(tmp_path / "service", having())
    submit(service.client(), captured(project), target="office")
    packages = ["lightgbm==4.7.0", "lightning==2.6.6", "numpy==2.4.6"]
    assert installs[0]["code"]["packages"] == packages


def test_an_image_that_cannot_read_the_storage_is_refused(tmp_path, project):
    names = ("fsspec", "s3fs")
    bare = replace(HERE, distributions=[d for d in HERE.distributions if d.name not in names])
    service = StorageService(tmp_path / "service", bare, builds=True, storage="memory://training")
    monkey = captured(project)
    problem = refusal(service.client(), monkey)
    assert problem.field == "storage"
    assert "lacks fsspec" in problem.message


def test_a_storage_that_cannot_be_written_is_refused_first(tmp_path, project):
    (tmp_path / "file").write_text("no folder")
    service = StorageService(tmp_path / "service", storage=str(tmp_path / "file"))
    problem = refusal(service.client(), captured(project))
    assert (problem.field, problem.value) == ("storage", str(tmp_path / "file"))
    assert not (tmp_path / "service/content/whole").exists()


def test_a_stop_condition_and_models_that_come_back_early_have_an_output(tmp_path, project):
    service = StorageService(tmp_path / "service")
    result = submit(
        service.client(),
        captured(project, until="loss < 0.1", returns="checkpoints"),
        target="office",
    )
    spec = service.runs.begun[result.run_id]["spec"]
    assert spec["stop"] == {"until": "loss < 0.1"}
    assert spec["output"] == {"uri": f"{service.storage}/runs/{result.run_id}", "continuous": True}


@pytest.mark.parametrize("of", ["packs", "blobs", "trees"])
def test_an_object_that_is_damaged_at_its_size_is_written_anew(tmp_path, project, of):
    (project / "large.py").write_text("width = 3  # a comment\n" * 20_000)
    service = StorageService(tmp_path / "service")
    submit(service.client(), captured(project), target="office")
    [path] = Path(service.storage, of).iterdir()
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    submit(service.client(), captured(project), target="office")
    assert path.read_bytes() == good


def test_what_was_compared_once_is_not_read_again(tmp_path, project, monkeypatch):
    (project / "large.py").write_text("width = 3  # a comment\n" * 20_000)
    service = StorageService(tmp_path / "service")
    read: list[str] = []
    stream = TreeStorage.stream

    def counted(self, key, **place):
        read.append(key)
        return stream(self, key, **place)

    monkeypatch.setattr(TreeStorage, "stream", counted)
    for _ in range(2):
        submit(service.client(), captured(project), target="office")
    assert {key.partition("/")[0] for key in read} == {"blobs", "packs"}
    del read[:]
    submit(service.client(), captured(project), target="office")
    assert read == []
    (path,) = Path(service.storage, "packs").iterdir()
    good, times = path.read_bytes(), path.stat()
    path.chmod(0o600)
    with path.open("r+b") as file:  # in its place, and with its size and time
        file.write(bytes([good[0] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    submit(service.client(), captured(project), target="office")
    assert path.read_bytes() == good
