"""Mistakes in cause files are told with the field and what to do."""

from __future__ import annotations

import pytest

from airflow_training.errors import InputError
from airflow_training.logs.diagnosis.catalogue import (
    Cause,
    builtin_causes,
    faults_of,
    load,
    read_cause,
)
from airflow_training.logs.diagnosis.patterns import fault_of

GOOD = """\
id: disk-full
meaning: No space
category: resource
retry: "no"
advice: Free space.
signatures:
  - name: enospc
    pattern: 'No space left on device'
    confidence: 0.9
    example: 'OSError: [Errno 28] No space left on device'
"""


@pytest.fixture
def write(tmp_path):
    def to(text, name="disk-full.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return to


def test_a_good_file_is_read(write):
    cause = read_cause(write(GOOD))
    assert (cause.id, cause.retry, cause.generic) == ("disk-full", "no", 0)
    assert cause.signatures[0].kind == "cause"
    assert faults_of(cause) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param("meaning:", "meanin:", "did you mean 'meaning'?", id="unknown-key"),
        pytest.param("resource", "resorce", "did you mean 'resource'?", id="category"),
        pytest.param('"no"', '"maybe"', "allowed: yes, once, no, unknown", id="retry"),
        pytest.param("0.9", "1.5", "confidence: must be less than 1", id="confidence"),
        pytest.param("id: disk-full", "id: disk", "called like its file: disk-full", id="name"),
        pytest.param("advice: Free space.\n", "", "advice: is required", id="missing"),
    ],
)
def test_what_does_not_fit_is_refused(write, old, new, told):
    with pytest.raises(InputError) as error:
        read_cause(write(GOOD.replace(old, new)))
    assert told in str(error.value)


def test_an_example_that_does_not_match_is_a_fault(write):
    (fault,) = faults_of(
        read_cause(write(GOOD.replace("No space left on device'\n    c", "No room left'\n    c")))
    )
    assert (fault.field, fault.message) == (
        "signatures[0].example",
        "does not match its own pattern",
    )


def test_frames_and_the_innermost_frame_are_not_asked_for_at_once(write):
    both = GOOD.replace(
        "confidence: 0.9", "confidence: 0.9\n    raisedIn: 'a'\n    raisedBy: 'b'", 1
    )
    (fault,) = faults_of(read_cause(write(both)))
    assert fault.field == "signatures[0].raisedBy"


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        pytest.param(r"\d+ \d+", "would be slow", id="no-literal"),
        pytest.param(r"(?:foo|barbaz)", "only 'foo'", id="short-alternative"),
        pytest.param(r"(?:four)?", "would be slow", id="optional"),
        pytest.param(r"^error here", "uses ^", id="start"),
        pytest.param(r"error(?=here)", "looks ahead", id="look-ahead"),
        pytest.param(r"(error)\1", "refers back", id="reference"),
        pytest.param(r"(error", "no regular expression", id="broken"),
        pytest.param("r\u00e9seau perdu", "", id="not-ascii"),
        pytest.param("r(?:\u00e9|\u00e8)seau perdu", "", id="not-ascii-alternatives"),
        pytest.param("r[e\u00e9]seau perdu", "beyond ASCII", id="not-ascii-class"),
        pytest.param("r\u00e9?seau perdu", "beyond ASCII", id="not-ascii-repeat"),
        pytest.param("error [^\u4e00-\u9fff]", "beyond ASCII", id="not-ascii-range"),
        pytest.param(r"\xe9\d\xe9", "only", id="bytes"),
        pytest.param(r"(?:a+)+ failed", "would be slow", id="nested-repeats"),
        pytest.param(r"error (?:here|there): \d{1,3}$", "", id="good"),
    ],
)
def test_slow_and_special_patterns_are_refused(pattern, told):
    fault = fault_of(pattern)
    assert told in fault
    assert bool(fault) is bool(told)


def test_causes_of_a_user_go_before_ours_and_are_checked(write, tmp_path):
    write(GOOD.replace("Free space.", "Ask Ann."))
    assert load(tmp_path).causes["disk-full"].advice == "Ask Ann."
    write(GOOD.replace("'No space left on device'", r"'\d+'"))
    with pytest.raises(InputError, match=r"signatures\[0\]\.pattern: would be slow"):
        load(tmp_path)


def test_a_cause_without_any_evidence_is_a_fault():
    cause = Cause(
        id="odd", meaning="odd", category="data", retry="no", advice="none", signatures=(), facts=()
    )
    assert [each.field for each in faults_of(cause)] == ["signatures"]


def test_causes_are_the_same_from_the_cache_and_damage_there_costs_time_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    builtin_causes.cache_clear()
    read = builtin_causes()
    (kept,) = (tmp_path / "airflow-training").glob("causes-*")
    for content in (kept.read_bytes(), b"[", b'[{"id": "Not A Name"}]'):
        kept.write_bytes(content)
        builtin_causes.cache_clear()
        assert builtin_causes() == read
    builtin_causes.cache_clear()
