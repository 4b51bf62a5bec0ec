"""What slurmrestd is asked, and what its answers mean; of two APIs, on documents as they are sent."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.slurm import rest
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.cluster import SlurmSubmission, SubmitRefused
from airflow_training.runtimes.slurm.requests import AllocationComponent, AllocationRequest
from airflow_training.runtimes.slurm.rest import RestCluster
from airflow_training.runtimes.slurm.rest_documents import (
    api_version,
    read_nodes,
    read_queue,
    submission_document,
)

SMALL = AllocationComponent(cpus=2, memory_mb_per_cpu=512, gpus=1)


def submission(*components: AllocationComponent, **options: Any) -> SlurmSubmission:
    excluded = options.pop("excluded", ())
    request = AllocationRequest(
        components=components or (SMALL,),
        elements=(tuple((f"worker-{number}", f"worker-{number}b") for number, _ in enumerate(components or (SMALL,))),),
        excluded=excluded,
        spare_nodes=options.get("spare_nodes", 0),
        tasks_per_node=1 if options.get("spare_nodes") else 0,
    )  # fmt: skip
    return SlurmSubmission(
        request=request,
        options=AllocationOptions(**options),
        name="airflow-training.abc.0",
        comment="run abc",
        output="/shared/job-%j.log",
        deadline_seconds=90,
        script="#!/bin/sh\ntrue\n",
    )


def sent(version: int, *components: AllocationComponent, **options: Any) -> dict[str, Any]:
    return submission_document(
        submission(*components, **options), version=version, environment={"PATH": "/bin"}
    )


def test_a_job_is_said_in_the_words_of_the_old_api():
    document = sent(38, partition="gpu", time="1-02:00", exclusive=True, constraint="a100")
    assert document["script"] == "#!/bin/sh\ntrue\n"
    job = document["job"]
    assert job["environment"] == {"PATH": "/bin"}
    assert (job["partition"], job["constraints"]) == ("gpu", "a100")
    assert (job["tasks"], job["cpus_per_task"], job["memory_per_cpu"]) == (2, 2, 512)
    assert job["gpus_per_task"] == "1"
    assert job["time_limit"] == 26 * 60
    assert job["signal"] == "TERM@60"
    assert job["exclusive"] == "exclusive"
    assert job["requeue"] is False


def test_a_job_is_said_in_the_words_of_the_new_api():
    job = sent(42, time="90:00", gres="license:2", excluded=("n1", "n2"))["job"]
    assert job["script"] == "#!/bin/sh\ntrue\n"
    assert job["environment"] == ["PATH=/bin"]
    assert job["memory_per_cpu"] == {"set": True, "infinite": False, "number": 512}
    assert job["time_limit"]["number"] == 90
    assert job["tres_per_task"] == "gres/gpu:1"
    assert job["tres_per_node"] == "gres/license:2"
    assert (job["kill_warning_signal"], job["kill_warning_delay"]["number"]) == ("TERM", 60)
    assert job["excluded_nodes"] == ["n1", "n2"]


@pytest.mark.parametrize("version", [38, 42])
def test_components_are_jobs_of_one_request(version):
    document = sent(version, SMALL, AllocationComponent())
    assert [each["cpus_per_task"] for each in document["jobs"]] == [2, 1]
    scripts = [document.get("script"), *(each.get("script") for each in document["jobs"])]
    assert scripts.count("#!/bin/sh\ntrue\n") == 1, "its first job has the script"


def test_spare_nodes_are_asked_for_in_both():
    job = sent(38, spare_nodes=1)["job"]
    assert (job["nodes"], job["tasks"], job["no_kill"]) == (3, 3, "set")
    job = sent(42, spare_nodes=1)["job"]
    assert (job["minimum_nodes"], job["tasks"], job["kill_on_node_fail"]) == (3, 3, False)


def test_the_limit_follows_from_the_deadline_where_no_time_is_named():
    assert sent(38)["job"]["time_limit"] == 4


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


ADA = 1000
OLD_JOB = {
    "job_id": 7,
    "het_job_id": 0,
    "het_job_offset": 0,
    "job_state": "PENDING",
    "state_reason": "Resources",
    "start_time": 0,
    "end_time": 0,
    "nodes": "",
    "name": "airflow-training.abc.0",
    "user_id": ADA,
}
NEW_JOB = {
    **OLD_JOB,
    "het_job_id": number(7),
    "het_job_offset": number(1),
    "job_state": ["RUNNING", "COMPLETING"],
    "state_reason": "None",
    "start_time": number(1_800_000_000),
    "end_time": number(1_800_000_060),
    "nodes": "n[1-2]",
}


def test_the_queue_of_a_user_is_read_in_both():
    others = {**OLD_JOB, "job_id": 8, "user_id": 1001}
    (old,) = read_queue({"jobs": [OLD_JOB, others]}, uid=ADA).values()
    assert (old.id, old.state, old.reason, old.starts_at) == ("7", "PENDING", "Resources", None)
    (new,) = read_queue({"jobs": [NEW_JOB]}, uid=ADA).values()
    assert (new.id, new.state, new.reason, new.nodes) == ("7+1", "COMPLETING", "", "n[1-2]")
    assert (new.starts_at, new.ends_at) == (1_800_000_000, 1_800_000_060)


def test_a_job_that_slurm_has_queued_again_is_over_for_its_run():
    (job,) = read_queue({"jobs": [{**OLD_JOB, "restart_cnt": 1}]}, uid=ADA).values()
    assert (job.over, job.reason) == (True, "queued again")


def test_elements_of_an_array_are_named_as_squeue_names_them():
    """A run that began by Slurm's commands has some."""
    runs = {**OLD_JOB, "job_id": 9, "array_job_id": 7, "array_task_id": 0}
    waits = {**OLD_JOB, "array_job_id": 7, "array_task_id": None, "array_task_string": "1-3,5%2"}
    assert set(read_queue({"jobs": [runs, waits]}, uid=ADA)) == {"7_0", "7_1", "7_2", "7_3", "7_5"}
    new = {
        **NEW_JOB,
        "het_job_id": number(0),
        "array_job_id": number(7),
        "array_task_id": number(4),
    }
    assert set(read_queue({"jobs": [new]}, uid=ADA)) == {"7_4"}
    alone = {**new, "array_job_id": number(0), "array_task_id": {"set": False, "number": 0}}
    assert set(read_queue({"jobs": [alone]}, uid=ADA)) == {"7"}


def test_nodes_are_read_in_both():
    old = {"name": "n1", "state": "mixed", "state_flags": [], "cpus": 8, "real_memory": 1000,
           "gres": "gpu:a100:4", "gres_used": "gpu:a100:1", "partitions": ["main"], "active_features": "ib",
           "alloc_cpus": 2, "alloc_memory": 400}  # fmt: skip
    new = {**old, "name": "n2", "state": ["MIXED"], "active_features": ["ib"]}
    drained = {**old, "name": "n3", "state": ["IDLE", "DRAIN"]}
    found = read_nodes({"nodes": [old, new, drained]}, partition="main")
    assert [each.name for each in found] == ["n1", "n2"]
    assert {(each.free_cpus, each.gpus, each.free_gpus) for each in found} == {(6.0, 4, 3)}
    assert {each.labels["slurm/features"] for each in found} == {"ib"}
    assert read_nodes({"nodes": [old]}, partition="other") == []


def test_the_newest_api_that_was_tried_is_spoken():
    paths = [f"/slurm/v0.0.{version}/jobs" for version in (36, 38, 39, 41, 40)]
    assert api_version(paths) == 41
    assert api_version(paths[:3]) == 38
    assert api_version(["/openapi", "/slurm/v0.0.39/jobs"]) == 0
    newer = [f"/slurm/v0.0.{version}/jobs" for version in (45, 43, 44)]
    assert api_version(newer) == 43
    assert api_version([*newer, *paths, "/slurm/v0.0.42/jobs"]) == 42


META = {"meta": {"plugin": {"type": "openapi"}}}


# a cluster that answers ------------------------------------------------------------------------------
@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, httpx.Response]:
    """Path -> what slurmrestd answers there."""
    found: dict[str, httpx.Response] = {
        "/openapi/v3": httpx.Response(
            200, json={"openapi": "3.0.3", "paths": {"/slurm/v0.0.38/jobs": {}}}
        )
    }

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["X-SLURM-USER-NAME"] == "ada"
        if request.headers.get("X-SLURM-USER-TOKEN") != "secret":
            return httpx.Response(401, text="Authentication failure")
        return found[request.url.path]

    client = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://rest")
    monkeypatch.setattr(rest, "_client", lambda *_: client)
    monkeypatch.setattr(rest, "_versions", {})
    return found


def test_a_token_that_is_renewed_is_used_at_once(answers, tmp_path):
    answers["/slurm/v0.0.38/jobs"] = httpx.Response(200, json={**META, "jobs": [OLD_JOB]})
    token = tmp_path / "token"
    token.write_text("stale\n")
    cluster = RestCluster(url="http://rest", user="ada", uid=ADA, token_file=str(token))
    with pytest.raises(RuntimeUnavailable, match=f"does not know ada by the token of {token}"):
        cluster.queue()
    token.write_text("SLURM_JWT=secret\n")
    assert set(cluster.queue()) == {"7"}


def test_the_variable_of_slurm_has_the_token_where_no_file_is_named(answers, monkeypatch):
    answers["/slurm/v0.0.38/jobs"] = httpx.Response(200, json={**META, "jobs": []})
    monkeypatch.setenv("SLURM_JWT", "secret")
    assert RestCluster(url="http://rest", user="ada", uid=ADA).queue() == {}


@pytest.fixture
def cluster(answers: dict[str, httpx.Response], monkeypatch: pytest.MonkeyPatch) -> RestCluster:
    monkeypatch.setenv("SLURM_JWT", "secret")
    return RestCluster(url="http://rest", user="ada", uid=ADA)


def test_a_refusal_is_told_apart_from_one_that_passes(answers, cluster):
    wrong = {**META, "errors": [{"error_code": 2000, "error": "Invalid partition name specified"}]}
    answers["/slurm/v0.0.38/job/submit"] = httpx.Response(200, json=wrong)
    with pytest.raises(SubmitRefused, match="Invalid partition name") as refused:
        cluster.submit(submission())
    assert refused.value.answer.kind == "impossible"
    away = {**META, "errors": [{"error": "Unable to contact slurm controller (connect failure)"}]}
    answers["/slurm/v0.0.38/job/submit"] = httpx.Response(200, json=away)
    with pytest.raises(RuntimeUnavailable, match="Unable to contact"):
        cluster.submit(submission())


@pytest.mark.parametrize("said", ["Unspecified error", "Zero Bytes were transmitted or received"])
def test_what_old_versions_say_to_a_token_that_ran_out_is_no_refusal(answers, cluster, said):
    answers["/slurm/v0.0.38/job/submit"] = httpx.Response(
        500, json={**META, "errors": [{"error": said}]}
    )
    with pytest.raises(RuntimeUnavailable, match="SLURM_JWT has no token of ada that is valid now"):
        cluster.submit(submission())


@pytest.mark.parametrize(
    "answer",
    [
        "<html>Bad Gateway</html>",
        '{"message": "bad gateway"}',
        '{"status": 502}',
        "[]",
        '{"errors": "x"}',
    ],
)
def test_what_something_in_the_way_answers_is_no_empty_queue(answers, cluster, answer):
    answers["/slurm/v0.0.38/jobs"] = httpx.Response(502, text=answer)
    with pytest.raises(RuntimeUnavailable, match="answers 502: ") as away:
        cluster.queue()
    assert answer in str(away.value)


def test_an_answer_without_jobs_is_no_empty_queue(answers, cluster):
    answers["/slurm/v0.0.38/jobs"] = httpx.Response(200, json=META)
    with pytest.raises(RuntimeUnavailable, match="an answer without jobs"):
        cluster.queue()


def test_a_job_that_is_queued_with_an_error_is_a_job(answers, cluster):
    said = {"error": "Requested partition configuration not available now"}
    answer = {**META, "job_id": 7, "errors": [said]}
    answers["/slurm/v0.0.38/job/submit"] = httpx.Response(200, json=answer)
    assert cluster.submit(submission()) == "7"


def test_a_file_that_is_no_token_is_not_quoted(answers, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\nexport X=1\n")
    cluster = RestCluster(url="http://rest", user="ada", token_file=str(token))
    with pytest.raises(RuntimeUnavailable, match=f"{token}: is no token") as told:
        cluster.queue()
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "said",
    [
        "Unspecified error: Batch job submission failed",
        "Rate limit exceeded",
        "Incompatible versions of client and server code",
    ],
)
def test_what_another_try_may_help_against_is_no_refusal(answers, cluster, said):
    answers["/slurm/v0.0.38/job/submit"] = httpx.Response(
        500, json={**META, "errors": [{"error": said}]}
    )
    with pytest.raises(RuntimeUnavailable):
        cluster.submit(submission())


def test_options_of_sbatch_are_refused_before_anything_is_queued(cluster):
    answer = cluster.find_refusal(submission(extra=("--nice=100",)))
    assert answer is not None
    assert answer.kind == "impossible"
    assert "--nice=100" in answer.message


def test_cancelling_what_is_gone_is_no_error(answers, cluster):
    gone = {**META, "errors": [{"error": "Invalid job id specified", "error_number": 2017}]}
    answers["/slurm/v0.0.38/job/9"] = httpx.Response(500, json=gone)
    cluster.cancel(["9"])
    over = {**META, "status": [{"error": {"string": "Job/step already completing or completed"}}]}
    answers["/slurm/v0.0.38/job/9"] = httpx.Response(200, json=over)
    cluster.cancel(["9"])
    denied = {"string": "Access denied", "message": "Access denied"}
    answers["/slurm/v0.0.38/job/9"] = httpx.Response(
        200, json={**META, "status": [{"error": denied}]}
    )
    with pytest.raises(RuntimeUnavailable, match="Access denied"):
        cluster.cancel(["9"])
