"""A named environment is what its digest says, or it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_training.environments.named import NamedEnvironment, PackageFile, split_name
from airflow_training.errors import InputError
from tests.environments.records import RECORD

NAMED = NamedEnvironment(
    name="torch-cpu",
    version="1.2",
    record=RECORD,
    files=[
        PackageFile(name="tqdm-4.67.0-py3-none-any.whl", sha256="a" * 64, size=78540),
        PackageFile(
            name="torch-2.9.1+cpu-cp311-cp311-linux_x86_64.whl", sha256="b" * 64, size=184000000
        ),
    ],
)


def test_it_travels_as_a_document():
    document = json.loads(json.dumps(NAMED.to_json()))
    assert (document["kind"], document["metadata"]["name"]) == ("Environment", "torch-cpu")
    again = NamedEnvironment.from_json(document)
    assert (again.title, again.digest) == ("torch-cpu@1.2", NAMED.digest)
    assert again.record == RECORD


def test_its_files_are_installed_by_their_digests():
    assert [each.requirement for each in NAMED.files] == [
        f"tqdm==4.67.0 --hash=sha256:{'a' * 64}",
        f"torch==2.9.1+cpu --hash=sha256:{'b' * 64}",
    ]


def _rename(document: dict[str, Any]) -> None:
    document["metadata"]["name"] = "../other"


def _change_python(document: dict[str, Any]) -> None:
    document["spec"]["record"]["python"] = "3.11.8"


def _change_file(document: dict[str, Any]) -> None:
    document["spec"]["files"][0]["sha256"] = "c" * 64


def _leave_folder(document: dict[str, Any]) -> None:
    document["spec"]["files"][0]["name"] = "../../tqdm-4.67.0-py3-none-any.whl"


def _lose_kind(document: dict[str, Any]) -> None:
    document["kind"] = "TrainingJob"


def _lose_files(document: dict[str, Any]) -> None:
    del document["spec"]["files"]


def _lose_size(document: dict[str, Any]) -> None:
    document["spec"]["files"][0]["size"] = "1"


def _shorten_digest(document: dict[str, Any]) -> None:
    document["spec"]["files"][0]["sha256"] = "../x"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_rename, "is a name and a version"),
        (_change_python, "is not what its digest says"),
        (_change_file, "is not what its digest says"),
        (_leave_folder, "is no name of a file"),
        (_lose_kind, "is no document of kind Environment"),
        (_lose_files, "files"),
        (_shorten_digest, "is no digest"),
        (_lose_size, "is no size"),
    ],
)
def test_a_changed_document_is_refused(change: Callable[[dict[str, Any]], None], said: str):
    document = json.loads(json.dumps(NAMED.to_json()))
    change(document)
    with pytest.raises(InputError, match=said):
        NamedEnvironment.from_json(document)


@pytest.mark.parametrize("text", ["torch-cpu", "torch@", "@1", "a/b@1", "..@1", "A@1", "a@1@2", "a@1/2"])  # fmt: skip
def test_names_that_could_be_paths_are_refused(text: str):
    with pytest.raises(InputError, match="NAME@VERSION"):
        split_name(text)


def test_a_list_is_no_document():
    with pytest.raises(InputError, match="is no document of kind"):
        NamedEnvironment.from_json([])  # type: ignore[arg-type]
