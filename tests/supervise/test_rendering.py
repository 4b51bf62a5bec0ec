"""One attempt of one instance, ready for a runtime."""

from __future__ import annotations

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.control.attempts import AttemptId
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError
from airflow_training.runtimes.kubernetes.template import template_of
from airflow_training.runtimes.rendering import expected_addresses, render_instance
from tests.frameworks.samples import a_document

RUN = RunRef(
    uid="abcde0123456789", job="digits", namespace="default", controller="me", generation=3
)


@pytest.fixture(autouse=True)
def _home(airflow_home):
    """Settings come from an empty Airflow home."""


def resolved(framework="pytorch", roles=None, *, runtime="local", base_dir="", **spec):
    roles = {"master": 1, "worker": 2} if roles is None else roles
    text = yaml.safe_dump(a_document(framework, roles, **spec), sort_keys=False)
    (checked,) = check_text(text, runtime=runtime, base_dir=base_dir)
    assert checked.resolved is not None, checked.problems
    return checked.resolved


def render(job, role="worker", index=0, **more):
    return render_instance(
        job, RUN, expected_addresses(job, RUN.prefix), role=role, index=index, **more
    )


def test_the_attempt_is_stamped_on_what_is_created():
    spec = render(resolved(), attempt=AttemptId(1, 2, 3), held=True)
    ref = spec.ref
    assert (ref.run, ref.role, ref.index) == (RUN, "worker", 0)
    assert (ref.epoch, ref.job_attempt, ref.attempt) == (1, 2, 3)
    assert spec.name == "digits-abcde-worker-0"
    assert spec.held
    assert (spec.env["TRAINING_JOB_ATTEMPT"], spec.env["TRAINING_ATTEMPT"]) == ("2", "3")


def test_rendering_twice_gives_the_same():
    job = resolved()
    assert render(job) == render(job)


def test_command_args_and_env_of_the_user_are_rendered_once():
    job = resolved(
        command=["train", "{{ params.text }}"],
        args=["{{ addresses('worker') }}"],
        env=[{"name": "MASTER", "value": "{{ address('master', 0) }}"}],
        dag={"params": {"text": {"type": "string", "default": "{{ run_id }}"}}},
    )
    spec = render(job)
    assert list(spec.command) == ["train", "{{ run_id }}"]
    assert list(spec.args) == ["127.0.0.1:23457,127.0.0.1:23458"]
    assert spec.env["MASTER"] == "127.0.0.1:23456"


@pytest.mark.parametrize(
    ("base_dir", "working_dir", "expected"),
    [
        ("/jobs", None, "/jobs"),
        ("/jobs", "src", "/jobs/src"),
        ("/jobs", "/data", "/data"),
        ("", "src", "src"),
        ("", None, ""),
    ],
)
def test_the_working_directory_is_relative_to_the_job_file(base_dir, working_dir, expected):
    spec = {} if working_dir is None else {"workingDir": working_dir}
    assert render(resolved(base_dir=base_dir, **spec)).working_dir == expected


def test_limits_count_before_requests():
    job = resolved(
        resources={
            "requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": 2, "nvidia.com/gpu": 1},
        }
    )
    assert render(job).resources == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}


def test_only_the_first_instance_of_the_output_role_uploads():
    job = resolved(output={"uri": "s3://out/{{ run_id }}", "role": "worker"})
    assert render(job, "worker", 0, run_id="r9").output_uri == "s3://out/r9"
    assert render(job, "worker", 1).output_uri == ""
    assert render(job, "master", 0).output_uri == ""


@pytest.mark.parametrize("run_id", ["..", "a/../../b", "%2e%2e/b"])
@pytest.mark.parametrize("field", ["output", "checkpoint"])
def test_no_value_leads_out_of_an_address(run_id, field):
    job = resolved(**{field: {"uri": "../models/{{ run_id }}/x"}})
    render(job, "master", 0, run_id="a..b")
    with pytest.raises(InputError, match=r"leads out of it"):
        render(job, "master", 0, run_id=run_id)


def test_deadline_and_grace():
    job = resolved(
        activeDeadlineSeconds=60,
        roles={"master": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}, "worker": 1},
    )
    assert (render(job, "master").deadline_seconds, render(job, "master").grace_seconds) == (60, 5)
    assert render(job, "worker").grace_seconds == job.grace_seconds
    assert render(job, "worker", deadline_seconds=7).deadline_seconds == 7


def test_a_readiness_probe_reaches_the_local_runtime():
    probe = {"tcpSocket": {"port": "pytorchjob-port"}}
    template = {"spec": {"containers": [{"name": "pytorch", "readinessProbe": probe}]}}
    job = resolved(roles={"master": {"template": template}})
    (container,) = render(job, "master").resolved.template["spec"]["containers"]
    assert container["readinessProbe"] == probe


def test_sizes_of_now_count_after_scaling():
    job = resolved(roles={"master": 1, "worker": 3})
    assert render(job, replicas={"worker": 1}).env["WORLD_SIZE"] == "2"


def test_the_pod_is_whole_and_ours_is_merged_into_it():
    job = resolved(
        "pytorch",
        {
            "worker": {
                "template": {
                    "metadata": {"labels": {"team": "x"}},
                    "spec": {
                        "nodeSelector": {"gpu": "a100"},
                        "containers": [{"name": "logs", "image": "logs:1"}],
                    },
                }
            }
        },
        runtime="kubernetes",
        image="img",
        env=[
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "SEEN", "value": "$(RANK)"},
        ],
        ports=[{"name": "metrics", "containerPort": 9090, "protocol": "TCP"}],
    )
    spec = render(job)
    assert "KEY" not in spec.env
    pod = template_of(spec)
    assert pod["metadata"] == {"labels": {"team": "x"}}
    assert pod["spec"]["nodeSelector"] == {"gpu": "a100"}
    containers = {container["name"]: container for container in pod["spec"]["containers"]}
    assert set(containers) == {"logs", "pytorch"}
    own = containers["pytorch"]
    assert (own["image"], own["command"]) == ("img", ["python", "train.py"])
    names = [entry["name"] for entry in own["env"]]
    assert len(names) == len(set(names))
    assert names.index("RANK") < names.index("SEEN")
    assert {"name": "RANK", "value": "0"} in own["env"]
    assert next(e for e in own["env"] if e["name"] == "KEY")["valueFrom"]
    assert own["ports"] == [
        {"name": "pytorchjob-port", "containerPort": 23456},
        {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
    ]


def test_the_resolved_job_is_not_changed_by_rendering():
    job = resolved(runtime="kubernetes", image="img")
    before = repr(job)
    render(job)
    assert repr(job) == before


LIVE = """
apiVersion: airflow-training/v1
kind: Framework
metadata: {name: live}
spec:
  anyRole: true
  files:
    - {path: hosts.sh, content: "echo {{ live('b') | join(' ') }}", executable: true, live: true}
    - {path: fixed, content: "{{ name(role, index) }}"}
"""


def test_files_from_live_addresses_wait_for_the_release(airflow_home):
    folder = airflow_home / "frameworks"
    folder.mkdir()
    (folder / "live.yaml").write_text(LIVE)
    job = resolved("live", {"a": 1, "b": 2})
    live = {"b": ["127.0.0.1:7"]}
    at_once = render(job, "a", live=live)
    assert at_once.files == {"fixed": "digits-abcde-a-0", "hosts.sh": "echo 127.0.0.1:7"}
    assert at_once.live_files == {}
    held = render(job, "a", live=live, held=True)
    assert held.files == {"fixed": "digits-abcde-a-0"}
    assert held.live_files == {"hosts.sh": "echo 127.0.0.1:7"}
    assert held.executables == {"hosts.sh"}


def test_an_instance_that_nobody_prepared_is_an_error_not_a_guess():
    job = resolved("custom", {"a": 1}, command=["run", "{{ address('a', 0) }}"])
    with pytest.raises(InputError, match="address"):
        render_instance(job, RUN, {"a": []}, role="a", index=0)
