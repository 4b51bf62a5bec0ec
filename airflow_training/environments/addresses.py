"""Addresses without what is secret in them, and as all processes of a machine mean them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["public_url", "storage_address"]

_USER = re.compile(r"(?<=//)(?!git@)[^/\s]*@")
_QUERY = re.compile(r"\?[^#\s\"']*")


def public_url(url: str) -> str:
    """Return an address without user, password and query; `git@` of an SSH address names nobody and stays."""
    return _QUERY.sub("", _USER.sub("", url))


def storage_address(text: str) -> str:
    """Return the address of a storage as every process of this machine means it: a plain path is made absolute."""
    return str(Path(text).expanduser().absolute()) if text and "://" not in text else text
