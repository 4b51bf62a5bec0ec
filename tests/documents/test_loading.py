"""Reading YAML 1.2 and JSON: what scalars mean, what is refused, and where things stand."""

from __future__ import annotations

import json

import pytest
import yaml

from airflow_training.documents.loading import MAX_BYTES, dump_yaml, load_documents, read_file
from airflow_training.documents.paths import format_path, split_path
from airflow_training.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("-0", 0),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0b11", "0b11"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("=", "="),
        ("@weekly", None),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text, value):
    (loaded,) = load_documents(f"key: {text}")
    if text == "@weekly":  # reserved: must be quoted
        assert [problem.code for problem in loaded.problems] == ["syntax"]
        return
    assert loaded.problems == []
    assert loaded.data == {"key": value}
    assert type(loaded.data["key"]) is type(value)


def test_keys_are_text():
    (loaded,) = load_documents("on: 1\ntrue: 2\n3: 4\nnull: 5\n")
    assert loaded.data == {"on": 1, "true": 2, "3": 4, "null": 5}


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        pytest.param("a: [1, 2", "syntax", 1, id="open-list"),
        pytest.param("a: 1\n b: 2", "syntax", 2, id="indentation"),
        pytest.param("a:\n\t- b", "syntax", 2, id="tab"),
        pytest.param("a: *nowhere", "syntax", 1, id="alias-of-nothing"),
        pytest.param("a: 1\nb: !!python/object/apply:os.system [x]\n", "syntax", 2, id="object"),
        pytest.param("a: 1\nb: !mine x\n", "syntax", 2, id="own-tag"),
        pytest.param("a: 1\nb: 2\na: 3\n", "duplicate", 3, id="twice"),
        pytest.param("x: {a: 1, b: {c: 1,\n c: 2}}\n", "duplicate", 2, id="twice-deep"),
        pytest.param("? [a]\n: 1\n", "syntax", 1, id="list-as-key"),
        pytest.param('{"a": 1,\n "b": 2,\n "a": 3}', "duplicate", 3, id="twice-in-json"),
        pytest.param('{"a": 1,\n "b" 2}', "syntax", 2, id="json"),
        pytest.param("a: &a\n  b: *a\n", "syntax", 2, id="endless"),
        pytest.param("<<: 1\n", "syntax", 1, id="merge-of-no-mapping"),
    ],
)
def test_a_broken_text_says_where(text, code, line):
    loaded = load_documents(text)[0]
    assert [problem.code for problem in loaded.problems] == [code]
    if text.startswith("a: &a"):
        return  # an endless document has no better place than its own
    assert loaded.problems[0].line == line


@pytest.mark.parametrize(
    ("text", "told", "line"),
    [
        pytest.param("a:\n\tb: 1\n", "blanks", 2, id="tab"),
        pytest.param("a:\n  b: 1\n\tc: 2\n", "blanks", 3, id="tab-after-text"),
        pytest.param("a: [1, 2\nb: 3\n", "the ] to the [ of line 1", 2, id="open-list"),
        pytest.param("a: [", "is not closed", 1, id="only-opened"),
        pytest.param("a:\n - {x: 1\nb: 3\n", "the } to the { of line 2", 3, id="open-mapping"),
        pytest.param("a: 1\nb: 'x\nc: 3\n", "begins has no ' at its end", 2, id="open-quote"),
        pytest.param('a: "x\nc: 3\n', 'begins has no " at its end', 1, id="open-double-quote"),
        pytest.param("a: 1\nb:2\nc: 3\n", "write b: ...", 2, id="no-blank"),
        pytest.param("a:1\nb: 2\n", "write a: ...", 1, id="no-blank-at-first"),
        pytest.param("- c: 2\n  d:3\n", "write d: ...", 2, id="no-blank-in-a-list"),
        pytest.param("a: @x\n", "'@...'", 1, id="at"),
        pytest.param("a: 1\nb: %x\n", "'%...'", 2, id="percent"),
        pytest.param("- `x`\n", "'`...'", 1, id="backtick"),
        pytest.param("a: *x\n", "'*...'", 1, id="star"),
        pytest.param("a: {{ x }}\n", "'{{ ... }}'", 1, id="template"),
        pytest.param("a: {{ x }}/b\n", "'{{ ... }}'", 1, id="template-and-text"),
        pytest.param("a: x: y\n", "a: '...'", 1, id="second-colon"),
        pytest.param('a: "x" y\n', "quotes go round the whole value", 1, id="after-the-quote"),
        pytest.param("a: 'it's'\n", "written twice", 1, id="quote-within"),
        pytest.param('a: "\\d"\n', "use single quotes", 1, id="escape"),
        pytest.param("a: 1\n b: 2\n", "begin in one column", 2, id="indented"),
        pytest.param("a:\n  - 1\n b: 2\n", "begin in one column", 3, id="another-column"),
        pytest.param("a: [1]]\n", "nothing has opened this ]", 1, id="never-opened"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_write(text, told, line):
    (problem,) = load_documents(text)[0].problems
    assert told in str(problem)
    assert problem.line == line


def test_what_stands_in_a_value_that_cannot_be_read_is_not_repeated():
    for text in ("password: @hunter2\n", "password:hunter2\na: 1\n", "password: a: hunter2\n"):
        (problem,) = load_documents(text)[0].problems
        assert "hunter2" not in str(problem)


def test_a_duplicate_names_its_field():
    (loaded,) = load_documents("spec:\n  roles:\n    - name: a\n      name: b\n")
    assert loaded.problems[0].field == "spec.roles[0].name"


def test_several_documents_and_empty_ones():
    loaded = load_documents("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n")
    assert [one.data for one in loaded] == [{"a": 1}, {"b": 2}]
    assert loaded[1].lines.of("b") == 7
    assert load_documents("") == ()
    assert load_documents("# only a comment\n") == ()


def test_documents_before_a_broken_one_are_kept():
    loaded = load_documents("a: 1\n---\nb: [\n")
    assert loaded[0].data == {"a": 1}
    assert [problem.code for problem in loaded[1].problems] == ["syntax"]


def test_anchors_and_merge_keys_work():
    (loaded,) = load_documents("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a\n")
    assert loaded.data == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}


def test_every_field_has_its_line():
    text = """\
# a comment
spec:
  roles:
    - name: a
    - name: b
      dependsOn:
        - {role: a,
           status: Running}
  resources: {limits: {nvidia.com/gpu: 1}}
"""
    (loaded,) = load_documents(text)
    lines = loaded.lines
    assert lines.of("spec.roles[1].dependsOn[0].role") == 7
    assert lines.of("spec.roles[1].dependsOn[0].status") == 8
    assert lines.of('spec.resources.limits["nvidia.com/gpu"]') == 9
    assert lines.of("spec.roles[1]") == 5
    assert lines.of("spec.roles[1].missing.deeper") == 5
    assert lines.of("nothing") == 2
    assert lines.of("") == 2


def test_json_has_lines_and_may_hold_tabs():
    text = '{\n\t"spec": {\n\t\t"suspend": true\n\t}\n}\n'
    for path in ("job.json", "job.yaml"):
        (loaded,) = load_documents(text, path)
        assert loaded.data == {"spec": {"suspend": True}}
        assert loaded.lines.of("spec.suspend") == 3


def test_a_json_file_must_be_json():
    (loaded,) = load_documents("a: 1", "job.json")
    assert loaded.problems[0].code == "syntax"
    (loaded,) = load_documents('{"a": NaN}', "job.json")
    assert loaded.problems[0].code == "syntax"
    # in a YAML file the same text is a flow mapping
    (loaded,) = load_documents("{a: 1}", "job.yaml")
    assert loaded.data == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="brackets"),
        pytest.param("- " * 100_000, id="dashes"),
        pytest.param("{a: " * 50_000, id="braces"),
        pytest.param("".join(" " * i + "a:\n" for i in range(300)), id="indentation"),
        pytest.param("[" * 300 + "]" * 300, id="json"),
        pytest.param(
            "a0: &a0 [x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)),
            id="aliases",
        ),
        pytest.param("a: " + "x" * (MAX_BYTES + 1), id="length"),
        pytest.param("a: [" + "x," * (MAX_BYTES // 2 - 10) + "x]", id="values"),
        pytest.param("a:\n" + "- x\n" * (MAX_BYTES // 4 - 10), id="lines"),
        pytest.param("".join(f"k{i}: 1\n" for i in range(MAX_BYTES // 11)), id="keys"),
        pytest.param("---\na: 1\n" * (MAX_BYTES // 9), id="documents"),
        pytest.param('{"a": [' + "1," * (MAX_BYTES // 2 - 10) + "1]}", id="values-in-json"),
    ],
)
def test_a_hostile_text_is_refused_not_expanded(text):
    loaded = load_documents(text)[0]
    assert [problem.code for problem in loaded.problems] == ["syntax"]
    assert loaded.lines.of("a.b.c") is None or isinstance(loaded.lines.of("a.b.c"), int)


@pytest.mark.parametrize(
    "value",
    ["yes", "on", "012", "0o17", "1e3", "2026-01-01", "~", "", "a\nb\n", "a: b", "# c", "true",
     1, 1.5, 1e16, 1e-7, True, None, "0x1F", "1_000", " a ", "a\tb", "é", "\u2028", "=", "<<"],
)  # fmt: skip
def test_what_is_written_is_read_back(value):
    text = dump_yaml({"key": value, "list": [value]})
    expected = {"key": value, "list": [value]}
    assert load_documents(text)[0].data == expected
    # and by those who still read YAML 1.1
    assert yaml.safe_load(text) == expected
    assert type(load_documents(text)[0].data["key"]) is type(value)


def test_repeated_values_are_written_without_aliases():
    shared = {"a": [1]}
    text = dump_yaml({"x": shared, "y": shared})
    assert "&" not in text
    assert load_documents(json.dumps({"x": shared, "y": shared}))[0].data == (
        load_documents(text)[0].data
    )


def test_a_document_may_have_ten_mebibytes():
    text = "a: '" + "x" * (MAX_BYTES - 5) + "'"
    assert (MAX_BYTES, len(text)) == (10 << 20, MAX_BYTES)
    (loaded,) = load_documents(text)
    assert not loaded.problems
    assert len(loaded.data["a"]) == MAX_BYTES - 5


def test_reading_a_file_says_what_is_wrong(tmp_path):
    for name, content, message in (
        ("large", b"a" * (MAX_BYTES + 1), "larger"),
        ("binary", b"\xff\xfe\x00", "UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_file(tmp_path / name)
    with pytest.raises(InputError, match="directory"):
        read_file(tmp_path)
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_file(tmp_path / "bom") == "a: 1"


@pytest.mark.parametrize(
    ("path", "loc"),
    [
        ("spec", ("spec",)),
        ("spec.roles[1].dependsOn[0].role", ("spec", "roles", 1, "dependsOn", 0, "role")),
        (
            'spec.resources.limits["nvidia.com/gpu"]',
            ("spec", "resources", "limits", "nvidia.com/gpu"),
        ),
        ('metadata.labels["a\\"b\\\\c"]', ("metadata", "labels", 'a"b\\c')),
        ('["a b"].c', ("a b", "c")),
        ("spec.plan.$x", ("spec", "plan", "$x")),
    ],
)
def test_a_path_and_its_parts(path, loc):
    assert split_path(path) == loc
    assert format_path(loc) == path


@pytest.mark.parametrize("path", ["", ".", "a..b", "a.", ".a", "a[", "a[x", "a.[0]", "a[-1]"])
def test_what_is_no_path(path):
    assert split_path(path) is None


def test_lines_are_those_of_the_file_in_every_document():
    text = "é: 1\n--- {a: 2}\n---\n# note\n\nb:\n  - x: |\n      y\n    z: 3\n"
    first, second, third = load_documents(text)
    assert first.lines.of("é") == 1
    assert second.lines.of("a") == 2
    assert third.lines.of("b[0].z") == 9
    assert third.lines.of("b[0].missing") == 7
