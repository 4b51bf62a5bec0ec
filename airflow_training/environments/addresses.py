"""Addresses without what is secret in them, and as all processes of a machine mean them."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_training.errors import InputError

__all__ = ["check_no_secret", "public_url", "storage_address"]

_USER = re.compile(r"(?<=//)(?!git@)[^/\s]*@")
_PASSWORD = re.compile(r"//[^/\s@]*:[^/\s]*@|\?")
_QUERY = re.compile(r"\?[^#\s\"']*")


def public_url(url: str) -> str:
    """Return an address without user, password and query; `git@` of an SSH address names nobody and stays."""
    return _QUERY.sub("", _USER.sub("", url))


def storage_address(text: str) -> str:
    """Return the address of a storage as every process of this machine means it: a plain path is made absolute."""
    return str(Path(text).expanduser().absolute()) if text and "://" not in text else text


def check_no_secret(storage: str) -> None:
    """Raise InputError for a storage whose address has a password or a query: it is shown with each run that uses it."""
    if "://" in storage and _PASSWORD.search(storage):
        raise InputError.of(
            code="not_allowed",
            field="name",
            message=f"[training] environments, {public_url(storage)}, has a password or a query in its address, and each"
            " run that uses it shows that",
            hint="leave it out of the address, and set the variables of the storage's driver",
        )
