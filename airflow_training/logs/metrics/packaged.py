"""The YAML files of this package, read fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["FOLDER", "read"]

FOLDER = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where PyYAML was built with it."""


def read(path: Path) -> Any:
    """Return the document of a file."""
    text = path.read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  # both are safe loaders
