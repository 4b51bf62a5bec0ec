"""A notebook becomes a script that does the same, and says what a script cannot."""

from __future__ import annotations

import json

import pytest

from airflow_training.capture.notebook import export_notebook
from airflow_training.errors import InputError


def notebook(*cells: str, language: str = "python", **more: object) -> bytes:
    return json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["# Title\n"]},
                *(
                    {"cell_type": "code", "source": each.splitlines(keepends=True)}
                    for each in cells
                ),
            ],
            "metadata": {"kernelspec": {"language": language}},
            "nbformat": 4,
            **more,
        }
    ).encode()


def run(source: bytes) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(source, "notebook", "exec"), names)
    return names


def test_the_code_cells_run_in_order():
    script = export_notebook(
        notebook("x = 1\n", "def f():\n    return x + 1\n", "y = f()"), path="a.ipynb"
    )
    assert run(script.source)["y"] == 2
    assert script.left_out == []
    assert b"Title" not in script.source


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%matplotlib inline\nx = 1", "cell 2, line 1: %matplotlib inline"),
        ("x = 1\n!pip install torch\n", "cell 2, line 2: !pip install torch"),
        ("if True:\n    !ls\nx = 1", "cell 2, line 2: !ls"),
        ("x = 1\nfiles = !ls\n", "cell 2, line 2: files = !ls"),
        ("x = 1\nprint?\n", "cell 2, line 2: print?"),
        ("%%time\nx = 1\n", "cell 2, line 1: %%time"),
        ("%%bash\necho hi\n", "cell 2: all of it, %%bash"),
    ],
)
def test_what_only_a_notebook_understands_is_told(cell, told):
    script = export_notebook(notebook(cell, "z = 1"), path="a.ipynb")
    assert list(script.left_out) == [told]
    names = run(script.source)
    assert names["z"] == 1
    assert ("x" in names) == ("bash" not in told)


@pytest.mark.parametrize("code", ["x = 7 % 2\n", "y = 3\nx = (y\n     % 2)\n", "x = not 0\n"])
def test_what_only_looks_like_magic_stays(code):
    script = export_notebook(notebook(code), path="a.ipynb")
    assert script.left_out == []
    assert run(script.source)["x"] == 1


def test_display_prints(capsys):
    script = export_notebook(notebook("display('seen')\n"), path="a.ipynb")
    run(script.source)
    assert capsys.readouterr().out == "seen\n"
    assert list(script.left_out) == ["display(...) prints"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"not json", "it is no notebook"),
        (b"{}", "it is no notebook"),
        (b"[]", "it is no notebook"),
        (notebook("1", language="R"), "its code is not Python"),
    ],
)
def test_what_is_no_notebook_of_python_is_refused(content, expected):
    with pytest.raises(InputError, match=expected):
        export_notebook(content, path="a.ipynb")


@pytest.mark.parametrize(
    "cells",
    [[{"cell_type": "code", "source": None}], ["x = 1"], [{"cell_type": "code", "source": [1]}]],
)
def test_a_notebook_with_broken_cells_is_refused(cells):
    with pytest.raises(InputError, match=r"a\.ipynb: it is no notebook"):
        export_notebook(json.dumps({"cells": cells}).encode(), path="a.ipynb")
