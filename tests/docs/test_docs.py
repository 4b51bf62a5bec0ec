"""The documentation against the code: examples work, links lead somewhere, nothing is left out."""

from __future__ import annotations

import ast
import configparser
import functools
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml
from airflow.sdk import TaskGroup
from typer.core import TyperGroup

import airflow_training
from airflow_training.admission.check import check_text
from airflow_training.admission.explain import explain
from airflow_training.cli.main import app
from airflow_training.control.conditions import condition_of
from airflow_training.control.model import TERMINAL_JOB_STATES, JobEntry, JobState
from airflow_training.documents.models import TrainingJobSpec
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.problems import branches
from airflow_training.environments.catalogue import read_catalogue
from airflow_training.environments.recording import record
from airflow_training.frameworks.registry import builtin_names, find, parse_framework
from airflow_training.logs.diagnosis.catalogue import faults_of, read_cause
from airflow_training.logs.metrics.patterns import make_formats
from airflow_training.networks.catalogue import shipped_types
from airflow_training.networks.document import NetworkDocument
from airflow_training.networks.own_types import read_types
from airflow_training.networks.reading import parse_network
from airflow_training.planning.sources.cluster_document import ClusterDocument
from airflow_training.planning.sources.clusters import parse_cluster
from airflow_training.planning.sources.models import read_model
from airflow_training.runtimes.faults import parse_script
from airflow_training.settings import OPTIONS
from tests.docs.pages import FENCED, PAGES, ROOT, Block, blocks, blocks_of

_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _home(airflow_home: Path) -> None:
    """Settings come from an Airflow home that has the frameworks that the pages define."""
    folder = airflow_home / "frameworks"
    folder.mkdir(parents=True)
    for name, text in _frameworks():
        (folder / f"{name}.yaml").write_text(text)


@cache
def _frameworks() -> list[tuple[str, str]]:
    """Return name and text of the frameworks that the pages define."""
    documents = [(yaml.safe_load(block.text), block.text) for block in blocks("yaml")]
    return [
        (document["metadata"]["name"], text)
        for document, text in documents
        if isinstance(document, dict) and document.get("kind") == "Framework"
    ]


# examples -----------------------------------------------------------------------------------------


def _whole(fragment: dict[str, Any]) -> str:
    """Return a job around some keys of `spec`."""
    spec = {"framework": "custom", "command": ["true"], "roles": [{"name": "worker"}], **fragment}
    head = {"apiVersion": "airflow-training/v1", "kind": "TrainingJob", "metadata": {"name": "x"}}
    return yaml.safe_dump({**head, "spec": spec}, sort_keys=False)


def _folder_of(block: Block, document: dict[str, Any], folder: Path) -> Path:
    """Return where the files of a page are that a job of it names as its cluster; else the repository."""
    files = {each.file: each.text for each in blocks_of(block.page) if each.file}
    plan = document.get("spec", {}).get("plan", {})
    if str(plan.get("cluster")) not in files:
        return ROOT
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


_SPEC_KEYS = {field.alias or name for name, field in TrainingJobSpec.model_fields.items()}


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_yaml_example_is_valid(block: Block, tmp_path: Path) -> None:
    document = yaml.safe_load(block.text)
    if isinstance(document, list):
        assert make_formats(document)
    elif document.get("kind") == "Framework":
        framework, problems = parse_framework(block.text)
        assert framework is not None
        assert not problems
    elif document.get("kind") == "Network":
        network, mistakes = parse_network(block.text)
        assert network is not None, mistakes
    elif document.get("kind") == "EnvironmentCatalogue":
        (tmp_path / "laptop.json").write_text(json.dumps(record().to_json()))
        (tmp_path / "catalogue.yaml").write_text(block.text)
        assert read_catalogue(tmp_path / "catalogue.yaml").images
    elif "faults" in document:
        assert parse_script(document).faults
    elif "hidden" in document:
        assert read_model(document).units
    elif "nodes" in document:
        assert parse_cluster(document).devices
    elif all(isinstance(each, dict) and "about" in each for each in document.values()):
        path = tmp_path / "types.yaml"
        path.write_text(block.text)
        assert read_types(path, taken=shipped_types())
    elif "signatures" in document:
        path = tmp_path / f"{document['id']}.yaml"
        path.write_text(block.text)
        assert faults_of(read_cause(path)) == []
    else:
        if "kind" not in document:
            assert set(document) <= _SPEC_KEYS, (
                "neither a job, keys of spec, a cluster, formats of metrics, a cause, nor a fault script"
            )
        text = block.text if "kind" in document else _whole(document)
        base_dir = _folder_of(block, document, tmp_path)
        for checked in check_text(text, path=str(block), base_dir=str(base_dir)):
            assert not checked.problems
            assert checked.resolved is not None


@pytest.mark.parametrize("block", blocks("yaml invalid"), ids=str)
def test_a_yaml_example_of_a_mistake_has_one(block: Block) -> None:
    (checked,) = check_text(block.text, path=str(block))
    assert checked.problems


_EXAMPLES = ROOT / "dags" / "examples"
_PYTHON = [pytest.param(block.text, id=str(block)) for block in blocks("python")]
_SCRIPTS = [
    pytest.param(path.read_text(encoding="utf-8"), id=path.stem)
    for path in sorted(_EXAMPLES.glob("*/*.py"))
]


_GROUP_OPTIONS = inspect.signature(TaskGroup).parameters


@pytest.mark.parametrize("path", sorted(_EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_an_example_job_can_be_started(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (checked,) = check_text(text, path=str(path), base_dir=str(path.parent), run_uid="x")
    assert not checked.problems
    assert [each for each in _scripts_of(text) if not (path.parent / each).is_file()] == []


def _scripts_of(job: str) -> list[str]:
    """Return the Python files that a job starts."""
    command = yaml.safe_load(job)["spec"].get("command", [])
    return [word for word in command if str(word).endswith(".py")]


@pytest.mark.parametrize("text", [*_PYTHON, *_SCRIPTS])
def test_a_python_example_uses_what_is_there(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow_training"):
            source = _source_of(node.module or "")
            beside = {each.stem for each in source.parent.iterdir()}
            offered = _names_in(source) | (beside if source.name == "__init__.py" else set())
            assert {each.name for each in node.names} <= offered
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in airflow_training.__all__:
                taken = inspect.signature(getattr(airflow_training, name)).parameters
                ours = {*taken, *_GROUP_OPTIONS} if "group_options" in taken else {*taken}
                assert {each.arg for each in node.keywords if each.arg} <= ours


@pytest.mark.parametrize("text", _SCRIPTS)
def test_an_example_script_imports_what_is_installed(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        assert [each for each in names if find_spec(each.partition(".")[0]) is None] == []


def _source_of(module: str) -> Path:
    path = ROOT / f"{module.replace('.', '/')}.py"
    return path if path.is_file() else path.with_suffix("") / "__init__.py"


@cache
def _names_in(path: Path) -> frozenset[str]:
    """Return what a module defines, imports, or lists as loaded on first use; imports nothing."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.alias(name=name) | ast.Name(id=name):
                found.add(name)
            case ast.Constant(value=str(name)):
                found.add(name)
    return frozenset(found)


@pytest.mark.parametrize("block", blocks("ini"), ids=str)
def test_an_example_of_the_configuration_names_options_that_exist(block: Block) -> None:
    parser = configparser.RawConfigParser()
    parser.read_string(block.text)
    if parser.has_section("training"):
        assert set(parser["training"]) <= set(OPTIONS)


@functools.cache
def _root() -> TyperGroup:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command


def _commands_typed() -> Iterator[tuple[Block, str, list[str]]]:
    """Yield where a command stands, the command, and its words."""
    for info in ("sh", "text"):
        for block in blocks(info):
            for line in block.text.replace("\\\n", " ").splitlines():
                command = line.removeprefix("$ ").strip()
                if command.startswith("airflow-training ") and (info == "sh" or line[:2] == "$ "):
                    words = shlex.split(command, comments=True)
                    yield block, command, [w for w in words[1:] if w not in ("|", ">")]


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=f"{block}: {command}") for block, command, words in _commands_typed()],
)
def test_a_command_of_an_example_exists_with_its_options(words: list[str]) -> None:
    command: Any = _root()
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        assert words[0] in command.commands
        command, words = command.commands[words[0]], words[1:]
    known = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
    known |= {"--help", "--install-completion", "--show-completion"}
    if not command.context_settings.get("allow_interspersed_args", True):  # the rest is a program's
        program = [number for number, word in enumerate(words) if word.endswith(".py")]
        words = words[: min(program, default=len(words))]
    for word in words[: words.index("--")] if "--" in words else words:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in known


_STARTS = ("validate", "explain", "run")
_MADE = "job.yaml"
"""What `airflow-training init` writes; all other files that a page starts are blocks of it."""


@pytest.mark.parametrize(
    ("page", "words"),
    [
        pytest.param(block.page, words, id=f"{block}: {command}")
        for block, command, words in _commands_typed()
        if words[0] in _STARTS
    ],
)
def test_what_a_page_starts_is_on_it_and_takes_the_parameters(page: Path, words: list[str]) -> None:
    files = {block.file: block.text for block in blocks_of(page) if block.file}
    named = [word for word in words if word.endswith(".yaml") and Path(word).name != _MADE]
    assert [each for each in named if each not in files] == []
    given = {after.partition("=")[0] for word, after in pairwise(words) if word == "-p"}
    for name in named:
        document = yaml.safe_load(files[name])
        if document.get("kind") != "TrainingJob":
            continue
        assert given <= document["spec"].get("dag", {}).get("params", {}).keys()
        if words[0] == "run" and not {*words} & {"--runtime", "--simulate"}:  # as processes here
            scripts = {str(Path(name).parent / each) for each in _scripts_of(files[name])}
            assert scripts <= files.keys()


def test_every_target_of_make_that_a_page_names_is_there() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    typed = [
        name for block in blocks("sh") for name in re.findall(r"^make (\w+)", block.text, re.M)
    ]
    assert "test" in typed
    assert [each for each in typed if each not in targets] == []


# links --------------------------------------------------------------------------------------------


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    prose = FENCED.sub("", text)
    for target in _LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in _anchors(there.read_text(encoding="utf-8")), target


_TRAINING = ROOT / "airflow_training"
_MODULE = re.compile(r"`(?:airflow_training\.)?(?P<path>[a-z_]+(?:\.\w+)+)[`(]")


def _modules_named() -> Iterator[tuple[str, list[str]]]:
    """Yield what pages call by the name of one of our rooms."""
    for path in PAGES:
        for match in _MODULE.finditer(FENCED.sub("", path.read_text(encoding="utf-8"))):
            room, *rest = match["path"].split(".")
            ours = room not in _SPEC_KEYS and (_TRAINING / room / "__init__.py").is_file()
            if ours and rest != ["py"]:
                yield f"{path.relative_to(ROOT)}: {match['path']}", [room, *rest]


@pytest.mark.parametrize(
    "parts", [pytest.param(parts, id=name) for name, parts in _modules_named()]
)
def test_a_module_that_a_page_names_exists(parts: list[str]) -> None:
    place = _TRAINING
    while parts and (place / parts[0]).is_dir():
        place, parts = place / parts[0], parts[1:]
    if parts and (place / f"{parts[0]}.py").is_file():
        place, parts = place / f"{parts[0]}.py", parts[1:]
    text = (place / "__init__.py" if place.is_dir() else place).read_text(encoding="utf-8")
    assert not parts or re.search(rf"\b{parts[0]}\b", text)


# nothing is left out ------------------------------------------------------------------------------


def _verbs(group: TyperGroup, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _verbs(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


@pytest.mark.parametrize("verb", sorted(_verbs(_root())))
def test_every_command_is_on_its_page(verb: str) -> None:
    assert f"airflow-training {verb}" in page("cli.md")


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_is_on_its_page_with_its_default(name: str) -> None:
    (row,) = [line for line in page("airflow.md").splitlines() if line.startswith(f"| `{name}` |")]
    default = row.split("|")[2].strip().strip("`")
    assert default == (OPTIONS[name].default or "empty")


@pytest.mark.parametrize("name", sorted(builtin_names()))
def test_every_framework_is_on_its_page_with_what_it_sets(name: str) -> None:
    text = page("frameworks.md")
    spec = find(name).framework.spec
    assert f"[{name}](frameworks/{name}.md)" in text
    section = page(f"frameworks/{name}.md")
    everywhere = text.partition("## Built in")[2].partition("\n## ")[0]
    wanted = [env.name for env in spec.env] + list(spec.parameters)
    wanted += [role.name for role in spec.roles] + [port.name for port in spec.ports]
    assert [each for each in wanted if f"`{each}" not in section + everywhere] == []


def _fields(model: Any, seen: set[Any]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name
        for kind in _models(field.annotation):
            if kind not in seen:
                seen.add(kind)
                yield from _fields(kind, seen)


def _models(annotation: Any) -> Iterator[Any]:
    for branch in branches(annotation):
        if hasattr(branch, "model_fields"):
            yield branch
        for inner in get_args(branch):
            yield from _models(inner)


@pytest.mark.parametrize("field", sorted(set(_fields(TrainingJob, set()))))
def test_every_field_is_on_the_page_of_the_document(field: str) -> None:
    assert re.search(rf"\b{re.escape(field)}\b", page("job.md"))


@pytest.mark.parametrize("field", sorted(set(_fields(ClusterDocument, set()))))
def test_every_field_of_a_cluster_is_on_its_page(field: str) -> None:
    assert re.search(rf"\b{re.escape(field)}\b", page("clusters.md"))


@pytest.mark.parametrize("field", sorted(set(_fields(NetworkDocument, set()))))
def test_every_field_of_a_network_is_on_its_page(field: str) -> None:
    assert re.search(rf"\b{re.escape(field)}\b", page("networks.md"))


_CHECKING = ("documents", "frameworks", "admission", "supervise")
"""The rooms that refuse documents."""


def _codes() -> set[str]:
    rooms = [ROOT / "airflow_training" / room for room in _CHECKING]
    files = [path for room in rooms for path in room.resolve().rglob("*.py")]
    assert len({path.parent for path in files}) >= len(_CHECKING)
    return {
        code
        for path in files
        for code in re.findall(r'code="([a-z_]+)"', path.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("code", sorted(_codes()))
def test_every_error_code_is_on_the_page_of_the_document(code: str) -> None:
    assert f"`{code}`" in page("job.md")


def test_every_variable_that_an_instance_gets_is_on_the_page_of_the_document() -> None:
    text = _whole(
        {
            "data": {"uri": "a", "files": ["b"], "initialModel": "c"},
            "checkpoint": {"uri": "d"},
            "output": {"uri": "e"},
        }
    )
    (checked,) = check_text(text, runtime="local")
    now = datetime.now(tz=timezone.utc)
    explained = explain(checked, now=now)
    names = {name for name in explained["instances"][0]["env"] if name != "PYTHONUNBUFFERED"}
    assert len(names) > 12
    assert [name for name in names if f"`{name}`" not in page("job.md")] == []


def test_every_state_and_condition_is_on_the_page_of_the_store() -> None:
    states = get_args(JobState)
    conditions = {
        condition_of(
            JobEntry(state=state, drained=drained),
            reachable=reachable,
            all_seen=seen,
            any_created=seen,
        )
        for state in states
        for drained in ((False, True) if state in TERMINAL_JOB_STATES else (False,))
        for reachable in (False, True)
        for seen in (False, True)
    }
    assert len(conditions) == 12
    assert [each for each in (*states, *conditions) if f"`{each}`" not in page("store.md")] == []
