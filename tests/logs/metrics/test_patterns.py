"""Formats of users: what works, and why others are refused."""

from __future__ import annotations

import re

import pytest

from airflow_training.errors import InputError
from airflow_training.logs.engine.syntax import faults, parse
from airflow_training.logs.metrics import packaged
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
        (
            {"line": r"trainer: .*it.* {step}.*<{loss}>"},
            "patterns[0].line",
            "more than 2 repeats without end",
        ),
        (
            {"line": r"trainer: {text}it {text}<{loss}> {text}\["},
            "patterns[0].line",
            "more than 2 repeats without end",
        ),
        ({"unless": "a.*b.*c.*d"}, "patterns[0].unless", "more than 2 repeats without end"),
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


@pytest.mark.parametrize(
    ("pattern", "fast"),
    [
        pytest.param(".*a.*b", True, id="two"),
        pytest.param(".*a.*b.*c", False, id="three"),
        pytest.param("(.*) a (.*?) b .+", False, id="groups-and-lazy"),
        pytest.param("(?:.*a){3}", False, id="one-three-times"),
        pytest.param("(?:.*a)?.*b.*c", False, id="optional"),
        pytest.param("(?:a.*|b.*c)d.*e.*", False, id="alternatives"),
        pytest.param("(?:a|b.*c.*)d.*", False, id="the-slower-alternative"),
        pytest.param("[^,]*(?:, )?[^,]*,?[^,]*", False, id="commas-that-may-be-missing"),
        pytest.param("(?:a.*|b.*|c.*)d", True, id="only-one-of-the-alternatives"),
        pytest.param("[^xu]*[^y]*[^zw]*", False, id="sets-that-overlap"),
        pytest.param("[^,]*,[^,]*,[^,]*,[^,]*", True, id="sets-that-end-at-what-follows"),
        pytest.param("[^,]*[,;]+[^,;]*,[^,]*,.*", True, id="sets-that-end-at-a-set"),
        pytest.param(r"\S+ \S+ \S+ \S+", True, id="words"),
        pytest.param(r"[^ ]*a[^ ]*b[^ ]*c", True, id="within-a-word"),
        pytest.param(r"a\s*-?\s*-?\s*b", True, id="spaces"),
        pytest.param(".{0,20}a.{0,20}b.{0,20}c", True, id="with-an-end"),
        pytest.param(r"[\w ]*=[\d ]*[a-z][\S ]*", True, id="classes"),
        pytest.param(r"[\w ]*\S[\d ]*\s[\S ]*", False, id="classes-that-overlap"),
    ],
)
def test_how_many_repeats_may_share_a_stretch_of_a_line(pattern, fast):
    assert bool([*faults(parse(pattern.encode()))]) is not fast


def test_no_format_of_ours_has_too_many_repeats():
    """Of other rules some are free, as the test of their examples watches over them."""
    for path in sorted((packaged.FOLDER / "formats").glob("*.yaml")):
        for entry in packaged.read(path):
            for key in ("line", "anchor", "unless"):
                pattern = re.sub(
                    r"\{\w+(?::[^{}]+)?\}", "0", entry.get(key, "").replace("{text}", ".*?")
                )
                told = [fault.reason for fault in faults(parse(pattern.encode()))]
                assert not any("more than 2 repeats" in each for each in told), (
                    path,
                    entry["name"],
                )


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
