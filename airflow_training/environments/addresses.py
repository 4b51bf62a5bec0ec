"""Addresses without what is secret in them, and as all processes of a machine mean them."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_training.errors import InputError

__all__ = ["public_url", "storage_address"]

_USER = re.compile(r"(?<=//)(?!git@)[^/\s]*@")
_PASSWORD = re.compile(r"//[^/\s@]*:[^/\s]*@|\?")
_QUERY = re.compile(r"\?[^#\s\"']*")


def public_url(url: str) -> str:
    """Return an address without user, password and query; `git@` of an SSH address names nobody and stays."""
    return _QUERY.sub("", _USER.sub("", url))


def storage_address(text: str) -> str:
    """Return the address of a storage as every process of this machine means it: a plain path is made absolute.

    Raises InputError for one that has a password or a query: it is shown with each run that uses it.
    """
    if not text or "://" not in text:
        return str(Path(text).expanduser().absolute()) if text else ""
    if _PASSWORD.search(text):
        raise InputError.of(
            code="not_allowed",
            field="name",
            message=f"the storage of environments, {public_url(text)}, has a password or a query in its address, and"
            " every run that uses it shows that",
            hint="leave it out of the address, and set the variables of the storage's driver",
        )
    return text
