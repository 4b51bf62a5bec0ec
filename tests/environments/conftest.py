"""Where tests look for packages: in a folder of wheels that they make themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.environments.wheels import write_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip and uv look for packages."""
    folder = write_wheels(tmp_path / "wheels")
    look_only_in(folder, tmp_path / "uv", monkeypatch)
    return folder


def write_wheels(folder: Path) -> Path:
    write_wheel(folder, "tinyone", "1.0", {"more.py": "X = 1\n"})
    write_wheel(folder, "tinyone", "1.1")
    write_wheel(folder, "tinytwo", "2.0", requires=["tinyone<1", "tinythree"])
    write_wheel(folder, "tinythree", "3.0")
    return folder


def look_only_in(folder: Path, cache: Path, patch: pytest.MonkeyPatch) -> None:
    """Let pip and uv find packages in a folder, and keep what they have unpacked in another."""
    for name in [each for each in os.environ if each.startswith(("UV_", "PIP_"))]:
        patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder))
    patch.setenv("UV_CACHE_DIR", str(cache))
