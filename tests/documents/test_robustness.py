"""Whatever is written, the answer is a job or its mistakes: never a traceback."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training import TrainingJob
from airflow_training.documents.loading import dump_yaml
from airflow_training.documents.parsing import parse
from tests.documents.documents import FULL_TEXT
from tests.documents.test_schema import mutated
from tests.examples import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(document=mutated())
def test_a_mutated_document_is_a_job_or_has_mistakes(document):
    (answer,) = parse(dump_yaml(document), "job.yaml", params=[])
    assert (answer.job is None) <= bool(answer.problems)
    for problem in answer.problems:
        assert problem.code
        assert problem.message
        assert str(problem)
    if not answer.problems:
        assert answer.job is not None
        assert answer.job.to_dict() == answer.raw


@settings(max_examples=examples(200), deadline=None)
@given(text=st.text(alphabet=string.printable + "é\0", max_size=80))
def test_any_text_gets_an_answer(text):
    for answer in parse(text):
        assert answer.problems


@settings(max_examples=examples(100), deadline=None)
@given(start=st.integers(0, len(FULL_TEXT)), length=st.integers(1, 40))
def test_a_torn_file_gets_an_answer(start, length):
    for answer in parse(FULL_TEXT[:start] + FULL_TEXT[start + length :], params=["lr"]):
        assert answer.job is not None or answer.problems


@settings(max_examples=examples(100), deadline=None)
@given(value=JSON)
def test_any_value_gets_an_answer_and_survives_writing(value):
    for answer in parse(dump_yaml(value)):
        assert answer.problems
    job = TrainingJob(
        metadata={"name": "a"},
        spec={"framework": "custom", "roles": [{"name": "a"}], "parameters": {"x": value}},
    )
    assert TrainingJob.from_text(job.to_yaml()) == job


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)
SECONDS = st.integers(1, 9999) | st.floats(0.5, 1e6)


@st.composite
def jobs(draw: st.DrawFn) -> TrainingJob:
    """Return valid jobs built in Python, with any part left out."""

    def some(**parts: st.SearchStrategy[Any]) -> dict[str, Any]:
        return {key: draw(part) for key, part in parts.items() if draw(st.booleans())}

    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    roles = []
    for i, name in enumerate(names):
        role = some(
            replicas=st.integers(1, 5),
            restart_policy=st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"]),
            backoff_limit=st.integers(0, 9),
            min_succeeded=st.sampled_from(["All", "Any", 1, "50%"]),
            tracked=st.just(True),
            env=st.lists(
                st.fixed_dictionaries({"name": NAMES, "value": st.text(max_size=9)}),
                max_size=3,
                unique_by=lambda item: item["name"],
            ),
            image=NAMES,
        )
        if i and draw(st.booleans()):
            role["depends_on"] = [
                {"role": names[draw(st.integers(0, i - 1))], **some(timeout_seconds=SECONDS)}
            ]
        roles.append({"name": name, **role})
    restart = some(maxRestarts=st.integers(0, 9), exit_codes=st.sampled_from(["default", "kubedl"]))
    policy = some(priority=st.integers(-9, 9), schedule_timeout_seconds=SECONDS)
    optional = some(
        restart=st.just(restart),
        scheduling_policy=st.just(policy),
        active_deadline_seconds=SECONDS,
        suspend=st.booleans(),
        parameters=st.dictionaries(st.text(max_size=5), JSON, max_size=2),
        output=st.just({"uri": "s3://a", "role": names[0]}),
    )
    return TrainingJob(
        metadata={"name": names[0]}, spec={"framework": "custom", "roles": roles, **optional}
    )


@settings(max_examples=examples(200), deadline=None)
@given(job=jobs())
def test_a_round_trip_is_exact(job):
    text = job.to_yaml()
    again = TrainingJob.from_text(text) if "{{" not in text and "{%" not in text else job
    assert again == job
    assert again.to_dict() == job.to_dict()
    assert again.to_yaml() == text
    assert again.spec.model_fields_set == job.spec.model_fields_set
