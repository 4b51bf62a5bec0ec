"""Where tests look for packages: in a folder of wheels that they make themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.environments.wheels import write_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip and uv look for packages."""
    folder = tmp_path / "wheels"
    write_wheel(folder, "tinyone", "1.0", {"more.py": "X = 1\n"})
    write_wheel(folder, "tinyone", "1.1")
    write_wheel(folder, "tinytwo", "2.0", requires=["tinyone<1", "tinythree"])
    write_wheel(folder, "tinythree", "3.0")
    for name in [each for each in os.environ if each.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return folder
