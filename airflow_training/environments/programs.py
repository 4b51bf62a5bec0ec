"""The programs that make environments: uv where it is, else pip; and what this machine has set for them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["find_uv", "pip_config", "pip_hint", "uv_is_configured", "uv_settings"]


def find_uv() -> str | None:
    """Return the path of uv: beside this Python, on PATH, or where its installer puts it."""
    beside = Path(sys.executable).with_name("uv")
    own = Path("~/.local/bin/uv").expanduser()
    found = [str(beside), shutil.which("uv"), str(own)]
    return next((path for path in found if path and os.access(path, os.X_OK)), None)


def uv_settings(environ: Mapping[str, str], pip_config: str) -> tuple[Mapping[str, str], list[str]]:
    """Return variables and options that make uv look for packages where pip does on this machine.

    Nothing where uv has been told of indexes itself. uv reads no file of pip; `pip_config` is what
    `pip config list` prints: `global.index-url='...'`, and `:env:.find-links='...'` for variables.
    """
    if any(environ.get(name) for name in _INDEX_VARIABLES):
        return {}, []
    found = _pip_options(pip_config)
    values = {name: found[option] for option, name in _PIP_OPTIONS.items() if option in found}
    if "UV_FIND_LINKS" in values:
        values["UV_FIND_LINKS"] = ",".join(values["UV_FIND_LINKS"].split())
    if "UV_INDEX" in values:
        values["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip knows no other
    closed = found.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t")
    return values, ["--no-index"] if closed else []  # uv has no variable for it


def _pip_options(pip_config: str) -> Mapping[str, str]:
    """Return pip's options for installing, lists with spaces between."""
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # the last that says something counts
        for line in pip_config.splitlines():
            key, _, value = line.partition("=")
            place, _, name = key.rpartition(".")
            if place == section:
                # printed as Python writes a text: a list on several lines has `\n` in it
                found[name] = " ".join(str(ast.literal_eval(value)).split())
    return found


def uv_is_configured() -> bool:
    """Say whether uv has been told of indexes itself, in a file of the user or of the machine."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    files = [Path(home).expanduser() / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
    return any("index" in path.read_text("utf-8") for path in files if path.is_file())


def pip_hint(python: str, said: str) -> str:
    """The command that gives an interpreter its pip, where that is the fault; else nothing."""
    return f"{python} -m ensurepip" if "No module named pip" in said else ""


def pip_config(python: str) -> str:
    """This machine's configuration of pip; empty where there is no pip."""
    done = subprocess.run(
        [python, "-m", "pip", "config", "list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else ""


_INDEX_VARIABLES = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")  # fmt: skip
_PIP_OPTIONS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
