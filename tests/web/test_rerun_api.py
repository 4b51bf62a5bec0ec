"""A run's job is started again once, by who may, from the beginning or from a checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.model import Recovery
from airflow_training.documents.resolved import RunKey
from airflow_training.documents.resolved_blocks import CheckpointCommit, ResolvedCheckpoint
from airflow_training.errors import InputError
from airflow_training.runtimes.rendering import checkpoint_address
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.command_runs import CommandRuns
from tests.state.samples import START, a_job, a_ledger, an_event, take
from tests.waiting import wait_until
from tests.web.conftest import FakeNewRuns, a_run


def again(client: Any, run: RunRecord, *, key: str = "k", user: str = "op", **body: Any) -> Any:
    headers = {"user": user, "Idempotency-Key": key}
    path = f"/api/dags/digits/trainings/{run.uid}/again"
    return client.post(path, headers=headers, json=body)


def told(run: RunRecord) -> list[str]:
    return [each.event.message for each in open_store().events(run.uid)]


def ended(key: RunKey) -> bool:
    run = open_store().run(key.uid)
    return run is not None and run.finished_at is not None


def ended_run(**entry: Any) -> RunRecord:
    return a_run(ledger=a_ledger(state="Succeeded", drained=True, finished_at=START, **entry))


def test_a_double_click_begins_one_run_and_the_story_says_who(client, new_runs: FakeNewRuns):
    run = ended_run()
    answers = [again(client, run) for _ in range(3)]
    assert {each.status_code for each in answers} == {202}
    [name] = new_runs.begun
    assert {each.json()["run_id"] for each in answers} == {name}
    assert new_runs.begun == {name: None}
    assert told(run) == [f"run again by op: {name}"]
    assert again(client, run, key="another").json()["run_id"] != name
    assert len(told(run)) == 2


def test_every_step_that_the_page_offers_is_where_a_new_run_can_begin(
    client, new_runs: FakeNewRuns
):
    run, store = ended_run(recovery=Recovery(lineage=1)), open_store()
    block = ResolvedCheckpoint(uri="s3://models", keep=2, keep_every=3)
    job = dataclasses.replace(store.job(run.uid), checkpoint=block)
    job = dataclasses.replace(job, restart=dataclasses.replace(job.restart, scope="Job"))
    lease, ledger = take(store, run.uid), store.ledger(run.uid)
    store.replace_job(run.uid, job, ledger, generation=lease.generation)
    address = checkpoint_address(job, run.ref())
    saved = [
        CheckpointCommit(
            uri=f"{address}/{lineage}",
            step=step,
            digest=f"{step}",
            at=START + step,
            number=number,
        )
        for lineage, steps in ((0, range(10, 100, 10)), (1, (110, 120)))
        for number, step in enumerate(steps, 1)
    ]
    events = [
        an_event(
            at=each.at,
            reason=reasons.CHECKPOINT_COMMITTED,
            data={"checkpoint": each.to_document()},
        )
        for each in saved
    ]
    store.commit(run.uid, lease=lease, old=ledger, new=ledger, events=events)
    path = f"/api/dags/digits/trainings/{run.uid}/checkpoints"
    offered = [
        each["step"]
        for lineage in client.get(path).json()["lineages"]
        for each in lineage["checkpoints"]
        if each["restorable"]
    ]
    assert offered == [120, 110, 90, 80, 60, 30]
    for step in offered:
        answer = again(client, run, key=f"from-{step}", step=step)
        assert answer.status_code == 202, (step, answer.text)
        begun = new_runs.begun[answer.json()["run_id"]]
        assert begun == {"fromRun": run.uid, "step": step}
    assert told(run)[-1].startswith("run again from step 30 by op: ")
    assert again(client, run, key="removed", step=70).status_code == 409
    assert again(client, run, step=41).status_code == 409
    assert again(client, run, step=-1).status_code == 422
    assert len(new_runs.begun) == len(offered)


JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: custom
  command: [python, train.py]
  roles: [{name: worker}]
  runtime: {name: kubernetes}
  image: digits:1
"""
WRONG = JOB.replace("{name: worker}", "{name: worker, replicas: <b>many</b>}")


def check(client: Any, run: RunRecord, document: str, *, user: str = "op") -> Any:
    path = f"/api/dags/digits/trainings/{run.uid}/check"
    return client.post(path, headers={"user": user}, json={"document": document})


def test_an_edited_document_begins_one_run_and_the_story_says_who(client, new_runs: FakeNewRuns):
    run = ended_run()
    answers = [again(client, run, document=JOB) for _ in range(3)]
    assert {each.status_code for each in answers} == {202}
    assert {each.json()["dag"] for each in answers} == {"training_job"}
    [name] = new_runs.begun
    assert new_runs.begun == {name: JOB}
    assert {each.json()["run_id"] for each in answers} == {name}
    assert told(run) == [f"run again edited by op: {name}"]
    # the same key with another document is another run
    other = again(client, run, document=JOB.replace("name: digits", "name: letters"))
    assert other.json()["run_id"] != name
    assert len(new_runs.begun) == 2


def test_an_edited_document_with_mistakes_begins_nothing(client, new_runs: FakeNewRuns):
    run = ended_run()
    refused = again(client, run, document=WRONG)
    assert refused.status_code == 422
    assert "spec.roles[0].replicas" in refused.json()["detail"]
    assert "(line 7)" in refused.json()["detail"]
    assert again(client, run, document=JOB, step=1).status_code == 422
    assert again(client, run, document=JOB, user="viewer").status_code == 403
    assert new_runs.begun == {}
    assert told(run) == []


@pytest.mark.parametrize(
    ("document", "field", "line", "message"),
    [
        pytest.param(WRONG, "spec.roles[0].replicas", 7, "whole number", id="wrong-type"),
        pytest.param("a: [", "", 1, "", id="no-yaml"),
        pytest.param("", "", None, "holds no job", id="nothing"),
        pytest.param(
            f"{JOB}---\n{JOB.replace('digits', 'other')}", "", None, "holds 2 jobs", id="two-jobs"
        ),
        pytest.param(
            JOB.replace("train.py]", '"{{ params.lr }}"]'),
            "spec.command[1]",
            6,
            "lr",
            id="a-parameter-nobody-gives",
        ),
        pytest.param(
            JOB + "  dag: {params: {lr: {type: number}}}\n",
            "params.lr",
            None,
            "has no default",
            id="a-parameter-without-a-value",
        ),
        pytest.param(
            JOB + "  template: {spec: {hostNetwork: true}}\n",
            "spec.template",
            10,
            "",
            id="no-such-key",
        ),
        pytest.param(
            JOB.replace("kubernetes", "local"),
            "spec.runtime.name",
            None,
            "the local runtime is off inside Airflow",
            id="runtime-that-airflow-does-not-start",
        ),
        pytest.param(
            JOB.replace("{name: worker}", "{name: worker, template: {spec: {hostNetwork: true}}}"),
            "spec.roles[0].template.spec.hostNetwork",
            7,
            "refused in a job that came through a form",
            id="trust-of-a-form",
        ),
    ],
)
def test_a_document_is_checked_before_it_runs(
    client, new_runs: FakeNewRuns, document: str, field: str, line: int | None, message: str
):
    run = ended_run()
    found = check(client, run, document).json()["mistakes"]
    assert (field, line) in {(each["field"], each["line"]) for each in found}, found
    assert any(message in each["message"] for each in found), found
    assert new_runs.begun == {}


def test_a_check_says_what_validate_says_and_hostile_text_comes_back_as_it_is(client):
    run = ended_run()
    assert check(client, run, JOB).json() == {"mistakes": [], "warnings": []}
    misspelt = JOB.replace("roles:", "rolls:").replace("worker", "<img src=x>")
    found = {each["field"]: each for each in check(client, run, misspelt).json()["mistakes"]}
    assert found["spec.rolls"]["line"] == 7
    assert "roles" in found["spec.rolls"]["hint"]
    named = JOB.replace("custom", "<img src=x>")
    [unknown] = check(client, run, named).json()["mistakes"]
    assert "<img src=x>" in unknown["message"]
    assert "pytorch" in unknown["allowed"]


def test_only_who_may_run_it_has_a_document_checked_and_not_an_endless_one(client):
    run = ended_run()
    assert check(client, run, JOB, user="viewer").status_code == 403
    assert check(client, run, "#" * 300_000).status_code == 422
    assert check(client, run, "#" * 3_000_000).status_code == 413
    assert again(client, run, document="#" * 3_000_000).status_code == 413
    path = f"/api/dags/digits/trainings/{run.uid}/check"
    assert client.post(path, content="{}").status_code == 415


def test_only_who_may_submit_is_offered_it(client, new_runs: FakeNewRuns):
    run = ended_run()
    path = f"/api/dags/digits/trainings/{run.uid}/again"
    assert client.get(path).json() == {"possible": True, "why": ""}
    refused = client.get(path, headers={"user": "viewer"}).json()
    assert refused == {"possible": False, "why": "you may not start runs of this DAG"}
    assert again(client, run, user="viewer").status_code == 403
    new_runs.why = "not here"
    assert client.get(path).json()["why"] == "not here"
    assert again(client, run).status_code == 409
    assert new_runs.begun == {}
    assert told(run) == []


def test_only_our_own_pages_start_runs(client, new_runs: FakeNewRuns):
    run = ended_run()
    path = f"/api/dags/digits/trainings/{run.uid}/again"
    assert client.post(path, content="{}", headers={"Idempotency-Key": "k"}).status_code == 415
    foreign = {"Idempotency-Key": "k", "Sec-Fetch-Site": "cross-site"}
    assert client.post(path, json={}, headers=foreign).status_code == 403
    assert client.post(path, json={}).status_code == 422
    assert new_runs.begun == {}


@pytest.mark.e2e
def test_what_cannot_begin_is_said_in_the_story_of_the_old_run(airflow_home: Path):
    """The job of the test has no command: the command line refuses it."""
    import asyncio

    run = a_run(dag="", source="cli")
    runs = CommandRuns()
    for _ in range(2):
        asyncio.run(runs.begin(None, run, "digits-again-1", resume=None))  # type: ignore[arg-type]  # not asked
    [refusal] = wait_until(lambda: told(run))
    assert refusal.startswith("digits-again-1: ")
    assert open_store().run(RunKey(source="cli", run_id="digits-again-1").uid) is None


@pytest.mark.e2e
def test_an_edited_document_runs_where_the_old_one_did(airflow_home: Path, tmp_path: Path):
    import asyncio

    (tmp_path / "say.sh").write_text('echo "$1" > said')
    job = dataclasses.replace(a_job(), base_dir=str(tmp_path))
    key = RunKey(source="cli", run_id="first")
    run = open_store().create_run(key, job, a_ledger(), controller="here", queue=False)
    document = JOB.replace("[python, train.py]", "[sh, say.sh, new]").replace("kubernetes", "local")
    runs = CommandRuns()
    new = runs.document_key(run, "0123456789ab")
    assert new.run_id == "digits-edited-01234567"
    for _ in range(2):
        asyncio.run(runs.begin_document(None, run, new.run_id, document=document))  # type: ignore[arg-type]  # not asked
    wait_until(lambda: ended(new) or told(run))
    assert told(run) == []
    assert (tmp_path / "said").read_text() == "new\n"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (None, []),
        ({"lr": 0.1}, []),
        (
            {"checkpoint.resume": {"fromRun": "<mine>", "step": 3}},
            ['spec.checkpoint.resume={"fromRun": "<mine>", "step": 3}'],
        ),
        ({"checkpoint.resume": {"fromRun": "<other group>", "step": 3}}, []),
        ({"checkpoint.resume": {"fromRun": "<other dag>", "step": 3}}, "refused"),
        ({"checkpoint.resume": {"fromRun": "nobody"}}, "refused"),
        ({"checkpoint.resume": {"asset": "s3://theirs"}}, "refused"),
        ({"checkpoint.resume": {"fromRun": "<mine>", "asset": "s3://theirs"}}, "refused"),
        ({"checkpoint.resume": "latest"}, "refused"),
    ],
)
def test_a_dag_run_starts_from_runs_of_its_own_dag_only(
    airflow_home: Path, conf: Any, expected: Any
):
    from airflow_training.compiler.resume import resume_overrides

    names = {
        "<mine>": a_run("mine", group_id="g").uid,
        "<other group>": a_run("mine", group_id="h").uid,
        "<other dag>": a_run("theirs", dag="secret", group_id="g").uid,
    }

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(each) for key, each in value.items()}
        for name, uid in names.items():
            value = value.replace(name, uid) if isinstance(value, str) else value
        return value

    key = RunKey(source="here", dag_id="digits", run_id="new", group_id="g")
    if expected == "refused":
        with pytest.raises(InputError):
            resume_overrides(open_store(), named(conf), key)
    else:
        found = resume_overrides(open_store(), named(conf), key)
        assert [*found] == [named(each) for each in expected]
