"""The pages as a reader has them: fenced blocks, and the files that some of them say they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FENCED", "PAGES", "ROOT", "Block", "blocks", "blocks_of"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")])
FENCED = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"# (?P<name>[\w./-]+\.(?:yaml|yml|json|jsonl|py|cfg|log|sbatch))\b")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    info: str
    text: str

    @property
    def file(self) -> str:
        """Return the path that its first line names; empty: it is no file."""
        match = _NAME.match(self.text)
        return match["name"] if match else ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield every fenced block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in FENCED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page, line, match["info"].strip(), match["text"])


def blocks(info: str) -> list[Block]:
    """Return every fenced block of this kind, of all pages."""
    return [block for page in PAGES for block in blocks_of(page) if block.info == info]
