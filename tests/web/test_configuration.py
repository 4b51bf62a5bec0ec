"""The Configuration tab: who gave each value that a run had, as far as the store knows."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import pytest

from airflow_training.admission.check import check_text
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import Ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.loading import load_documents
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.documents.resolved_blocks import CheckpointReference, ResolvedPlan
from airflow_training.state.store import RunRecord, RunState, open_store
from airflow_training.web.configuration import configuration
from tests.state.samples import START, a_job, a_ledger
from tests.web.conftest import SOURCE, a_run

JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: digits}
spec:
  framework: pytorch
  image: digits:1
  command: [python, train.py, --lr, "{{ params.lr }}"]
  activeDeadlineSeconds: 600
  roles:
    - {name: master}
    - {name: worker, replicas: 2, backoffLimit: 4}
  dag: {params: {lr: {default: 0.1}, seed: {default: 7}}}
"""


def resolved(text: str = JOB, *, params: Mapping[str, Any] | None = None, **fields: Any) -> Any:
    [checked] = check_text(text, params=params, runtime="local")
    assert checked.resolved is not None, checked.problems
    return dataclasses.replace(checked.resolved, **fields)


def add(
    job: ResolvedJob, *, scaled: int | None = None, source: str = SOURCE, dag: str = "digits"
) -> RunRecord:
    ledger = new_ledger(job, now=START, activate_all=True)
    if scaled is not None:
        entry = dataclasses.replace(ledger.roles["worker"], replicas=scaled)
        ledger = dataclasses.replace(ledger, roles={**ledger.roles, "worker": entry})
    return store_run(job, ledger, source=source, dag=dag)


def store_run(job: ResolvedJob, ledger: Ledger, *, source: str, dag: str) -> RunRecord:
    key = RunKey(source=source, dag_id=dag, run_id="first")
    return open_store().create_run(key, job, ledger, controller="here", queue=False)


def get(client: Any, run: RunRecord) -> Any:
    path = f"/api/dags/{run.key.dag_id or '~'}/trainings/{run.uid}/configuration"
    answer = client.get(path, headers={"user": "admin"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(client: Any, run: RunRecord) -> Mapping[str, tuple[str, str]]:
    found = get(client, run)
    assert found["problem"] == ""
    return {each["field"]: (each["value"], each["from"]) for each in found["defaults"]}


def test_the_user_the_framework_and_this_package_each_stand_beside_what_they_gave(client):
    found = told(client, add(resolved()))
    assert found["spec.roles[1].replicas"] == ("2", "user")
    assert found["spec.roles[1].backoffLimit"] == ("4", "user")
    assert found["spec.roles[0].backoffLimit"] == ("6", "airflow-training")
    assert found["spec.restart.scope"] == ("Job", "framework")
    assert found["spec.activeDeadlineSeconds"] == ("600", "user")
    assert found["spec.runtime.name"] == ("local", "airflow-training")
    assert found["spec.dag.params.seed"] == ("7", "user")


def a_plan() -> ResolvedPlan:
    return ResolvedPlan.from_document(
        {"id": "p", "applied": {"replicas": {"worker": 2}, "env": ["TP_SIZE"]}}
    )


def planned() -> ResolvedJob:
    job: ResolvedJob = resolved(plan=a_plan())
    roles = [dataclasses.replace(each, env={**each.env, "TP_SIZE": "2"}) for each in job.roles]
    return dataclasses.replace(job, roles=tuple(roles))


def hot_started() -> ResolvedJob:
    job: ResolvedJob = resolved(JOB + "  checkpoint: {uri: c, resume: {fromRun: before}}\n")
    assert job.checkpoint is not None
    initial = CheckpointReference(uri="c/step-40", step=40, digest="d")
    return dataclasses.replace(job, checkpoint=dataclasses.replace(job.checkpoint, initial=initial))


@pytest.mark.parametrize(
    ("job", "more", "field", "expected"),
    [
        pytest.param(planned, {}, "spec.roles[1].replicas", ("2", "plan"), id="plan"),
        pytest.param(planned, {}, "spec.env.TP_SIZE", ("2", "plan"), id="variable-of-the-plan"),
        pytest.param(
            planned, {"scaled": 5}, "spec.roles[1].replicas", ("5", "scale"), id="scaled-after"
        ),
        pytest.param(
            lambda: resolved(params={"lr": 0.5}),
            {},
            "spec.dag.params.lr",
            ("0.5", "parameters"),
            id="given-parameter",
        ),
        pytest.param(
            lambda: resolved(params={"more words": 1}),
            {},
            'spec.dag.params["more words"]',
            ("1", "parameters"),
            id="undeclared-parameter",
        ),
        pytest.param(
            lambda: resolved(active_deadline_seconds=60),
            {},
            "spec.activeDeadlineSeconds",
            ("60", "deployment"),
            id="ceiling",
        ),
        pytest.param(
            hot_started,
            {},
            "starts from",
            ("step 40 in c/step-40", "spec.checkpoint.resume"),
            id="checkpoint",
        ),
        pytest.param(
            lambda: resolved(runtime="kubernetes"),
            {},
            "spec.runtime.name",
            ("kubernetes", "deployment"),
            id="default-runtime",
        ),
        pytest.param(
            lambda: resolved(runtime="kubernetes"),
            {"source": "cli", "dag": ""},
            "spec.runtime.name",
            ("kubernetes", "command line or deployment"),
            id="runtime-of-the-command-line",
        ),
        pytest.param(
            lambda: resolved(JOB + "  runtime: {name: kubernetes}\n", runtime="local"),
            {"source": "cli", "dag": ""},
            "spec.runtime.name",
            ("local", "command line"),
            id="another-runtime",
        ),
    ],
)
def test_what_the_run_has_otherwise_says_where_that_came_from(
    client, job: Any, more: Any, field: str, expected: Any
):
    assert told(client, add(job(), **more))[field] == expected


def test_parameters_of_the_framework_are_those_of_then(client):
    job = resolved(parameters={"nprocPerNode": 3})
    found = told(client, add(job))
    named = {field: said for field, said in found.items() if field.startswith("spec.parameters.")}
    assert named == {"spec.parameters.nprocPerNode": ("3", "framework")}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        pytest.param({"kind": "TrainingJob"}, "metadata: is required", id="no-job-any-more"),
        pytest.param({"framework": "gone"}, "no framework is called", id="no-framework-any-more"),
        pytest.param({"roles": [{"name": "other"}]}, "other roles", id="other-roles"),
    ],
)
def test_a_document_that_nobody_understands_any_more_is_still_shown(
    client, document: Mapping[str, Any], why: str
):
    job = resolved()
    spec = {**job.document["spec"], **document}
    whole = {**job.document, "spec": spec} if "kind" not in document else document
    found = get(client, add(dataclasses.replace(job, document=whole)))
    assert json.dumps(found["defaults"]) == "[]"
    assert why in found["problem"]
    assert "kind: TrainingJob" in found["document"]


def test_another_run_begins_with_the_parameters_of_this_one_written_down(client):
    plain = get(client, add(resolved()))
    assert plain["draft"] == plain["document"]
    given = {"lr": 0.5, "seed": 7, "more words": [1]}
    draft = get(client, add(resolved(params=given), source="cli", dag=""))["draft"]
    params = load_documents(draft)[0].data["spec"]["dag"]["params"]
    assert params == {"lr": {"default": 0.5}, "seed": {"default": 7}}
    [checked] = check_text(draft, params={}, runtime="local")
    assert checked.resolved is not None
    assert checked.resolved.variables["params"] == {"lr": 0.5, "seed": 7}


def test_a_job_without_parameters_gets_those_it_was_given_too(client):
    job = resolved(JOB.replace("  dag: {", "  dag: null  # {"), params={"lr": 0.5})
    draft = load_documents(get(client, add(job))["draft"])[0].data
    assert draft["spec"]["dag"] == {"params": {"lr": {"default": 0.5}}}


def test_the_job_alone_is_offered_where_it_makes_sense(client):
    job = resolved(JOB + "  runtime: {name: kubernetes, connection: far}\n")
    offer = get(client, add(job))["single"]
    assert offer["why"] == ""
    [checked] = check_text(offer["document"], params={}, run_uid="x")
    assert checked.problems == []
    assert checked.resolved is not None
    assert (checked.resolved.runtime, checked.resolved.connection) == ("local", "")
    assert [(each.name, each.replicas) for each in checked.resolved.roles] == [("master", 1)]
    nobody = get(client, add(resolved(JOB.replace("pytorch", "custom")), source="cli", dag=""))
    assert nobody["single"]["document"] == ""
    assert "which of the roles master, worker can work alone" in nobody["single"]["why"]


def test_hostile_text_and_numbers_are_text(client):
    job = resolved(params={"name": "<img src=x onerror=alert(1)>", "worst": float("nan")})
    found = told(client, add(job))
    assert found["spec.dag.params.name"] == ("<img src=x onerror=alert(1)>", "parameters")
    assert found["spec.dag.params.worst"] == ("NaN", "parameters")


def test_what_the_script_was_set_to_says_who_has_told_it(client):
    run = add(resolved())
    said = {
        "argparse": {"lr": 0.1, "name": "a"},
        "torch.optim.AdamW": {"betas": [0.9, 0.99]},
        "no text: \udcff": {"name \udcff": "value \udcff"},
        "x": 3,
    }
    line = json.dumps({"on": "software", "parameters": said})
    lines = {InstanceKey("worker", 1): ['{"on": "software"}'], InstanceKey("worker", 2): [line]}
    open_store().environments.save(run.uid, lines)
    found = told(client, run)
    assert found["lr"] == ("0.1", "argparse")
    assert found["name"] == ("a", "argparse")
    assert found["name ?"] == ("value ?", "no text: ?")
    assert found["betas"] == ("[0.9, 0.99]", "torch.optim.AdamW")


def test_a_run_of_the_samples_is_no_error(client):
    assert "cannot be told" in get(client, a_run())["problem"]


def test_what_a_document_says_is_told_by_field():
    document = {
        "metadata": {"name": "digits"},
        "spec": {
            "command": ["python", "train.py"],
            "roles": [{"name": "worker", "env": {"A.b": "1"}}, {"name": "ps", "replicas": 2}],
            "dag": {},
        },
    }
    state = RunState(
        record=None,  # type: ignore[arg-type]  # nothing of it is used
        job=a_job(document=document),
        ledger=a_ledger(),
        lease=None,
        last_seq=0,
    )
    assert configuration(state).written == {
        "metadata.name": "digits",
        "spec.command": '["python", "train.py"]',
        "spec.roles[0].name": "worker",
        'spec.roles[0].env["A.b"]': "1",
        "spec.roles[1].name": "ps",
        "spec.roles[1].replicas": "2",
        "spec.dag": "{}",
    }


RANKER = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: ranker}
spec:
  roles: [{name: worker}]
  data: {uri: s3://lists/2026}
  trainer:
    network:
      document:
        apiVersion: airflow-training/v1
        kind: Network
        metadata: {name: line}
        spec:
          layers:
            - {name: documents, type: Input, params: {shape: [5, 3]}}
            - {name: relevance, type: Input, params: {shape: [5]}}
            - {name: score, type: Linear, inputs: [documents], params: {out_features: 1}}
            - {name: scores, type: Flatten}
            - {name: loss, type: ListwiseRankingLoss, inputs: [scores, relevance]}
    data: {format: libsvm, query: qid}
"""


def test_a_training_without_code_is_had_as_a_folder_for_one_machine(client):
    run = add(resolved(RANKER))
    assert get(client, run)["has_package"] is True
    path = f"/api/dags/digits/trainings/{run.uid}/package"
    answer = client.get(path, headers={"user": "op"})
    assert answer.headers["content-disposition"] == 'attachment; filename="ranker.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = set(archive.namelist())
        script = archive.read("ranker/train.py").decode()
    assert {"ranker/README.md", "ranker/net.py", "ranker/trainer/program.py"} <= names
    assert "s3://lists/2026" in script
    assert client.get(path, headers={"user": "op"}).content == answer.content


def test_a_script_of_ones_own_is_no_folder_for_one_machine(client):
    run = add(resolved())
    assert get(client, run)["has_package"] is False
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/package", headers={"user": "op"})
    assert answer.status_code == 422
    assert "trains no network" in answer.json()["detail"]
