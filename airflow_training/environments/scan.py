"""What a Python is and has installed, as JSON on stdout. A program: standard library only, Python 3.8 and newer.

Any interpreter runs it as a file; it imports nothing of what it finds, and reads metadata alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
import sysconfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["scan"]

_FIELD = re.compile(r"^(Name|Version|Requires-Dist):(.*)$", re.MULTILINE)
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)[^;]*(?:;(.*))?")
_PLATFORM_MARKER = re.compile(r"\b(sys_platform|platform_system|platform_machine|os_name)\b")
_TORCH_BUILD = re.compile(
    r"^(cuda|hip|xpu)\s*(?::[^=]*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE
)  # torch/version.py: `cuda: Optional[str] = '12.6'`


def scan() -> dict[str, Any]:
    """Describe the running interpreter; what each key means says `environments.model`."""
    distributions, conditions = _distributions()
    for each in distributions.values():
        found = conditions.get(each["name"], [])
        if found and all(found):
            each["markers"] = sorted(set(found))
    libc, libc_version = platform.libc_ver()
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "system": sys.platform,
        "machine": platform.machine(),
        "platform": sysconfig.get_platform(),
        "libc": f"{libc} {libc_version}".strip() or _musl(),
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),  # noqa: PTH112, PTH118
        "distributions": [distributions[name] for name in sorted(distributions)],
    }


def _distributions() -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Return distributions by name, and under which platform markers each is required ("": everywhere)."""
    distributions: dict[str, dict[str, Any]] = {}
    conditions: dict[str, list[str]] = {}
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        name, version, requirements = _head(text)
        if not name or not version or name in distributions:  # the first on the path is the one
            continue
        row: dict[str, Any] = {"name": name, "version": version}
        direct = distribution.read_text("direct_url.json")
        if (distribution.read_text("INSTALLER") or "").strip() == "conda":
            row["origin"] = (
                "conda"  # its direct_url.json names a folder of the machine that built the package
            )
        elif direct:
            row["direct_url"] = json.loads(direct)
        elif _is_development_egg(distribution):
            row["direct_url"] = {"url": "", "dir_info": {"editable": True}}
        if name == "torch":
            row["build"] = _torch_build(distribution)
        distributions[name] = row
        for required, marker in requirements:
            conditions.setdefault(required, []).append(marker)
    return distributions, conditions


def _head(text: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return name, version and platform-dependent requirements of a METADATA file."""
    name = version = ""
    requirements = []
    for key, value in _FIELD.findall(
        text.partition("\n\n")[0]
    ):  # a description follows that may be long
        if key == "Name":
            name = _normal(value)
        elif key == "Version":
            version = value.strip()
        else:
            match = _REQUIREMENT.match(value)
            marker = ((match and match.group(2)) or "").strip()
            if match and "extra" not in marker:
                kept = marker if _PLATFORM_MARKER.search(marker) else ""
                requirements.append((_normal(match.group(1)), kept.replace("'", '"')))
    return name, version, requirements


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _is_development_egg(distribution: importlib.metadata.Distribution) -> bool:
    """Say whether `setup.py develop` has installed it: its metadata lies beside its source."""
    place = str(getattr(distribution, "_path", ""))
    return place.endswith(".egg-info") and "-packages" not in place


def _torch_build(distribution: importlib.metadata.Distribution) -> str:
    """Return `cuda 12.6`, `hip 6.2` ... as the installed torch says; nothing for a build for CPUs."""
    path = str(distribution.locate_file("torch/version.py"))
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return " ".join(
                f"{kind} {version}" for kind, version in _TORCH_BUILD.findall(file.read())
            )
    except OSError:
        return ""


def _musl() -> str:
    """Return `musl` where the interpreter was built for it: it has no call that tells."""
    return "musl" if "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")) else ""


if __name__ == "__main__":
    print(json.dumps(scan()))  # noqa: T201
