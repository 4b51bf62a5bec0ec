"""The page of networks lists the types and parameters that there are."""

from __future__ import annotations

from airflow_training.networks.catalogue import LayerType, shipped_types
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")


def row(name: str, kind: LayerType) -> str:
    """Return the row of a type; inferred parameters are in italics, those with a default in brackets."""
    params = [
        f"*`{key}`*"
        if param.infer
        else f"[`{key}`]"
        if param.fill or param.has_default
        else f"`{key}`"
        for key, param in kind.params.items()
    ]
    takes = kind.takes.replace("|", "\\|") or "any"
    return f"| `{name}` | {kind.about} | {takes if kind.kind != 'input' else ''} | {', '.join(params)} |"


def test_every_type_is_on_the_page_as_the_catalogue_has_it():
    rows = [line for line in PAGE.partition("## Types")[2].splitlines() if line.startswith("| `")]
    assert rows == [row(name, kind) for name, kind in shipped_types().items()]
