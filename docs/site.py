"""Hooks of mkdocs: pages and files of the repository's root are part of the site, at the same names."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {"index.md": "README.md"} | {
    name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's pages, and every file of it that a page links to."""
    linked = set()
    for source in [*files.documentation_pages(), *PAGES.values()]:
        text = source.content_string if isinstance(source, File) else (ROOT / source).read_text()
        linked |= set(re.findall(r"\]\((?:\.\./)*([\w./-]+)", text))
    for target, name in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / name).read_text()))
    for name in sorted(linked):
        if name.startswith(("dags/", "docker/")) and (ROOT / name).is_file():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links name places of the site: `docs/` is its root, and nothing is above that."""
    up = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"]({up}../", f"]({up}").replace("](docs/", "](")
