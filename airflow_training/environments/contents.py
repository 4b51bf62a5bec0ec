"""The files of an environment and their digests: RECORD files of its packages (PEP 376), and all others by our own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_training.environments.marks import LEFT_OUT

__all__ = [
    "changed_files",
    "damaged_files",
    "listed_digest",
    "other_files",
    "sha256_of",
]


def listed_digest(place: Path) -> str:
    """SHA-256 over the RECORD files of all packages, in order of their paths."""
    digest = hashlib.sha256()
    for path in _records(place):
        digest.update(f"{path.relative_to(place)}\0{sha256_of(path).hex()}\n".encode())
    return digest.hexdigest()


def other_files(place: Path) -> Mapping[str, str]:
    """Return the digest by path of each file and link that no RECORD has one of; compiled files are left out."""
    listed, records = _listed(place), _records(place)
    return {
        name: _digest_of(place / name).hex()
        for name in _files(place)
        if name not in listed and place / name not in records
    }


def damaged_files(place: Path, others: Mapping[str, str]) -> list[str]:
    """Return the files that are missing, changed, or were not there when it was built; by reading all bytes."""
    listed, records = _listed(place), {str(path.relative_to(place)) for path in _records(place)}
    new = {*_files(place)} - {*listed, *others, *records}
    changed = {*changed_files(place)}
    changed |= {name for name, text in others.items() if not _is_other(place / name, text)}
    return sorted(new | changed)


def changed_files(place: Path) -> list[str]:
    """Return the files that are missing or whose bytes are not those that the RECORD of their package says."""
    listed = _listed(place)
    return sorted(name for name, digest in listed.items() if not _is(place / name, digest))


def _files(place: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name != "__pycache__"]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            relative = str(Path(folder, name).relative_to(place))
            if not relative.startswith(LEFT_OUT):
                yield relative


def _records(place: Path) -> list[Path]:
    return sorted(place.glob("lib/python*/site-packages/*.dist-info/RECORD"))


def _listed(place: Path) -> dict[str, bytes]:
    """Return the SHA-256 by path of all files of which a RECORD has one."""
    import base64  # not at the start of each instance
    import csv

    found: dict[str, bytes] = {}
    for record in _records(place):
        with record.open(newline="", encoding="utf-8") as file:
            for name, digest, *_ in csv.reader(file):
                kind, _, value = digest.partition("=")
                if kind == "sha256" and not name.endswith(".pyc"):
                    path = os.path.normpath(record.parent.parent / name)
                    found[os.path.relpath(path, place)] = base64.urlsafe_b64decode(value + "==")
    return found


def _is(path: Path, digest: bytes) -> bool:
    try:
        return sha256_of(path) == digest
    except OSError:
        return False


def _is_other(path: Path, digest: str) -> bool:
    try:
        return _digest_of(path).hex() == digest
    except OSError:
        return False


def _digest_of(path: Path) -> bytes:
    """SHA-256 of a file, of a link itself: where it points to is not in the environment."""
    if path.is_symlink():
        return hashlib.sha256(b"link\0" + os.fsencode(path.readlink())).digest()
    return sha256_of(path)


def sha256_of(path: Path) -> bytes:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()
