"""Addresses without what is secret in them. Pure."""

from __future__ import annotations

import re

__all__ = ["public_url"]

_USER = re.compile(r"(?<=//)(?!git@)[^/\s]*@")
_QUERY = re.compile(r"\?[^#\s\"']*")


def public_url(url: str) -> str:
    """Return an address without user, password and query; `git@` of an SSH address names nobody and stays."""
    return _QUERY.sub("", _USER.sub("", url))
