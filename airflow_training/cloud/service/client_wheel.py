"""The client as a wheel, packed again from the files that are installed here: the same bytes for the same files."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, distribution
from pathlib import Path

import airflow_training

__all__ = ["ClientWheel", "client_wheel"]

_DISTRIBUTION = "airflow-training"
_LONG_AGO = (2000, 1, 1, 0, 0, 0)
_METADATA = ("METADATA", "entry_points.txt")
_LEFT_OUT = frozenset({"__pycache__", "pages"})
"""Caches, and the sources of what lies built in `web/static`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWheel:
    name: str
    """File name, as installers want it."""
    version: str
    data: bytes

    @property
    def sha256(self) -> str:
        """In hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


@lru_cache(maxsize=1)
def client_wheel() -> ClientWheel:
    """The package of this process as a wheel; no file of it is changed, and none besides it is in it."""
    installed = distribution(_DISTRIBUTION)
    version = airflow_training.__version__
    stem = f"{_DISTRIBUTION.replace('-', '_')}-{version}"
    files = {
        f"airflow_training/{name}": data for name, data in _package(_root()).items()
    } | _information(installed, f"{stem}.dist-info")
    record = f"{stem}.dist-info/RECORD"
    files[record] = _record(files, record)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items(), key=lambda item: (".dist-info/" in item[0], item)):
            info = zipfile.ZipInfo(name, date_time=_LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return ClientWheel(name=f"{stem}-py3-none-any.whl", version=version, data=packed.getvalue())


def _root() -> Path:
    return Path(airflow_training.__file__).parent


def _package(root: Path) -> dict[str, bytes]:
    """Every file below a folder; links to folders, which a checkout has, are followed."""
    found: dict[str, bytes] = {}
    for path in sorted(root.iterdir()):
        if path.name in _LEFT_OUT and path.is_dir():
            continue
        if path.is_dir():
            found |= {f"{path.name}/{name}": data for name, data in _package(path).items()}
        elif path.suffix != ".pyc":
            found[path.name] = path.read_bytes()
    return found


def _information(installed: Distribution, folder: str) -> dict[str, bytes]:
    texts = {name: installed.read_text(name) for name in _METADATA}
    wheel = "Wheel-Version: 1.0\nGenerator: airflow-training\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {f"{folder}/{name}": text.encode() for name, text in texts.items() if text}
    return files | {f"{folder}/WHEEL": wheel.encode()}


def _record(files: dict[str, bytes], name: str) -> bytes:
    """Digests and sizes of all files, as the specification of wheels wants them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow([path, f"sha256={digest}", len(data)])
    writer.writerow([name, "", ""])
    return text.getvalue().encode()
