"""What the ignore files of a folder say of the names below it: git's rules, nested files and negation too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["ALWAYS", "OWN_FILE", "IgnoreRules", "is_environment"]

OWN_FILE = ".trainingignore"
"""Read beside `.gitignore`, and stronger: it can leave out what git tracks and keep what git ignores."""

ALWAYS = frozenset(
    (
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        "node_modules",
        ".venv",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
        ".DS_Store",
        ".eggs",
    )
)
"""Never of use elsewhere, whatever an ignore file says."""


def is_environment(folder: Path) -> bool:
    """Whether a folder is a Python environment, however it is called."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


class IgnoreRules:
    """The rules that hold in one folder: its own ignore files, then those of the folders above."""

    def __init__(self, names: Sequence[str] = (".gitignore", OWN_FILE)) -> None:
        """`names` are the ignore files that count, the strongest last."""
        self.names = tuple(names)
        self._levels: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def below(self, folder: Path, prefix: str) -> IgnoreRules:
        """Those of a folder below, of which `prefix` is the path from the top, with `/` at the end or empty."""
        lines: list[str] = []
        for name in self.names:
            path = folder / name
            if path.is_file():
                lines += path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        if not any(line.strip() and not line.startswith("#") for line in lines):
            return self
        from pathspec import GitIgnoreSpec

        below = IgnoreRules(self.names)
        below._levels = ((prefix, GitIgnoreSpec.from_lines(lines)), *self._levels)
        return below

    def decide(self, path: str) -> bool | None:
        """Whether a path from the top (a folder's ends with `/`) is ignored; None where no rule matches."""
        for prefix, spec in self._levels:
            verdict = spec.check_file(path[len(prefix) :]).include
            if verdict is not None:
                return verdict
        return None

    @property
    def negates(self) -> bool:
        """Whether some rule could keep what another leaves out."""
        return any(each.include is False for _, spec in self._levels for each in spec.patterns)
