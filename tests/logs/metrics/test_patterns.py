"""Formats of users: what works, and why others are refused."""

from __future__ import annotations

import pytest

from airflow_training.errors import InputError
from airflow_training.logs.metrics.lines import parse_line
from airflow_training.logs.metrics.patterns import make_formats, read_patterns
from tests.logs.metrics.values import convert

GOOD = {
    "name": "trainer",
    "line": r"it {step}/{total_steps} <{loss}> \[{step_time_seconds:ms}\]",
    "example": "trainer: it 5/900 <2.31> [33]",
}


def test_a_format_of_a_user_reads_its_lines():
    [mine] = make_formats([{**GOOD, "line": "trainer: " + GOOD["line"]}])
    line = b"trainer: it 6/900 <2.25> [34]"
    parsed = parse_line(line, (mine,))
    found = {
        s.metric: convert(line[s.start : s.end], s.kind, s.scale) for s in parsed.slots if s.metric
    }
    assert found == {"step": 6, "total_steps": 900, "loss": 2.25, "step_time_seconds": 0.034}


def test_a_format_of_a_user_goes_before_ours():
    [mine] = make_formats(
        [{"name": "own", "line": "completed step: {my_step}", "example": "completed step: 7"}]
    )
    assert [
        s.metric for s in parse_line(b"completed step: 7, loss: 1.5", (mine,)).slots if s.metric
    ] == ["my_step"]


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"line": r"{step}/{total_steps}"}, "patterns[0].line", "would be slow"),
        ({"line": r"trainer: (it+)+ {step}"}, "patterns[0].line", "repeat without end inside"),
        ({"line": r"trainer: (?=it) {step}"}, "patterns[0].line", "looks ahead"),
        ({"line": r"trainer: (it) \1 {step}"}, "patterns[0].line", "refers back"),
        ({"line": r"trainer: (it {step}"}, "patterns[0].line", "no pattern"),
        ({"line": r"trainer: it {loss:parsecs}"}, "patterns[0].line", "unit that is not known"),
        ({"line": r"trainer$ it {step}"}, "patterns[0].line", "never matches"),
        ({"line": r"trainer: at {step}"}, "patterns[0].line", "never matches"),
        ({"anchor": "it"}, "patterns[0].anchor", "would be slow"),
        (
            {"line": r"{step}/{total_steps}", "anchor": "nowhere"},
            "patterns[0].anchor",
            "never matches",
        ),
        ({"pairs": "some"}, "patterns[0].pairs", "no way to read"),
        ({"units": {"loss": "parsecs"}}, "patterns[0].units", "not known"),
        ({"example": ""}, "patterns[0].example", "must be a text"),
        ({"exmaple": "x"}, "patterns[0].exmaple", "no key"),
        ({"example": GOOD["example"] + " x=1" * 3000}, "patterns[0].example", "at most 8192"),
    ],
)
def test_a_slow_or_useless_pattern_is_refused_with_the_reason(change, field, reason):
    entry = {**GOOD, "line": "trainer: " + GOOD["line"], **change}
    with pytest.raises(InputError) as caught:
        make_formats([entry])
    problem = next(each for each in caught.value.problems if each.field == field)
    assert reason in problem.message


def test_all_mistakes_are_told_at_once():
    with pytest.raises(InputError) as caught:
        make_formats([{"name": "a"}, {"name": "b", "line": "{x}", "example": "1", "pairs": "no"}])
    assert {each.field for each in caught.value.problems} >= {
        "patterns[0].line",
        "patterns[0].example",
        "patterns[1].line",
        "patterns[1].pairs",
    }


def test_a_file_that_is_none_is_one_clear_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_patterns(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(InputError, match="is no YAML"):
        read_patterns(tmp_path / "bad.yaml")
    (tmp_path / "map.yaml").write_text("a: 1")
    with pytest.raises(InputError, match="must be a list"):
        read_patterns(tmp_path / "map.yaml")
