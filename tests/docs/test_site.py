"""The site of the docs is built from the pages as they are, and no link of it leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT
from tests.waiting import PATIENCE


def test_the_site_is_built_and_has_every_page(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs")
        assert f": {name}\n" in listed, f"{name} is not in mkdocs.yml"
        assert (tmp_path / name.with_suffix("") / "index.html").exists()
    assert (tmp_path / "docker" / "rbac.yaml").exists(), "what a page links to is there too"
