"""Tiny wheels that tests make themselves, and a folder of them where pip and uv look for packages."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["write_wheel"]


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    *,
    requires: Sequence[str] = (),
) -> str:
    """Write a pure wheel whose module `name` has `__version__`; returns `sha256:...` of the file."""
    info = f"{name}-{version}.dist-info"
    texts = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n",
        **{f"{name}/{path}": text for path, text in (files or {}).items()},
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *(f"Requires-Dist: {each}" for each in requires),
                "",
            ]
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in texts.items()]
    texts[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in texts.items():
            archive.writestr(zipfile.ZipInfo(inside), text)  # equal wheels have equal bytes
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
