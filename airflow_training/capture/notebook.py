"""A notebook as a script: its code cells in order, with what only a notebook understands taken out and told. Pure."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_training.errors import InputError

__all__ = ["NotebookScript", "export_notebook"]

_MAGIC = re.compile(r"^(\s*)(%|!|\?)\s*(?=\S)|^(\s*)[\w.]+\?{1,2}\s*$")
_ASSIGNED_MAGIC = re.compile(r"^(\s*)[\w, ]+=\s*[!%]\s*\w")
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun")
"""Magics of a whole cell that run it as Python all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookScript:
    source: bytes
    left_out: Sequence[str]
    """`cell 3, line 1: %matplotlib inline`, for each line that a script cannot have."""


def export_notebook(content: bytes, *, path: str) -> NotebookScript:
    """Make a script of a notebook (nbformat 3 or 4), without its outputs.

    Raises:
        InputError: it is no notebook, or its code is not Python.
    """
    try:
        document = json.loads(content)
        cells = document.get("cells") or document["worksheets"][0]["cells"]
        codes = [
            (number, "".join(cell.get("source", cell.get("input", ""))))
            for number, cell in enumerate(cells, start=1)
            if cell.get("cell_type") == "code"
        ]
        kernel = (document.get("metadata") or {}).get("kernelspec") or {}
        language = kernel.get("language", "python")
    except (ValueError, LookupError, AttributeError, TypeError):
        raise InputError.of(
            code="notebook",
            field=path,
            message="it is no notebook",
            hint="save it anew in Jupyter, or give the script instead",
        ) from None
    if language != "python":
        raise InputError.of(
            code="notebook",
            field=path,
            message="its code is not Python",
            value=language,
            allowed=("python",),
        )
    lines = [f"# The code cells of {path}."]
    left_out: list[str] = []
    for number, text in codes:
        lines += ["", f"# cell {number}"]
        lines += _cell_lines(text.splitlines(), number, left_out)
    code = "\n".join(lines) + "\n"
    if re.search(r"(?<![\w.])display\(", code):
        code = code.replace("\n", "\ndisplay = print\n", 1)
        left_out.append("display(...) prints")
    return NotebookScript(source=code.encode(), left_out=left_out)


def _cell_lines(lines: Sequence[str], number: int, left_out: list[str]) -> list[str]:
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(_PYTHON_CELLS):
        left_out.append(f"cell {number}: all of it, {first.strip()}")
        return [f"# {line}" for line in lines]
    if _is_python("\n".join(lines)):  # `%` may begin a line of an expression
        return list(lines)
    kept = []
    for place, line in enumerate(lines, start=1):
        magic = _MAGIC.match(line)
        if magic is None and _ASSIGNED_MAGIC.match(line) is None:
            kept.append(line)
            continue
        left_out.append(f"cell {number}, line {place}: {line.strip()}")
        indent = line[: len(line) - len(line.lstrip())]
        # a statement must stay, as the line may be all that a block holds
        kept.append(f"{indent}pass  # {line.strip()}" if indent else f"# {line.strip()}")
    return kept


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
