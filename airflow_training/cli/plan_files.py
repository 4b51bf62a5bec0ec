"""Where plans go (a table, JSON, a file), and files that hold a JSON document a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.cli.output import fail, note, print_json

__all__ = ["Destination", "read_lines"]


@dataclass(frozen=True, slots=True)
class Destination:
    """What `--output` names: `table` or `json` on stdout, or a file that gets the JSON."""

    name: str

    @property
    def is_file(self) -> bool:
        return self.name not in ("table", "json")

    def show(self, document: Mapping[str, Any], lines: Sequence[str]) -> None:
        """Print a document, or its lines for people, or write it to the file."""
        if self.name == "table":
            print("\n".join(lines))
        elif self.name == "json":
            print_json(document)
        else:
            self._write(json.dumps(document, ensure_ascii=False) + "\n")

    def write_lines(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Write one JSON document a line: to the file, else to stdout."""
        if not self.is_file:
            for document in documents:
                print_json(document)
            return
        self._write("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in documents))

    def _write(self, text: str) -> None:
        try:
            Path(self.name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise fail(
                "--output",
                f"cannot be written: {error.strerror}",
                value=self.name,
                allowed=["table", "json", "a file"],
            ) from None
        note(f"wrote {self.name}")


def read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line number, document) of a file of JSON lines; raises InputError for the first bad one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "is no UTF-8 text"
        raise fail("--input", f"cannot be read: {said}", value=str(path)) from None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                document = json.loads(line)
            except ValueError as error:
                raise fail(
                    "--input", f"line {number} is no JSON: {error}", code="syntax", value=str(path)
                ) from None
            yield number, document
