"""`airflow-training import`: our document on stdout, the report on stderr, and what the exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: digits}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: train, image: a, command: [python, train.py]}
"""


@pytest.fixture
def job(home) -> Path:
    path = Path("job-of-others.yaml")
    path.write_text(JOB)
    return path


def test_what_is_printed_is_a_job_file(typed, job):
    answer = typed("import", str(job))
    assert answer.code == 0
    Path("job.yaml").write_text(answer.stdout)
    assert typed("validate", "job.yaml").code == 0


def test_the_report_has_lines_and_reasons(typed, job):
    report = typed("import", str(job)).stderr
    assert "job-of-others.yaml: Job digits: " in report
    row = next(line for line in report.splitlines() if "spec.template.spec.restartPolicy" in line)
    assert row.split()[:4] == ["7", "spec.template.spec.restartPolicy", "Never", "translated"]
    assert "spec.template.spec.containers[0].image" not in report
    assert "spec.template.spec.containers[0].image" in typed("import", str(job), "--all").stderr


def test_a_refused_field_is_exit_code_1(typed, job):
    job.write_text(JOB.replace("spec:\n  template", "spec:\n  shiny: 1\n  template"))
    answer = typed("import", str(job), "-o", "json")
    assert answer.code == 1
    (document,) = answer.json["files"][0]["documents"]
    assert document["counts"]["refused"] == 1
    assert [(f["field"], f["line"]) for f in document["fields"] if f["fate"] == "refused"] == [
        ("spec.shiny", 5)
    ]
    assert yaml.safe_load(document["text"])["kind"] == "TrainingJob"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (JOB.replace("image: a", "imagee: a"), "'imagee'"),
        (JOB.replace("kind: Job", "kind: Job: 1"), "line 2"),
        ("{}", "no document with apiVersion and kind"),
        ("apiVersion: v1\nkind: Service\n", "holds no job"),
        ("", "holds no job"),
        ("apiVersion: airflow-training/v1\nkind: TrainingJob\n", "a document of ours already"),
    ],
)
def test_bad_input_is_exit_code_2(typed, job, text, said):
    job.write_text(text)
    answer = typed("import", str(job))
    assert answer.code == 2
    assert said in answer.stderr
    assert answer.stdout == ""


def test_a_mistake_in_a_pod_is_told_where_the_source_has_it(typed, job):
    job.write_text(JOB.replace("image: a", "imagee: a"))
    answer = typed("import", str(job), "-o", "json")
    (error,) = answer.json["files"][0]["errors"]
    assert (error["field"], error["line"]) == ("spec.template.spec.containers[0].imagee", 9)


def test_a_document_that_is_no_job_is_refused_beside_one(typed, job):
    job.write_text(f"{JOB}---\napiVersion: v1\nkind: Service\nmetadata: {{name: digits}}\n")
    answer = typed("import", str(job))
    assert answer.code == 1
    assert "Service digits: 0 fields kept, 0 translated, 0 dropped, 1 refused" in answer.stderr
    assert yaml.safe_load(answer.stdout)["metadata"]["name"] == "digits"


def test_a_file_that_is_not_there_is_exit_code_2(typed, job):
    answer = typed("import", str(job), "nowhere.yaml")
    assert answer.code == 2
    assert "nowhere.yaml" in answer.stderr


OURS = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: custom
  image: a
  roles: [{name: worker, command: [python, train.py], restartPolicy: Never}]
"""


def test_a_job_of_ours_is_printed_as_one_of_another_system(typed, home):
    Path("job.yaml").write_text(OURS)
    answer = typed("export", "--as", "jobset", "job.yaml")
    assert answer.code == 0
    assert yaml.safe_load(answer.stdout)["kind"] == "JobSet"
    assert "job.yaml: TrainingJob digits: " in answer.stderr
    Path("theirs.yaml").write_text(answer.stdout)
    assert typed("import", "theirs.yaml").code == 0


def test_what_another_system_has_not_is_exit_code_1(typed, home):
    Path("job.yaml").write_text(OURS)
    answer = typed("export", "--as", "sbatch", "job.yaml", "-o", "json")
    assert answer.code == 1
    (document,) = answer.json["documents"]
    assert [each["field"] for each in document["fields"] if each["fate"] == "refused"] == [
        "spec.image"
    ]


def test_a_job_that_is_not_valid_is_not_exported(typed, home):
    Path("job.yaml").write_text(OURS.replace("image", "imge"))
    answer = typed("export", "--as", "jobset", "job.yaml")
    assert (answer.code, answer.stdout) == (2, "")
    assert "line 6" in answer.stderr


def test_a_command_line_is_read_behind_two_dashes(typed, home):
    answer = typed("import", "--", "torchrun", "--nproc-per-node", "2", "train.py")
    assert answer.code == 0
    assert yaml.safe_load(answer.stdout)["spec"]["parameters"] == {"nprocPerNode": 2}


def test_a_job_finds_its_runtime_in_another_file(typed, home):
    from tests.interchange.test_trainjob import TRAINER, runtime, trainjob

    Path("job.yaml").write_text(trainjob(TRAINER))
    Path("runtime.yaml").write_text(runtime())
    assert typed("import", "job.yaml").code == 1
    answer = typed("import", "job.yaml", "runtime.yaml")
    assert answer.code == 0
    assert yaml.safe_load(answer.stdout)["metadata"]["name"] == "digits"
