"""The JSON Schema accepts and refuses what the models do."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_training.documents.loading import load_documents
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.paths import Loc
from airflow_training.documents.podmodel.check import SHORTHAND_KINDS, check_layer
from airflow_training.documents.schema import json_schema
from tests.documents.documents import FULL_TEXT, MINIMAL, edited
from tests.documents.test_models import FIELDS, document_with
from tests.examples import examples

FULL = load_documents(FULL_TEXT)[0].data


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def models_accept(document: Any) -> bool:
    """Return whether the models take a document; what needs two fields is not asked."""
    try:
        TrainingJob.__pydantic_validator__.validate_python(document, by_alias=True, by_name=False)
    except ValidationError:
        return False
    if not {"apiVersion", "kind"} <= document.keys():
        return False
    spec = document["spec"]
    problems = []
    for owner in [spec, *spec["roles"]]:
        for key, kind in SHORTHAND_KINDS.items():
            problems += check_layer(owner.get(key), (key,), kind=kind)
        problems += check_layer(owner.get("template"), ("template",))
    resume = (spec.get("checkpoint") or {}).get("resume")
    if isinstance(resume, dict) and list(resume.values()).count(None) != len(resume) - 1:
        return False
    return not [problem for problem in problems if problem.code != "duplicate"]


@pytest.mark.parametrize("document", [MINIMAL, FULL], ids=["minimal", "full"])
def test_the_schema_accepts_what_the_models_accept(validator, document):
    assert models_accept(document)
    assert list(validator.iter_errors(document)) == []


# what a schema cannot say, or what two fields say together
NOT_IN_THE_SCHEMA = {
    ("spec.failurePolicy.rules.0.onMessagePattern", "("),
    ("spec.dag.schedule", "0 25 * * *"),
    ("spec.dag.schedule", "0 0 31 2 *"),
    ("spec.dag.timezone", "America/Chicag"),
    ("spec.dag.timezone", ""),
    ("spec.preflight.gpus.freeMemory", "0"),
    ("spec.preflight.disk.free", "0"),
    ("spec.preflight.disk.bandwidth", "0"),
    ("spec.preflight.network.bandwidth", "0"),
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(row[0], value, id=f"{row[0]}={value}"[:70])
        for row in FIELDS
        for value in [*row[1], *row[2], *row[3], *row[4]]
        if not isinstance(value, list | dict) and (row[0], value) not in NOT_IN_THE_SCHEMA
        if value != "2026-13-01"
    ],
)
def test_schema_and_models_agree_on_every_field(validator, path, value):
    document = document_with(path, value)
    errors = list(validator.iter_errors(document))
    assert (errors == []) == models_accept(document), errors[:1]


@pytest.mark.parametrize(
    "document",
    [
        {key: value for key, value in MINIMAL.items() if key != "kind"},
        {key: value for key, value in MINIMAL.items() if key != "apiVersion"},
        {**MINIMAL, "extra": 1},
        edited("spec.roles.0.template", {"spec": {"contaners": []}}),
        edited("spec.roles.0.template", {"spec": {"containers": [{"image": "a"}]}}),
        edited("spec.roles.0.template", {"spec": {"containers": [{"name": "a", "tty": "yes"}]}}),
        edited("spec.env", [{"name": "A", "value": 1}]),
        edited("spec.env", [{"value": "1"}]),
        edited("spec.resources", {"limits": {"cpu": "1x"}}),
        edited("spec.resources", {"limits": {"cpu": -1}}),
        edited("spec.checkpoint", {"uri": "a", "resume": {}}),
        edited("spec.checkpoint", {"uri": "a", "resume": {"asset": "a", "fromRun": "b"}}),
    ],
)
def test_both_refuse(validator, document):
    assert not models_accept(document)
    assert not validator.is_valid(document)


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"containers": [{"$patch": "replace"}, {"name": "a"}]}},
        {"metadata": {"labels": None}},
        {"spec": {"nodeSelector": {"$patch": "replace", "a": "b"}}},
        {"spec": {"tolerations": [{"key": "a"}]}},
    ],
)
def test_both_accept_directives(validator, template):
    document = edited("spec.roles.0.template", template)
    assert models_accept(document)
    assert validator.is_valid(document)


def places(value: Any, loc: Loc = ()) -> list[Loc]:
    found = [loc] if loc else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*loc, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            found += places(inner, (*loc, i))
    return found


ANYTHING: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, 1, -1, 2.5, "", "x", "All", "OnFailure", "@weekly", "50%", "1Gi", [], {},
     ["x"], [1], [{}], [None], {"x": 1}, {"name": "x"}, [{"name": "x"}]]
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """Return the full document with one to three values replaced, removed or added."""
    document = copy.deepcopy(FULL)
    for _ in range(draw(st.integers(1, 3))):
        loc = draw(st.sampled_from(places(document)))
        here = document
        for part in loc[:-1]:
            here = here[part]
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "replace":
            here[loc[-1]] = copy.deepcopy(draw(ANYTHING))
        elif action == "remove":
            del here[loc[-1]]
        elif isinstance(here, dict):
            here[draw(st.sampled_from(["nme", "extra", "name", "image", "$patch"]))] = (
                copy.deepcopy(draw(ANYTHING))
            )
        if not places(document):
            break
    return document


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(document=mutated())
def test_schema_and_models_agree_on_mutated_documents(validator, document):
    errors = list(validator.iter_errors(document))
    assert (errors == []) == models_accept(document), (errors[:1], document)


def test_editors_find_a_sentence_beside_a_field():
    definitions = json_schema()["$defs"]
    assert definitions["Role"]["properties"]["template"]["description"].startswith(
        "PodTemplateSpec"
    )
    assert (
        "relative to the job file" in definitions["Role"]["properties"]["workingDir"]["description"]
    )
