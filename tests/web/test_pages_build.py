"""The pages that are shipped are those that the sources say, and speak of what the API answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_training.web.openapi import openapi_document
from airflow_training.web.static_files import FOLDER

SOURCES = FOLDER.with_name("pages")
MOST_BYTES_OF_ENTRY = 90 * 1024
MOST_BYTES = 350 * 1024
"""Without the libraries of the host, which are in the shell."""

built_here = pytest.mark.skipif(
    "CI" not in os.environ
    and (not (SOURCES / "node_modules").is_dir() or shutil.which("node") is None),
    reason="`npm ci` was not run in airflow_training/web/pages (make pages does)",
)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _files(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.e2e
@built_here
def test_the_bundle_is_what_the_sources_make(tmp_path: Path):
    _run("node", "build.mjs", str(tmp_path))
    assert _files(FOLDER) == _files(tmp_path), "run `make pages` and commit what it writes"


@pytest.mark.e2e
@built_here
def test_the_types_are_those_of_the_api(tmp_path: Path):
    (tmp_path / "openapi.json").write_text(json.dumps(openapi_document(), sort_keys=True))
    _run("node", "types.mjs", str(tmp_path / "openapi.json"), str(tmp_path / "schema.ts"))
    current = (SOURCES / "src" / "schema.ts").read_text()
    assert current == (tmp_path / "schema.ts").read_text(), "run `make pages`"


@pytest.mark.e2e
@built_here
def test_the_sources_are_typed_and_their_pure_parts_do_what_they_say():
    _run("npm", "run", "--silent", "check")
    _run("npm", "run", "--silent", "test")


def test_the_first_load_is_small():
    import gzip

    names = json.loads((FOLDER / "manifest.json").read_text())
    packed = {
        part: len(gzip.compress((FOLDER / name).read_bytes())) for part, name in names.items()
    }
    assert packed["pages"] <= MOST_BYTES_OF_ENTRY, packed
    later = {
        path.name: len(gzip.compress(path.read_bytes()))
        for path in FOLDER.glob("*.js")
        if path.name not in names.values()
    }
    assert packed["pages"] + sum(later.values()) <= MOST_BYTES, later


def test_the_lock_file_names_no_host():
    text = (SOURCES / "package-lock.json").read_text()
    assert '"resolved"' not in text


def test_nothing_is_loaded_from_elsewhere_nor_compiled_at_run_time():
    """A strict content security policy would forbid it."""
    shell = json.loads((FOLDER / "manifest.json").read_text())["shell"]
    for path in {*FOLDER.glob("*.js")} - {FOLDER / shell}:
        text = path.read_text()
        assert "new Function(" not in text
        assert "eval(" not in text
        assert "sourceMappingURL" not in text
