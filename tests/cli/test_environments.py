"""`environments record | check | build | list | show | add | fetch | pin | verify | remove | gc` as a user types them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.environments.conftest import look_only_in, write_wheels


@pytest.fixture
def record_file(tmp_path: Path, typed: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The record of this Python and `tinyone`, which only a folder of wheels has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    look_only_in(write_wheels(tmp_path / "wheels"), tmp_path / "uv", monkeypatch)
    record = typed("environments", "record", "-o", "json").json
    record["distributions"].append({"name": "tinyone", "version": "1.0"})
    Path("laptop.json").write_text(json.dumps(record))
    return "laptop.json"


def test_an_environment_is_made_looked_at_and_removed(typed: Any, record_file: str):
    told = typed("environments", "check", record_file)
    assert ["tinyone", "1.0", "installed"] in [line.split() for line in told.stdout.splitlines()]
    assert "with 1 distribution on top" in told.stderr

    made = typed("environments", "build", record_file, "-o", "json").json
    assert (made["installed"], made["cached"]) == (["tinyone==1.0"], False)
    assert typed("environments", "build", record_file).stdout.strip() == made["python"]
    assert "which is in the cache" in typed("environments", "check", record_file).stderr

    (row,) = typed("environments", "list", "-o", "json").json["cached"]
    assert (row["python"], row["base"], row["pinned"]) == (made["python"], "here", False)
    digest = row["digest"][:8]
    assert "tinyone==1.0" in typed("environments", "show", digest).stdout
    assert "as it was installed" in typed("environments", "verify", digest).stderr
    assert typed("environments", "pin", digest).code == 0
    assert typed("environments", "gc", "--unused-days", "0", "-o", "json").json["removed"] == {}
    assert typed("environments", "pin", digest, "--undo").code == 0

    (module,) = Path(made["python"]).parents[1].glob("lib/python*/site-packages/tinyone/more.py")
    module.write_text("X = 2\n")
    damaged = typed("environments", "verify", digest)
    assert (damaged.code, module.name in damaged.stdout) == (1, True)

    (lists,) = Path(made["python"]).parents[1].glob("lib/python*/site-packages/tinyone*/RECORD")
    whole = lists.read_bytes()
    lists.write_text("")
    damaged = typed("environments", "verify", digest)
    assert (damaged.code, "is damaged" in damaged.stderr) == (2, True)
    lists.write_bytes(whole)

    assert "removed" in typed("environments", "remove", digest).stderr
    assert typed("environments", "list", "-o", "json").json["cached"] == []


def test_a_refusal_names_what_mends_it(typed: Any, record_file: str):
    record = json.loads(Path(record_file).read_text())
    record["python"] = "3.8.1"
    mine = {"name": "mine", "version": "1", "origin": "folder", "url": "file:///home/user/mine"}
    record["distributions"].append(mine)
    Path(record_file).write_text(json.dumps(record))
    refused = typed("environments", "check", record_file)
    assert refused.code == 2
    minor = ".".join(map(str, sys.version_info[:2]))
    assert "python: 3.8.1 here" in refused.stderr
    assert f"uv venv --python {minor}" in refused.stderr
    assert "pip install -e /home/user/mine" in refused.stderr
    without = typed("environments", "check", record_file, "--without", "mine")
    assert "python: 3.8.1 here" in without.stderr
    assert "mine" not in without.stderr


def test_a_catalogue_of_images_is_read(typed: Any, record_file: str):
    Path("catalogue.yaml").write_text(
        f"""\
apiVersion: airflow-training/v1
kind: EnvironmentCatalogue
spec:
  builds: false
  images:
    - {{name: registry.example.com/training:2, python: /usr/bin/python3, record: {record_file}}}
"""
    )
    found = typed("environments", "check", record_file, "--catalogue", "catalogue.yaml")
    assert "registry.example.com/training:2 (/usr/bin/python3) as it is" in found.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: TrainingJob\n", "kind: one document is wanted here"),
        ("kind: EnvironmentCatalogue\nspec: {images: []}\n", "spec.images: names no image"),
        ("kind: EnvironmentCatalogue\nspec: {images: [{name: a}]}\n", "needs `name` and `record`"),
        (
            "kind: EnvironmentCatalogue\nspec: {images: [{name: a, record: none.json}]}\n",
            "environments record --output json",
        ),
    ],
)
def test_mistakes_of_a_catalogue_are_named(typed: Any, record_file: str, text: str, said: str):
    Path("catalogue.yaml").write_text(text)
    found = typed("environments", "check", record_file, "--catalogue", "catalogue.yaml")
    assert found.code == 2
    assert said in found.stderr


@pytest.mark.parametrize("text", ["", "no record", "[]", '{"python": "3.11.1"}'])
def test_what_is_no_record_is_refused(typed: Any, record_file: str, text: str):
    Path(record_file).write_text(text)
    assert typed("environments", "check", record_file).code == 2


def test_named_environments_are_listed_and_gone_when_removed(typed: Any, record_file: str):
    import venv

    assert record_file
    venv.create("small", with_pip=False, symlinks=True)
    (packages,) = Path("small").glob("lib/python*/site-packages")
    from zipfile import ZipFile

    ZipFile("wheels/tinyone-1.0-py3-none-any.whl").extractall(packages)
    at = ("--at", "store")
    added = typed("environments", "add", "tiny@1", *at, "--python", "small/bin/python")
    assert (added.code, "tiny@1: 1 package" in added.stderr) == (0, True), added.stderr
    fetched = typed("environments", "fetch", "tiny@1", *at, "-o", "json").json
    assert fetched["installed"] == ["tinyone==1.0"]
    builtin, named = typed("environments", "list", *at, "-o", "json").json["named"]
    assert (builtin["name"], builtin["cached"]) == ("builtin", False)
    assert (named["name"], named["version"], named["cached"]) == ("tiny", "1", True)
    assert "tinyone-1.0-py3-none-any.whl" in typed("environments", "show", "tiny@1", *at).stdout
    with pytest.MonkeyPatch.context() as patch:  # the storage of a team, from which others fetch
        patch.setenv("AIRFLOW__TRAINING__ENVIRONMENTS", "store")
        assert typed("environments", "remove", "tiny@1").code == 0
        assert typed("environments", "gc", "-o", "json").json["files"] == {}
        assert typed("environments", "fetch", "tiny@1").code == 0
    assert typed("environments", "remove", "tiny@1", *at).code == 0
    assert len(typed("environments", "gc", *at, "-o", "json").json["files"]) == 1
    lost = typed("environments", "fetch", "tiny@1", *at)
    assert (lost.code, "tiny@1" in lost.stderr or "is not there" in lost.stderr) == (2, True)


def test_where_named_ones_are_kept_is_asked_for(typed: Any, record_file: str):
    assert record_file
    asked = typed("environments", "fetch", "tiny@1")
    assert (asked.code, "[training] environments" in asked.stderr) == (2, True)
