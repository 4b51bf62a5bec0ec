"""What somebody sends to the API of new trainings who wants more than they may, or breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_training.state.store import open_store
from tests.web.conftest import FakeNewRuns
from tests.web.test_rerun_api import JOB

HEADERS = {"Idempotency-Key": "k", "user": "admin", "Content-Type": "application/json"}


def test_a_run_is_of_the_generic_dag_whatever_else_is_sent(client, new_runs: FakeNewRuns):
    body = {"document": JOB, "dag_id": "secret", "dag": "secret", "run_id": "x", "base_dir": "/"}
    begun = client.post("/api/runs", headers=HEADERS, json=body)
    assert begun.status_code == 202
    assert begun.json()["dag"] == "training_job"
    assert "x" not in new_runs.begun


def test_words_that_join_to_the_same_text_are_two_runs(client, new_runs: FakeNewRuns):
    for document, key in ((f"{JOB}#", "a b"), (f"{JOB}# a", "b")):
        headers = {**HEADERS, "Idempotency-Key": key}
        begun = client.post("/api/runs", headers=headers, json={"document": document})
        assert begun.status_code == 202, begun.text
    assert len(new_runs.begun) == 2


@pytest.mark.parametrize(
    "document",
    [
        "",
        "\0",
        "\ufeff",
        "&a [*a]",
        "a: &a [1,1]\n"
        + "".join(
            f"b{n}: &b{n} [*{'a' if n == 0 else f'b{n - 1}'},{'*a,' * 9}*a]\n" for n in range(40)
        ),
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
        "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
        "g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nspec: {env: *g, command: *g}\n",
        "[" * 100_000,
        "{a: " * 20_000,
        "- " * 100_000,
        "!!python/object/apply:os.system ['false']",
        f"{JOB}---\n{JOB}",
        "a: 1e999999999\nb: 0o9999999999999999\nc: 9999-99-99\n",
    ],
    ids=range(12),
)
def test_no_document_breaks_the_check(client, new_runs: FakeNewRuns, document: str):
    for path in ("/api/check", "/api/runs", "/api/plan"):
        answer = client.post(path, headers=HEADERS, json={"document": document})
        assert answer.status_code in (200, 422), (path, answer.text[:300])
        assert len(answer.content) < 100_000
    assert new_runs.begun == {}


def test_half_a_character_is_refused(client, new_runs: FakeNewRuns):
    for path in ("/api/check", "/api/runs", "/api/plan", "/api/presets"):
        body = '{"name": "mine", "document": "# \\ud800\\n' + json.dumps(JOB)[1:-1] + '"}'
        answer = client.post(path, headers=HEADERS, content=body)
        assert answer.status_code in (200, 422), (path, answer.text[:300])
    assert new_runs.begun == {}
    assert open_store().presets.newest() == []


@pytest.mark.parametrize("field", ["codefile", "extends", "env"])
def test_a_form_names_no_files_of_the_server(client, field: str):
    more = {
        "codefile": "  code: {path: /etc}\n",
        "extends": "  extends: /etc/passwd\n",
        "env": "  envFrom: /etc/passwd\n",
    }[field]
    told: Any = client.post("/api/check", headers=HEADERS, json={"document": JOB + more}).json()
    assert told["mistakes"], told
    assert "root:" not in json.dumps(told)


def test_nobody_saves_over_or_reads_what_is_not_theirs(client):
    open_store().presets.save("op", "mine", "# theirs", description="")
    body = {"name": "mine", "document": "# other", "user": "op", "by": "op", "version": 1}
    assert client.post("/api/presets", headers=HEADERS, json=body).json()["user"] == "admin"
    assert open_store().presets.document("op", "mine", 1) == "# theirs"
    assert [each.version for each in open_store().presets.newest("op")] == [1]
    for by in ("admin", "", "op' OR '1'='1", "%"):
        query = {"name": "mine", "version": 1, "by": by}
        asked = client.get("/api/presets/saved", params=query, headers={"user": "viewer"})
        assert asked.status_code == 404
