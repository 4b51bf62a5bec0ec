"""What two ends of a login say to each other, and how a login is written."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path

import pytest

from airflow_training.control.hardware import RequiredHardware
from airflow_training.control.observations import Observation
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import FileTemplate, ResolvedJob, ResolvedRole, RunRef
from airflow_training.documents.resolved_blocks import (
    ResolvedCheckpoint,
    SaveEverySteps,
    StallRules,
)
from airflow_training.errors import (
    InputError,
    LeaseLost,
    RefusedForNow,
    RuntimeUnavailable,
    StillAlive,
)
from airflow_training.runtimes.port import (
    Address,
    Cursor,
    InstanceRef,
    InstanceSpec,
    LogChunk,
    Snapshot,
)
from airflow_training.runtimes.registry import adapter_of_job
from airflow_training.runtimes.rendering import sees_our_files
from airflow_training.runtimes.slurm.login.messages import (
    decode,
    decode_error,
    encode,
    encode_error,
    line_of,
)
from airflow_training.runtimes.slurm.login.ssh_login import FOLDER, SshLogin

RUN = RunRef(uid="u1", job="digits", namespace="default", controller="c", generation=3)
REF = InstanceRef(run=RUN, key=InstanceKey("worker", 1), uid="x")


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"worker": [Address(host="a", ports={"main": 1})]},
        {InstanceKey("worker", 0): (1, 2.5, "ü\n")},
        {"~": "a user's own key"},
        LogChunk(data=bytes(range(256)), next=Cursor(offset=256), end=True),
        InstanceSpec(
            ref=REF,
            name="n",
            resolved=ResolvedRole(name="worker", replicas=2, template={"spec": {"containers": []}}),
            command=("sh", "-c", "echo"),
            executables=frozenset({"run.sh"}),
            readiness=RequiredHardware(
                timeout_seconds=1,
                devices=0,
                memory_share=0.1,
                memory_pressure=0.5,
                free_bytes=1,
            ),
            stall=StallRules(),
        ),
        ResolvedJob(
            name="digits",
            roles=(ResolvedRole(name="w", replicas=1, files=(FileTemplate(path="a", content=""),)),),
            checkpoint=ResolvedCheckpoint(uri="s3://b", every=SaveEverySteps(5)),
        ),
        Snapshot(
            instances=(
                Observation(key=REF.key, uid="x", progress=ProgressReport(), environment=("{}",)),
            )
        ),
        [(RUN, "7, 8")],
    ],
)  # fmt: skip
def test_what_the_port_knows_arrives_as_it_was(value):
    line = line_of({"is": encode(value)})
    assert line.count(b"\n") == 1
    assert decode(json.loads(line)["is"]) == value


def test_nothing_else_is_sent_or_made():
    with pytest.raises(TypeError, match="Path"):
        encode({"a": Path("/")})
    with pytest.raises(KeyError):
        decode({"~": "Popen", "is": {"args": ["id"]}})


@pytest.mark.parametrize(
    "error",
    [
        InputError.of(code="a", field="spec.x", message="m", value={"b": 1}, hint="h"),
        InputError.of(code="a", field="spec.x", message="m", value=Path("/x")),
        RefusedForNow("not now", reason="Full", patience_seconds=7, grace_seconds=9),
        RuntimeUnavailable("away"),
        LeaseLost("lost"),
        StillAlive("lives"),
        OSError("disk full"),
    ],
)
def test_errors_arrive_as_they_were(error):
    found = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(found) is type(error)
    assert str(found) == str(error)
    for name in ("reason", "patience_seconds", "grace_seconds"):
        assert getattr(found, name, None) == getattr(error, name, None)


def test_an_error_that_nobody_expected_says_what_it_was():
    found = decode_error(encode_error(ZeroDivisionError("division by zero")))
    assert isinstance(found, RuntimeError)
    assert "ZeroDivisionError: division by zero" in str(found)


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("login1", SshLogin(host="login1")),
        ("ada@login1.site.org", SshLogin(host="login1.site.org", user="ada")),
        (
            "ssh://ada@login1:2222/shared/a%20b?python=/opt/py/bin/python&key=~/.ssh/site",
            SshLogin(
                host="login1",
                user="ada",
                port=2222,
                folder="/shared/a b",
                python="/opt/py/bin/python",
                key_file="~/.ssh/site",
            ),
        ),
        ("ssh://login1/~/runs", SshLogin(host="login1", folder="~/runs")),
        ("ssh://[::1]:22", SshLogin(host="::1", port=22, folder=FOLDER)),
        ("ssh://ada@login1/", SshLogin(host="login1", user="ada", folder=FOLDER)),
    ],
)
def test_a_login_is_written_as_for_ssh(text, login):
    assert SshLogin.parse(text) == login


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-oProxyCommand=id", "no login node"),
        ("ssh://-oProxyCommand=id/x", "no login node"),
        ("a b", "no login node"),
        ("-l@host", "no login node"),
        ("ssh://", "no login node"),
        ("http://host", "only ssh://"),
        ("ssh://host:port", "port"),
        ("ssh://host?password=1", "password"),
        ("ssh://host?python=id;id", "no path of a Python"),
    ],
)
def test_what_is_no_login_is_refused_in_words(text, said):
    with pytest.raises(InputError, match=said):
        SshLogin.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("ssh://ada:geheim@login1", "by key only"), ("ssh://login1?password=geheim", "password")],
)
def test_a_password_is_refused_and_not_repeated(text, said):
    with pytest.raises(InputError) as caught:
        SshLogin.parse(text)
    (problem,) = caught.value.problems
    shown = f"{problem} {caught.value}"
    assert said in shown
    assert "geheim" not in shown


def _public_key(kind: str) -> str:
    raw = len(kind).to_bytes(4, "big") + kind.encode() + b"\0\0\0\x04abcd"
    return base64.b64encode(raw).decode()


def test_a_connection_of_airflow_is_read_as_its_ssh_provider_reads_it():
    key = _public_key("ssh-ed25519")
    options = {"account": "vision"}
    extra = {
        "private_key": "-----BEGIN",
        "host_key": key,
        "folder": "/shared",
        "timeout": 10,
        "options": options,
    }
    found = SshLogin.from_airflow("hpc", host="login1", user="ada", port=None, extra=extra)
    assert found == SshLogin(
        host="login1",
        user="ada",
        folder="/shared",
        private_key="-----BEGIN",
        host_key=f"ssh-ed25519 {key}",
        options=options,
    )
    assert "BEGIN" not in repr(found)
    for line in (f"ssh-ed25519 {key} comment", f"[login1]:22 ssh-ed25519 {key}"):
        extra["host_key"] = line
        again = SshLogin.from_airflow("hpc", host="login1", user="ada", port=None, extra=extra)
        assert again == found


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"no_host_key_check": "true"}, "always checked"),
        ({"no_host_key_check": True}, "always checked"),
        ({"private_key_passphrase": "x"}, "passphrase"),
        ({"host_key": "not-a-key"}, "no public key"),
        ({"options": {"partitions": "gpu"}}, "options.partitions"),
        ({"options": "gpu"}, "options"),
        ({"folder": "training"}, "no folder"),
        ({"folder": "/a\nb"}, "no folder"),
        ({"options": {"containerRuntime": "apptainer"}}, "only a job can say it"),
    ],
)
def test_a_connection_that_would_be_less_safe_is_refused(extra, said):
    with pytest.raises(InputError, match=said):
        SshLogin.from_airflow("hpc", host="login1", user="", port=22, extra=extra)


def test_paths_of_a_job_whose_cluster_is_logged_in_to_are_not_ours():
    job = ResolvedJob(
        name="digits",
        runtime="slurm",
        output_uri="results",
        checkpoint=ResolvedCheckpoint(uri="/scratch/ckpt"),
        base_dir="/home/ada",
    )
    there = dataclasses.replace(job, connection="ada@login1")
    assert [sees_our_files(each) for each in (job, there)] == [True, False]
    told = [each.field for each in adapter_of_job(there).warnings(there)]
    assert told == ["spec.output.uri", "spec.checkpoint.uri"]
    assert not list(adapter_of_job(job).warnings(job))
    stored = dataclasses.replace(there, output_uri="s3://b/results", checkpoint=None)
    assert not list(adapter_of_job(stored).warnings(stored))
