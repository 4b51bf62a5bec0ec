"""Which network a document describes: a digest that is equal wherever and however it is written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["network_digest"]


def network_digest(document: Mapping[str, Any]) -> str:
    """Return `sha256:...` of a document of kind Network, of what YAML reads from it.

    Comments, the order of keys and the spelling of YAML do not count; a default that is written out does.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
