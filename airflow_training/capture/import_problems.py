"""What is wrong with an import, by file and line and with the next command. Pure."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Sequence

from airflow_training.errors import Problem

__all__ = ["above_its_package", "module_not_found", "relative_in_script", "syntax_problem"]


def module_not_found(
    name: str,
    *,
    places: Sequence[str],
    is_partly_there: bool,
    known: Iterable[str],
    empty_folder: str = "",
) -> Problem:
    """No module of that name in any of the places that import it; `known` are first names that could be meant.

    `empty_folder` is where it would lie, as of a submodule that was not fetched.
    """
    first = name.split(".")[0]
    near = difflib.get_close_matches(first, known, n=1, cutoff=0.8)
    if empty_folder:
        hint = (
            f"{empty_folder} is empty; of a submodule: git submodule update --init {empty_folder}"
        )
    elif is_partly_there:
        hint = f"add {name.replace('.', '/')}.py, or catch ImportError if it is not needed"
    elif near and near[0] != first:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = (
            f"install what has it into {sys.prefix}, or name its folder: PYTHONPATH=FOLDER;"
            f" if it is not needed: --allow-missing {first}"
        )
    others = f"; imported in {len(places) - 1} more places" if len(places) > 1 else ""
    return Problem(
        code="module-not-found",
        field=places[0],
        message=f"no module named {name!r}, neither here nor installed nor in Python{others}",
        value=name,
        hint=hint,
    )


def relative_in_script(shown: str, *, where: str, dotted: str) -> Problem:
    """A script has no package that a relative import could start from."""
    return Problem(
        code="relative-import",
        field=where,
        message=f"a script cannot import {shown!r}, which is relative to a package",
        value=shown,
        hint=f"start it as a module: cloud run -m {dotted}",
    )


def above_its_package(*, where: str) -> Problem:
    """More dots than packages."""
    return Problem(
        code="relative-import",
        field=where,
        message="a relative import leads above its package",
        hint="start it from the folder above: cloud run -m PACKAGE.MODULE",
    )


def syntax_problem(error: Exception, *, path: str) -> Problem:
    """A module that this version of Python cannot read."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    notebook = path.removesuffix(".py") if path.endswith(".ipynb.py") else ""
    return Problem(
        code="syntax",
        field=f"{path}:{line or 1}",
        message=f"this Python cannot read it: {message}",
        hint=f"correct the cell in {notebook}" if notebook else f"python -m py_compile {path}",
    )
