"""Every way to import that scripts use is followed, and what cannot be is told with file and line."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from airflow_training.capture.closure import Closure, import_closure
from airflow_training.capture.import_problems import syntax_problem
from airflow_training.capture.installed import installed_in
from tests.capture.import_fixtures import FIXTURES, ImportFixture


def closure_of(fixture: ImportFixture, folder: Path) -> Closure:
    root = fixture.write(folder)
    if "libs.zip" in fixture.python_path:
        with zipfile.ZipFile(folder / "libs.zip", "w") as archive:
            for path in (folder / "zipped").iterdir():
                archive.write(path, f"zipped/{path.name}")
    kind, entry = fixture.entry
    return import_closure(
        root=root,
        kind=kind,
        entry=entry,
        working_dir=folder / fixture.working_dir,
        python_path=[folder / each for each in fixture.python_path],
        installed=installed_in([folder / "site" / "site-packages"]),
        also=[
            folder / fixture.working_dir / each for each in fixture.argv[1:] if each[-3:] == ".py"
        ],
    )


def test_there_are_forty_fixtures():
    assert len({each.name for each in FIXTURES}) >= 40


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda each: each.name)
def test_every_needed_file_is_found(fixture, tmp_path):
    closure = closure_of(fixture, tmp_path)
    assert fixture.needed <= closure.needed
    assert {each.name: frozenset(each.items) for each in closure.outside} == fixture.outside
    assert [f"{each.path}:{each.line}" for each in closure.dynamic] == list(fixture.dynamic)
    assert [each.field for each in closure.problems] == list(fixture.problems)
    assert list(closure.missing) == list(fixture.missing)
    if fixture.import_paths is not None:
        assert list(closure.import_paths) == list(fixture.import_paths)


def refused(tmp_path: Path, source: str, **files: str) -> list[str]:
    for name, text in {"train": source, **files}.items():
        path = tmp_path / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    closure = import_closure(
        root=tmp_path,
        kind="script",
        entry="train.py",
        working_dir=tmp_path,
        installed=installed_in([]),
    )
    return [str(each) for each in closure.problems]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            "import nowhere_to_be\n", "train.py:1: no module named 'nowhere_to_be'", id="unknown"
        ),
        pytest.param("import lib.gone\n", "train.py:1: no module named 'lib.gone'", id="submodule"),
        pytest.param("x = 1\nimport halper\n", "did you mean 'helper'?", id="misspelt"),
        pytest.param(
            "def main():\n    import nowhere_to_be\nmain()\n",
            "train.py:2: no module named 'nowhere_to_be'",
            id="late-in-the-script",
        ),
        pytest.param(
            "if __name__ == '__main__':\n    import nowhere_to_be\n",
            "train.py:2: no module named 'nowhere_to_be'",
            id="main-part-of-the-script",
        ),
        pytest.param("from . import lib\n", "cloud run -m train", id="relative-in-a-script"),
        pytest.param("x = 1\ndef (:\n", "train.py:2: this Python cannot read it", id="syntax"),
        pytest.param(
            "import lib.above\n", "lib/above.py:1: a relative import leads above", id="above"
        ),
        pytest.param("import nowhere_to_be\n", "--allow-missing nowhere_to_be", id="next-command"),
    ],
)
def test_an_import_that_finds_nothing_is_refused_by_file_and_line(source, expected, tmp_path):
    told = refused(
        tmp_path,
        source,
        helper="",
        lib__above="from ...other import x\n",
        lib____init__="",
    )
    assert any(expected in each for each in told), told


def test_a_missing_module_is_told_once(tmp_path):
    source = "import nowhere_to_be\nimport nowhere_to_be.deep\nimport lib\n"
    [told] = refused(tmp_path, source, lib="from nowhere_to_be.other import x\n")
    assert told.startswith("train.py:1: no module named 'nowhere_to_be'")
    assert "imported in 2 more places" in told


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def f():\n    import nowhere_to_be\n", id="late"),
        pytest.param("if __name__ == '__main__':\n    import nowhere_to_be\n", id="main-part"),
        pytest.param("import os\nif os.name == 'x':\n    import nowhere_to_be\n", id="conditional"),
        pytest.param("try:\n    import nowhere_to_be\nexcept Exception:\n    pass\n", id="caught"),
        pytest.param(
            "import contextlib\nwith contextlib.suppress(ImportError):\n    import nowhere_to_be\n",
            id="suppressed",
        ),
        pytest.param(
            "try:\n    import nowhere_to_be\nexcept* ImportError:\n    pass\n",
            id="caught-in-groups",
            marks=pytest.mark.skipif("sys.version_info < (3, 11)", reason="new syntax"),
        ),
        pytest.param('"""Use it:\n\nimport nowhere_to_be\n"""\n', id="docstring"),
    ],
)
def test_an_import_that_may_not_run_is_no_problem_in_a_module(source, tmp_path):
    assert refused(tmp_path, "import module\n", module=source) == []


def test_what_only_a_caught_import_reaches_may_miss_something(tmp_path):
    source = "try:\n    import extra\nexcept ImportError:\n    extra = None\n"
    assert refused(tmp_path, source, extra="import nowhere_to_be\n") == []


def test_an_example_in_a_docstring_reaches_nothing_for_sure(tmp_path):
    source = '"""Once it was:\n\nimport old\n"""\n'
    assert refused(tmp_path, "import module\n", module=source, old="import nowhere_to_be\n") == []


def test_a_submodule_that_was_not_fetched_is_told_with_the_next_command(tmp_path):
    (tmp_path / "lib").mkdir()
    [problem] = refused(tmp_path, "import lib.core\n")
    assert "git submodule update --init lib" in problem


def test_a_module_that_is_too_deep_to_be_read_is_told(tmp_path):
    [problem] = refused(tmp_path, "x = " + "-" * 100_000 + "1\n")
    assert "train.py:1: this Python cannot read it" in problem


def test_the_cell_of_a_notebook_is_named_and_not_a_file_that_is_not_there():
    error = SyntaxError("invalid syntax", ("a.ipynb.py", 4, 1, "def f(:"))
    assert syntax_problem(error, path="a.ipynb.py").hint == "correct the cell in a.ipynb"


def test_nothing_of_the_environment_travels(tmp_path):
    site = tmp_path / "env" / "site-packages"
    (site / "torchlike").mkdir(parents=True)
    (site / "torchlike" / "__init__.py").write_text("import nowhere_to_be\n")
    (tmp_path / "train.py").write_text("import torchlike, torchlike.nn, os\n")
    closure = import_closure(
        root=tmp_path,
        kind="script",
        entry="train.py",
        working_dir=tmp_path,
        installed=installed_in([site]),
    )
    assert closure.needed == {"train.py"}
    assert not closure.outside
    assert not closure.problems


def test_nothing_of_the_script_is_run(tmp_path):
    fixture = FIXTURES[0]
    root = fixture.write(tmp_path)
    mark = tmp_path / "was-run"
    for path in root.glob("*.py"):
        path.write_text(path.read_text() + f"open({str(mark)!r}, 'w')\n")
    before = dict(os.environ)
    closure_of(FIXTURES[0], tmp_path / "other")
    import_closure(root=root, kind="script", entry="train.py", working_dir=root)
    assert not mark.exists()
    assert dict(os.environ) == before
