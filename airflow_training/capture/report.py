"""What would travel and what would not, as text for people and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_training.capture.kinds import size_text
from airflow_training.capture.project import ProjectCapture

__all__ = ["describe", "describe_json"]


def describe(capture: ProjectCapture, *, most: int = 20) -> str:
    """Tell a capture in lines, the largest files first and `most` rows of each kind."""
    return "\n".join(_lines(capture, most))


def _lines(capture: ProjectCapture, most: int) -> Iterator[str]:
    command, tree = capture.command, capture.tree
    files = [each for each in tree.entries if each.kind == "file"]
    size = sum(each.size for each in files)
    run = f"-m {command.entry}" if command.kind == "module" else command.entry
    yield f"root     {capture.root}{_commit(capture)}"
    yield f"command  python {' '.join([run, *command.args])}   in {command.working_dir}"
    for path in command.import_paths:
        yield f"         {path} on PYTHONPATH"
    if command.env:
        yield f"         with {', '.join(command.env)}"
    for index, path in command.paths.items():
        yield f"         argument {index + 1} is a path here: {path}"
    yield f"tree     {tree.digest[:16]}: {len(files):,} files, {size_text(size)}"
    yield ""
    yield "What travels, largest first"
    largest = sorted(files, key=lambda each: (-each.size, each.path))
    yield from _rows((each.size, each.path, "") for each in largest[:most])
    if len(largest) > most:
        rest = sum(each.size for each in largest[most:])
        yield f"  {size_text(rest):>9}  {len(largest) - most:,} more"
    if capture.outside:
        yield "\nImported from outside of the root"
        for each in capture.outside:
            yield f"  imports/{each.name}: {each.root}, used by {each.used_by}"
    if capture.omissions:
        yield "\nWhat does not travel"
        omitted = sorted(capture.omissions, key=lambda each: (-each.size, each.path))
        yield from _rows(
            (
                each.size,
                each.path + (f" ({each.count:,} files)" if each.count > 1 else ""),
                each.reason,
            )
            for each in omitted[:most]
        )
        if len(omitted) > most:
            yield f"  {'':>9}  {len(omitted) - most:,} more"
    yield from _list(
        "Imports whose names are known only when they run: what they need must be in the project",
        [f"{each.path}:{each.line}: {each.text}" for each in capture.dynamic_imports],
        most,
    )
    yield from _list("Imports that find nothing, should they run", list(capture.missing), most)
    yield from _list("Notes", list(capture.notes), most)
    yield from _list("Refused", [str(each) for each in capture.problems], len(capture.problems))


def _rows(rows: Iterator[tuple[int, str, str]]) -> Iterator[str]:
    for size, path, reason in rows:
        yield f"  {size_text(size) if size else '':>9}  {path}{f': {reason}' if reason else ''}"


def _list(title: str, rows: Sequence[str], most: int) -> Iterator[str]:
    if not rows:
        return
    yield f"\n{title}"
    for row in rows[:most]:
        yield "  " + row.replace("\n", "\n  ")
    if len(rows) > most:
        yield f"  {len(rows) - most:,} more"


def _commit(capture: ProjectCapture) -> str:
    state = capture.git
    if state is None:
        return "   (no git)"
    branch = state.branch or "detached"
    changed = f", {state.changed:,} changed" if state.changed else ""
    return f"   ({branch} {state.commit[:12] or 'without commits'}{changed})"


def describe_json(capture: ProjectCapture) -> Mapping[str, Any]:
    """A capture as one document with stable keys."""
    state = capture.git
    return {
        "root": str(capture.root),
        "digest": capture.tree.digest,
        "bytes": sum(capture.tree.blobs.values()),
        "command": capture.command.to_json(),
        "entries": [each.to_json() for each in capture.tree.entries],
        "omissions": [each.to_json() for each in capture.omissions],
        "outside": [
            {"name": each.name, "folder": str(each.root), "usedBy": each.used_by}
            for each in capture.outside
        ],
        "dynamicImports": [
            {"path": each.path, "line": each.line, "text": each.text}
            for each in capture.dynamic_imports
        ],
        "missing": list(capture.missing),
        "notes": list(capture.notes),
        "problems": [
            {"code": each.code, "field": each.field, "message": each.message, "hint": each.hint}
            for each in capture.problems
        ],
        "git": None
        if state is None
        else {"commit": state.commit, "branch": state.branch, "changed": state.changed},
    }
