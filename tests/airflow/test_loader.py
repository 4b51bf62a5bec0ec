"""Job files as DAGs: in one loader file, and one stub for each in a bundle."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, get_parsing_context

from airflow_training.compiler.bundle import JobBundle
from airflow_training.compiler.loader import load_file, load_folder
from airflow_training.errors import InputError
from tests.airflow.jobs import job
from tests.airflow.shapes import round_trip


def write(folder: Path, name: str, **spec: object) -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(job(path.stem, **spec)))
    return path


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch):
    """Give a function that says which DAG a task process wants."""

    def want(dag_id: str) -> None:
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)

    return want


def test_every_job_of_a_folder_and_its_sub_folders_becomes_a_dag(tmp_path: Path):
    write(tmp_path, "one")
    write(tmp_path, "team/two")
    write(tmp_path, ".hidden/three")
    (tmp_path / "notes.txt").write_text("not a job")
    assert sorted(load_folder(tmp_path)) == ["one", "two"]


def test_several_jobs_of_a_file_are_several_dags(tmp_path: Path):
    texts = [yaml.safe_dump(job(name)) for name in ("one", "two")]
    (tmp_path / "both.yaml").write_text("---\n".join(texts))
    dags = load_folder(tmp_path)
    assert sorted(dags) == ["one", "two"]
    assert dags["two"].get_task("plan").source.read().metadata.name == "two"


def test_a_missing_folder_holds_no_jobs(tmp_path: Path):
    assert load_folder(tmp_path / "nowhere") == {}


def test_broken_files_are_told_together_and_the_others_are_loaded(tmp_path: Path):
    write(tmp_path, "good")
    write(tmp_path, "typo", replica=3)
    (tmp_path / "torn.yaml").write_text("spec: [")
    dags = load_folder(tmp_path)
    assert sorted(dags) == ["broken_job_files", "good"]
    told = dags["broken_job_files"].doc_md
    assert "typo.yaml: spec.replica" in told
    assert "torn.yaml" in told
    # an error of the loader file itself would make Airflow deactivate the good ones
    for dag in dags.values():
        dag.validate()
        round_trip(dag)


def test_two_files_with_one_name_are_told(tmp_path: Path):
    write(tmp_path, "a/same")
    write(tmp_path, "b/same")
    dags = load_folder(tmp_path)
    assert re.search(r"already in .*a/same\.yaml", dags["broken_job_files"].doc_md)


@pytest.mark.parametrize("name", ["wanted.yaml", "other-name.yaml"])
def test_while_a_task_runs_only_its_own_file_is_parsed(
    tmp_path: Path, only, monkeypatch: pytest.MonkeyPatch, name: str
):
    write(tmp_path, "wanted").rename(tmp_path / name)
    write(tmp_path, "another")
    (tmp_path / "torn.yaml").write_text("spec: [")
    parsed: list[Path] = []

    def load(path: Path) -> dict[str, DAG]:
        parsed.append(path)
        return load_file(path)

    monkeypatch.setattr("airflow_training.compiler.loader.load_file", load)
    only("wanted")
    assert sorted(load_folder(tmp_path)) == ["wanted"]
    assert [path.name for path in parsed] == [name]


def test_airflow_tells_the_parsing_context_through_the_variable_used_here(only):
    only("wanted")
    assert get_parsing_context().dag_id == "wanted"


@pytest.mark.parametrize(("wanted", "built"), [("another", False), ("training_job", True)])
def test_the_generic_dag_is_built_only_for_its_own_tasks(only, wanted: str, built: bool):
    only(wanted)
    loader = Path(__file__).parents[2] / "dags" / "loader.py"
    assert ("training_job" in runpy.run_path(str(loader))) is built


# the bundle ----------------------------------------------------------------------------------------
@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobBundle:
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH", str(tmp_path / "b"))
    made = JobBundle(name="jobs", jobs=str(tmp_path / "jobs"), refresh_interval=5)
    (tmp_path / "jobs").mkdir()
    return made


def test_each_job_file_has_a_stub_that_loads_it_alone(bundle: JobBundle, tmp_path: Path):
    write(tmp_path / "jobs", "one")
    (tmp_path / "jobs" / "torn.yaml").write_text("spec: [")
    bundle.initialize()
    stubs = {path.name.rpartition("_")[0]: path for path in bundle.path.glob("*.py")}
    assert sorted(stubs) == ["one", "torn"]
    assert "one" in runpy.run_path(str(stubs["one"]))
    broken = runpy.run_path(str(stubs["torn"]))["broken_job_files"]
    with pytest.raises(InputError, match=r"torn\.yaml"):  # which Airflow takes as the file's error
        broken.validate()


def test_the_stub_of_a_job_shows_it_in_the_tab_code(bundle: JobBundle, tmp_path: Path):
    path = write(tmp_path / "jobs", "one")
    path.write_text(path.read_text() + "# a note of the author\n")
    bundle.refresh()
    (stub,) = bundle.path.glob("*.py")
    assert "\n# kind: TrainingJob\n" in stub.read_text()
    assert "\n# # a note of the author\n" in stub.read_text()


def test_every_mistake_of_a_file_is_told_with_its_line_also_what_only_validate_sees(
    bundle: JobBundle, tmp_path: Path
):
    roles = [{"name": "worker", "replicas": 3, "minSucceeded": 5, "replica": 1}]
    write(tmp_path / "jobs", "bad", roles=roles, image="")
    bundle.refresh()
    (stub,) = bundle.path.glob("*.py")
    bag = DagBag(str(stub), bundle_path=bundle.path)
    (error,) = bag.import_errors.values()
    assert "Traceback" not in error
    assert re.search(r"spec\.roles\[0\]\.replica: .*\(line \d+\)", error)
    write(tmp_path / "jobs", "bad", roles=[{"name": "worker", "replicas": 3, "minSucceeded": 5}])
    (error,) = DagBag(str(stub), bundle_path=bundle.path).import_errors.values()
    assert re.search(r"spec\.roles\[0\]\.minSucceeded: .*\(line \d+\)", error)
    assert not bag.dags


def test_a_stub_changes_with_its_job_and_goes_with_it(bundle: JobBundle, tmp_path: Path):
    path = write(tmp_path / "jobs", "one")
    bundle.refresh()
    (stub,) = bundle.path.glob("*.py")
    first = stub.stat().st_mtime_ns
    bundle.refresh()
    assert stub.stat().st_mtime_ns == first
    path.write_text(path.read_text() + "\n")
    bundle.refresh()
    assert stub.stat().st_mtime_ns > first
    path.unlink()
    bundle.refresh()
    assert list(bundle.path.iterdir()) == []


def test_a_stub_passes_the_safe_mode_of_airflow(bundle: JobBundle, tmp_path: Path):
    write(tmp_path / "jobs", "one")
    bundle.refresh()
    (stub,) = bundle.path.glob("*.py")
    text = stub.read_text().lower()
    assert "dag" in text
    assert "airflow" in text
