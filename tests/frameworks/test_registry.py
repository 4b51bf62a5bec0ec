"""Where frameworks come from, which one wins, and every mistake in one of your own."""

from __future__ import annotations

import importlib
import sys
import textwrap

import pytest

from airflow_training.errors import InputError
from airflow_training.frameworks import registry
from airflow_training.frameworks.dependencies import role_dependencies
from airflow_training.frameworks.registry import (
    builtin_names,
    check_file,
    find,
    list_frameworks,
    load_reference,
    parse_framework,
)
from tests.frameworks.samples import a_job, codes, resolve_job

MINE = """
apiVersion: airflow-training/v1
kind: Framework
metadata: {name: mine}
spec:
  description: of my own
  container: main
  ports: [{name: rpc, containerPort: 7000}]
  roles: [{name: server, ranked: false}, {name: worker, required: true}]
  env: [{name: SERVERS, value: "{{ addresses('server') | join(',') }}"}]
  parameters: {depth: {type: integer, default: 3}}
"""


def write(folder, text=MINE, name="mine.yaml"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture
def folder(airflow_home):
    return airflow_home / "frameworks"


@pytest.mark.parametrize("name", sorted(builtin_names()))
def test_built_in_frameworks_have_no_mistakes(name):
    loaded = find(name)
    assert check_file(loaded.location) == ()
    assert loaded.framework.name == name
    assert "threadsPerInstance" in loaded.framework.spec.parameters


def test_nine_frameworks_are_built_in():
    assert builtin_names() == {
        "custom", "jax", "lightgbm", "mpi", "paddle", "pytorch", "ray", "tensorflow", "xgboost",
    }  # fmt: skip


def test_a_file_in_the_folder_is_a_framework(folder):
    write(folder)
    loaded = find("mine")
    assert (loaded.origin, loaded.framework.spec.description) == ("folder", "of my own")
    listed = {each.name: each.origin for each in list_frameworks()}
    assert listed["mine"] == "folder"
    assert listed["pytorch"] == "built in"


def test_the_folder_goes_before_what_is_built_in(folder):
    write(folder, MINE.replace("mine", "pytorch"), "pytorch.yaml")
    assert find("pytorch").origin == "folder"


def test_an_edited_file_is_read_again(folder):
    path = write(folder)
    assert find("mine").framework.spec.description == "of my own"
    path.write_text(MINE.replace("of my own", "changed since"))
    assert find("mine").framework.spec.description == "changed since"


def test_a_broken_file_is_listed_with_its_mistakes_and_harms_no_other(folder):
    write(folder, MINE.replace("container:", "contaner:"))
    listed = {each.name: each for each in list_frameworks()}
    assert codes(listed["mine"].problems) == [
        ("unknown_key", "spec.contaner"),
    ]
    assert listed["pytorch"].problems == ()
    with pytest.raises(InputError):
        find("mine")


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(InputError) as caught:
        find("pytorhc")
    (problem,) = caught.value.problems
    assert (problem.code, problem.field) == ("unknown_framework", "spec.framework")
    assert problem.hint == "did you mean 'pytorch'?"
    assert "mpi" in problem.allowed


def test_another_package_brings_a_framework_with_a_hook(tmp_path, monkeypatch):
    package = tmp_path / "acme_training"
    write(package, MINE + "  hook: acme_training.hooks:double\n")
    (package / "__init__.py").write_text("")
    (package / "hooks.py").write_text(
        textwrap.dedent(
            """
            import dataclasses

            def double(job):
                return dataclasses.replace(job, parameters={**job.parameters, "depth": 6})
            """
        )
    )
    information = tmp_path / "acme_training-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-training\nVersion: 1\n"
    )
    (information / "entry_points.txt").write_text(
        f"[{registry.ENTRY_POINT_GROUP}]\nmine = acme_training\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    registry._entry_points.cache_clear()
    try:
        assert find("mine").origin == "package"
        made, _ = resolve_job(a_job("mine", {"worker": 1}))
        assert made.parameters["depth"] == 6
    finally:
        registry._entry_points.cache_clear()
        sys.modules.pop("acme_training", None)


def test_a_hook_from_the_folder_is_refused(folder):
    write(folder, MINE + "  hook: os:abort\n")
    with pytest.raises(InputError) as caught:
        find("mine")
    assert codes(caught.value.problems) == [("not_allowed", "spec.hook")]


# --- a file beside the job ----------------------------------------------------------------------


def reference(tmp_path, **more):
    return load_reference(
        **{"name": "mine", "ref": "./mine.yaml", "digest": None, "base_dir": str(tmp_path)}
        | {"fetch": False}
        | more
    )


def test_a_file_relative_to_the_job(tmp_path):
    write(tmp_path)
    loaded = reference(tmp_path)
    assert (loaded.framework.name, loaded.origin) == ("mine", "address")
    assert loaded.digest.startswith("sha256:")
    assert reference(tmp_path, digest=loaded.digest).framework == loaded.framework


@pytest.mark.parametrize(
    ("change", "more", "expected"),
    [
        pytest.param("", {"ref": "./none.yaml"}, ("bad_reference", "spec.framework.ref"), id="absent"),
        pytest.param("", {"base_dir": ""}, ("bad_reference", "spec.framework.ref"), id="from-a-form"),
        pytest.param("", {"name": "other"}, ("bad_reference", "spec.framework.name"), id="another-name"),
        pytest.param(
            "", {"digest": "sha256:" + "0" * 64}, ("digest_mismatch", "spec.framework.digest"),
            id="another-digest",
        ),
        pytest.param(
            "  hook: os:abort\n", {}, ("bad_reference", "spec.framework.ref"), id="with-a-hook"
        ),
        pytest.param("  nothing: 1\n", {}, ("bad_reference", "spec.framework.ref"), id="broken"),
    ],
)  # fmt: skip
def test_a_bad_reference(tmp_path, change, more, expected):
    write(tmp_path, MINE + change)
    with pytest.raises(InputError) as caught:
        reference(tmp_path, **more)
    assert codes(caught.value.problems) == [expected]


# --- frameworks check ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("kind: Framework", "kind: Job", ("not_allowed", "kind"), id="another-kind"),
        pytest.param("container: main", "container: Main", ("bad_name", "spec.container"), id="name"),
        pytest.param("7000", "70000", ("out_of_range", "spec.ports[0].containerPort"), id="port"),
        pytest.param(
            "ranked: false", "dependsOn: [{role: wrker}]",
            ("unknown_role", "spec.roles[0].dependsOn[0].role"),
            id="dependency-on-nobody",
        ),
        pytest.param(
            "description: of my own", "successPolicy: {targetRoles: [boss]}",
            ("unknown_role", "spec.successPolicy.targetRoles[0]"),
            id="policy-of-nobody",
        ),
        pytest.param(
            "description: of my own", "otherRoles: boss", ("unknown_role", "spec.otherRoles"),
            id="others-like-nobody",
        ),
        pytest.param(
            "ranked: false", "commandPrefix: [start, '{{ rank }}']",
            ("bad_template", "spec.roles[0].commandPrefix[1]"),
            id="prefix-over-what-is-not-known-yet",
        ),
        pytest.param(
            "addresses('server')", "adresses('server')", ("bad_template", "spec.env[0].value"),
            id="template",
        ),
        pytest.param(
            "description: of my own", "files: [{path: a, content: b, when: rank == 0}]",
            ("bad_template", "spec.files[0].when"),
            id="condition",
        ),
        pytest.param(
            "addresses('server') | join(',')", "parameters.dept", ("bad_template", "spec.env[0].value"),
            id="parameter-that-is-not-declared",
        ),
        pytest.param(
            "ranked: false",
            "template: {spec: {containers: [{name: main, command: ['{{ parameters.depth }}']}]}}",
            ("bad_template", "spec.roles[0].template.spec.containers[0].command[0]"),
            id="template-in-a-pod-template",
        ),
        pytest.param(
            "default: 3", "default: three", ("bad_parameter", "spec.parameters.depth.default"),
            id="default-that-does-not-fit",
        ),
        pytest.param(
            "type: integer", "type: int", ("bad_parameter", "spec.parameters.depth"),
            id="no-json-schema",
        ),
        pytest.param(
            "name: SERVERS", "name: TRAINING_RANK", ("reserved_env", "spec.env[0].name"),
            id="our-own-variable",
        ),
        pytest.param(
            "ranked: false", "template: {spec: {containers: [{name: main, imag: x}]}}",
            ("unknown_key", "spec.roles[0].template.spec.containers[0].imag"),
            id="typo-deep-in-a-pod-template",
        ),
        pytest.param("spec:", "spec:\n  container: main", ("duplicate", "spec.container"), id="twice"),
    ],
)  # fmt: skip
def test_mistakes_of_a_framework_file(tmp_path, old, new, expected):
    path = write(tmp_path, MINE.replace(old, new))
    problems = check_file(path)
    assert [(p.code.replace("bad_pod_template", "unknown_key"), p.field) for p in problems] == [
        expected
    ]
    assert problems[0].line is not None


def test_all_mistakes_at_once():
    text = MINE.replace("{{ addresses", "{{ nobody").replace("default: 3", "default: x")
    _, problems = parse_framework(text)
    assert sorted(problem.code for problem in problems) == ["bad_parameter", "bad_template"]


@pytest.mark.parametrize("text", ["", "[1]", MINE + "---\n" + MINE, "a: [", "spec: 1"])
def test_what_is_no_framework_at_all(text, tmp_path):
    assert check_file(write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    assert codes(check_file(tmp_path / "none.yaml")) == [("bad_reference", "")]


# --- what a DAG needs ---------------------------------------------------------------------------


def test_dependencies_for_a_dag():
    assert role_dependencies(a_job("pytorch", {"worker": 2, "master": 1})) == {
        "worker": ["master"],
        "master": [],
    }


@pytest.mark.parametrize(
    ("framework", "roles", "code"),
    [("pytorc", {"worker": 1}, "unknown_framework"), ("pytorch", {"ps": 1}, "unknown_role")],
)
def test_dependencies_of_what_does_not_exist(framework, roles, code):
    with pytest.raises(InputError) as caught:
        role_dependencies(a_job(framework, roles))
    assert [problem.code for problem in caught.value.problems] == [code]
