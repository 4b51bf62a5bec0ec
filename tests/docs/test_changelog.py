"""The changelog: a section once each, one version everywhere, and fragments that towncrier can read."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_training import __version__
from tests.docs.pages import ROOT
from tests.waiting import PATIENCE

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def _versions() -> Iterator[tuple[str, str]]:
    """Yield each version of the changelog and its text, the newest first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    for part in parts:
        title, _, body = part.partition("\n")
        yield title.split(" - ")[0], body


def test_a_version_has_each_section_once_in_order() -> None:
    versions = list(_versions())
    assert len({name for name, _ in versions}) == len(versions)
    for name, body in versions:
        sections = re.findall(r"^### (.+)$", body, re.MULTILINE)
        assert sections == [kind for kind in KINDS if kind in sections], name
        entries = re.findall(r"^- .+$", body, re.MULTILINE)
        assert len(set(entries)) == len(entries), f"an entry of {name} stands twice"


def test_the_version_is_the_same_everywhere() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{__version__}"\n' in project
    assert next(_versions())[0] == __version__
    for path in sorted((ROOT / "docker").iterdir()):
        text = path.read_text(encoding="utf-8")
        for tag in re.findall(r"(?:airflow-training/\w+:|Tag: )(\S+)", text):
            assert tag == __version__, path


def _build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--version", "9.9.9", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_every_fragment_has_a_kind() -> None:
    names = [path.name for path in (ROOT / "changelog.d").iterdir()]
    allowed = rf"README\.md|template\.md|[\w-]+\.({'|'.join(KINDS).lower()})\.md"
    assert [name for name in names if not re.fullmatch(allowed, name)] == []


@pytest.mark.e2e
def test_a_section_is_made_of_the_fragments(tmp_path: Path) -> None:
    (tmp_path / "changelog.d").mkdir()
    for name in ("pyproject.toml", "changelog.d/template.md"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    head = "# Changelog\n\n<!-- towncrier release notes start -->\n"
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        f"{head}\n## 0.2.0 - 2026-01-01\n\n### Added\n\n- Old.\n", encoding="utf-8"
    )
    for name, text in {
        "one.fixed.md": "A mend.\n",
        "two.added.md": "A thing\nof two lines.\n",
        "three.added.md": "Another.\n",
    }.items():
        (tmp_path / "changelog.d" / name).write_text(text, encoding="utf-8")
    done = _build(tmp_path, "--date", "2026-02-03", "--yes")
    assert done.returncode == 0, done.stderr
    assert changelog.read_text(encoding="utf-8") == (
        f"{head}\n## 9.9.9 - 2026-02-03\n\n### Added\n\n- Another.\n- A thing\n  of two lines.\n\n"
        "### Fixed\n\n- A mend.\n\n## 0.2.0 - 2026-01-01\n\n### Added\n\n- Old.\n"
    )
