"""Whatever stands at whatever place of a document: a job that explains, or its mistakes, and soon."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from airflow_training.admission.check import check_text
from airflow_training.admission.explain import explain
from airflow_training.documents.loading import load_documents
from airflow_training.documents.paths import Loc
from tests.documents.documents import FULL_TEXT, MINIMAL
from tests.work import Calls

NOW = datetime(2026, 3, 6, 12, tzinfo=timezone.utc)
FULL: dict[str, Any] = load_documents(FULL_TEXT)[0].data
EVERY_KEY = FULL | {
    "spec": FULL["spec"]
    | {
        "framework": "pytorch",
        "roles": [
            {
                "name": "master",
                "template": {
                    "metadata": {"annotations": {"a": "b"}},
                    "spec": {
                        "containers": [
                            {
                                "name": "pytorch",
                                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}],
                                "resources": {"limits": {"cpu": 1}, "requests": {"memory": "1Gi"}},
                            }
                        ],
                        "volumes": [{"name": "x", "emptyDir": {}}],
                        "terminationGracePeriodSeconds": 5,
                    },
                },
            },
            FULL["spec"]["roles"][1],
        ],
        "logs": {"patterns": [{"name": "a", "pattern": "loss=(?P<loss>[0-9.]+)"}]},
        "restart": {"maxRestarts": 3},
        "checkpoint": FULL["spec"]["checkpoint"] | {"resume": "latest"},
    }
}  # fmt: skip
WITH_A_PLAN = MINIMAL | {
    "spec": MINIMAL["spec"]
    | {
        "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1}},
        "plan": FULL["spec"]["plan"],
    }
}
KEYS = ("", "a" * 500, "\x1b[31m", "a.b[0]", "1", "name", "$patch", "{{ x", "é")
DOCUMENTS = (FULL, EVERY_KEY, WITH_A_PLAN)
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 10**30, 1.5, float("inf"), float("nan"), "", "x", "a" * 500, "é" * 70,
    "\x1b[31m", "{{ x", "{{ params.lr }}", "1Gi", "1e99", "50%", "/", "s3://", [], [None], [1], ["x"],
    [[]], [{}], [{"name": {"a": "b"}}], [{"name": "A", "value": {}}], [{"containerPort": []}], {},
    {"a": "b"}, {"name": "x"}, {"name": {"a": "b"}}, {"": 1}, {"a": {"b": []}}, {"name": []},
    {"limits": "x"}, {"limits": {"cpu": "zz"}}, {"requests": {"nvidia.com/gpu": float("inf")}},
)  # fmt: skip


def places(value: Any, loc: Loc = ()) -> list[Loc]:
    found = [loc]
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in inside:
        found += places(inner, (*loc, key))
    return found


def put(document: Any, loc: Loc, value: Any) -> Any:
    """Return a copy with one value put where it does not belong; as it was, where there is no such place."""
    if not loc:
        return value
    changed = copy.deepcopy(document)
    here: Any = changed
    with contextlib.suppress(KeyError, IndexError, TypeError):
        for part in loc[:-1]:
            here = here[part]
        here[loc[-1]] = value
    return changed


def answer(document: Any, *, runtime: str, run_uid: str) -> None:
    text = json.dumps(document).replace("NaN", ".nan").replace("Infinity", ".inf")
    for checked in check_text(text, base_dir="/nowhere", runtime=runtime, run_uid=run_uid):
        assert bool(checked.problems) == (checked.resolved is None)
        for problem in checked.problems:
            assert problem.code
            assert str(problem)
        if checked.resolved is not None:
            json.dumps(explain(checked, now=NOW, run_uid=run_uid))


def check_random(count: int, draw: random.Random) -> None:
    where = [places(document) for document in DOCUMENTS]
    for _ in range(count):
        at = draw.randrange(len(DOCUMENTS))
        document: Any = DOCUMENTS[at]
        changes = [
            (draw.choice(where[at]), draw.choice(VALUES)) for _ in range(draw.choice((1, 1, 2, 3)))
        ]
        for loc, value in changes:
            document = put(document, loc, value)
        if draw.random() < 0.2:
            document = put(document, (*changes[0][0][:-1], draw.choice(KEYS)), draw.choice(VALUES))
        runtime, run_uid = draw.choice(("local", "kubernetes")), draw.choice(("", "abcdefghij"))
        try:
            answer(document, runtime=runtime, run_uid=run_uid)
        except Exception as error:
            raise AssertionError(f"{runtime} {run_uid!r} document {at}: {changes}") from error


@pytest.fixture(autouse=True)
def _home(airflow_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"env": [{"name": {"a": "b"}}]}, id="a name that is a mapping"),
        pytest.param({"env": [{"name": ["a"]}]}, id="a name that is a list"),
        pytest.param({"resources": {"limits": "x"}}, id="limits that are text"),
        pytest.param({"resources": {"limits": {"cpu": "zz"}}}, id="no quantity"),
        pytest.param({"resources": {"requests": {"nvidia.com/gpu": float("inf")}}}, id="infinite"),
        pytest.param(
            {"resources": {"limits": {"cpu": "zz"}}, "typo": 1}, id="beside another mistake"
        ),
        pytest.param(
            {"env": [{"name": {"a": "b"}}], "typo": 1}, id="a name beside another mistake"
        ),
    ],
)
@pytest.mark.parametrize("runtime", ["local", "kubernetes"])
def test_malformed_pods_are_mistakes_also_of_a_job_with_a_plan(change, runtime):
    document = {**WITH_A_PLAN, "spec": {**WITH_A_PLAN["spec"], **change}}
    answer(document, runtime=runtime, run_uid="abcdefghij")
    text = json.dumps(document).replace("Infinity", ".inf")
    (checked,) = check_text(text, runtime=runtime)
    assert checked.problems


def test_a_framework_of_several_hundred_characters_is_unknown(airflow_home):
    (airflow_home / "frameworks").mkdir()
    document = {**MINIMAL, "spec": {**MINIMAL["spec"], "framework": "a" * 500}}
    (checked,) = check_text(json.dumps(document))
    assert [problem.code for problem in checked.problems] == ["unknown_framework"]


def test_what_stands_beside_a_malformed_pod_is_reported_with_it():
    spec = {
        **FULL["spec"],
        "framework": "pytorch",
        "env": [{"name": {"a": "b"}}, {"name": "RANK", "value": "1"}],
    }
    (checked,) = check_text(json.dumps({**FULL, "spec": spec}), runtime="kubernetes")
    found = [(problem.code, problem.field) for problem in checked.problems]
    assert ("bad_pod_template", "spec.env[0].name") in found
    assert ("reserved_env", "spec.env[1].name") in found


def large(**spec: Any) -> str:
    document = {**MINIMAL, "spec": {**MINIMAL["spec"], "roles": [{"name": "worker"}], **spec}}
    return json.dumps(document)


MOUNTAINS: dict[str, tuple[int, Callable[[int], str]]] = {
    "unknown keys": (30_000, lambda n: large(**{f"k{i:05d}": 0 for i in range(n)})),
    "unknown keys of pods": (
        30_000,
        lambda n: large(volumes=[{f"k{i:05d}": 0 for i in range(n)}]),
    ),
    "unknown parameters": (
        10_000,
        lambda n: large(parameters={f"k{i:05d}": 0 for i in range(n)}),
    ),
    "dependencies on nobody": (
        5_000,
        lambda n: large(roles=[{"name": "a", "dependsOn": [{"role": f"x{i}"} for i in range(n)]}]),
    ),
    "malformed variables": (10_000, lambda n: large(env=[{"name": {"a": i}} for i in range(n)])),
    "variables": (10_000, lambda n: large(env=[{"name": f"E{i}", "value": "x"} for i in range(n)])),
    "roles": (20_000, lambda n: large(roles=[{"name": f"w{i}"} for i in range(n)])),
    "copies": (
        1_000,
        lambda n: large(roles=[{"name": f"w{i}"} for i in range(n // 2)], args=["x"] * n),
    ),
    "expressions": (10_000, lambda n: large(args=["{{ x" + str(i) + " }}" for i in range(n)])),
    "documents": (20_000, lambda n: "".join(f"---\na: {i}\n" for i in range(n))),
}
"""What there is too much of: how much, and a document with so much of it."""


def work_for(text: str) -> int:
    """Return how many calls it takes to check and explain a document."""
    with Calls() as calls:
        for checked in check_text(text, runtime="kubernetes"):
            assert len(checked.problems) <= 101
            if checked.resolved is not None:
                explain(checked, now=NOW)
    return calls.count


@pytest.mark.parametrize("kind", MOUNTAINS)
def test_a_document_that_is_a_mountain_is_answered_with_no_more_work_than_its_parts(kind):
    size, document = MOUNTAINS[kind]
    hill, mountain = document(size // 10), document(size)
    work_for(hill)  # imports what it needs
    assert work_for(mountain) < 15 * work_for(hill)


def test_the_first_hundred_mistakes_are_told_and_the_rest_counted():
    (checked,) = check_text(large(**{f"k{i:05d}": 0 for i in range(30_000)}))
    *told, rest = checked.problems
    assert [problem.value for problem in told] == [f"k{i:05d}" for i in range(100)]
    assert (rest.code, rest.value) == ("too_many", 29_900)
    assert "29900 more" in str(rest)


def test_a_job_has_no_more_instances_than_its_deployment_allows(monkeypatch):
    roles = [{"name": "a", "replicas": 60_000}, {"name": "b", "replicas": 40_001}]
    (checked,) = check_text(large(roles=roles))
    (problem,) = checked.problems
    assert (problem.code, problem.field) == ("out_of_range", "spec.roles[0].replicas")
    assert "100001 instances" in problem.message
    monkeypatch.setenv("AIRFLOW__TRAINING__MAX_REPLICAS", "100001")
    assert check_text(large(roles=roles))[0].problems == []


def test_the_first_hundred_instances_of_a_role_are_explained_and_the_rest_counted():
    roles = [{"name": "master"}, {"name": "worker", "replicas": 90_000}]
    few, many = (
        large(framework="tensorflow", roles=[{"name": "worker", "replicas": each}])
        for each in (9_000, 90_000)
    )
    assert work_for(many) < 2 * work_for(few)
    (checked,) = check_text(many)
    answer = explain(checked, now=NOW)
    assert 1 <= len(answer["instances"]) <= 100
    (left_out,) = [each for each in answer["warnings"] if each["code"] == "too_many"]
    assert len(answer["instances"]) + left_out["value"] == 90_000
    (checked,) = check_text(large(roles=roles))
    assert len(explain(checked, now=NOW)["instances"]) == 101


def test_any_value_at_any_place_gets_an_answer():
    check_random(150, random.Random(13))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_any_values_at_any_places_get_an_answer():
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    check_random(20_000, random.Random(seed))
