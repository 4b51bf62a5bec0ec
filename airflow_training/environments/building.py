"""Making the environment of a match, once for however many ask at the same time, with uv where it is and else with pip.

Packages come from where this machine's pip or uv is set to look. The code of the project is not among them: it
travels by itself.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from airflow_training.environments.addresses import public_url
from airflow_training.environments.matching import Match
from airflow_training.environments.preparing import (
    EnvironmentBuild,
    PreparedEnvironment,
    installed_in,
    make_once,
)
from airflow_training.environments.programs import (
    find_uv,
    pip_config,
    pip_hint,
    uv_is_configured,
    uv_settings,
)
from airflow_training.errors import InputError, Problem

__all__ = ["PreparedEnvironment", "prepare"]

_NO_ROOM = re.compile(
    "|".join(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM))), re.IGNORECASE
)
"""What installers say of a machine that has no room, as the C library has it."""


def prepare(
    match: Match,
    cache_dir: Path,
    *,
    check_files: bool = False,
    name: str = "",
    fetch_packages: Callable[[], Path] | None = None,
) -> PreparedEnvironment:
    """Return the interpreter of a match, building its environment where the cache lacks it.

    Where `fetch_packages` is given, the folder of wheels that it returns is the only place where packages are
    looked for; it is called once, by whoever builds.

    How it is found and made once says `preparing.make_once`. Raises InputError where a package cannot be installed,
    OSError where the machine has no room for it, or the installer was killed.
    """
    cache_dir = cache_dir.absolute()  # installers run in another folder
    if match.kind == "image":
        return PreparedEnvironment(
            python=Path(match.image.python), installed=(), seconds=0.0, cached=True
        )

    def build(each: EnvironmentBuild) -> Mapping[str, Any]:
        packages = fetch_packages() if fetch_packages else None
        # what an installer keeps has the same bytes as what was damaged, where files are links into it
        _Builder(match, each.place, each.lock, packages).build(without_cache=each.damaged)
        _check_pins(match, installed_in(each.place))
        requirements = [*match.requirements]
        return {"base": match.image.name, "kind": match.kind, "requirements": requirements}

    return make_once(cache_dir, match.digest, build, check_files=check_files, name=name)


class _Builder:
    """One build, in a folder that nobody else touches."""

    def __init__(self, match: Match, place: Path, lock: int, packages: Path | None) -> None:
        self.match = match
        self.packages = packages
        self.place = place
        self.lock = lock
        self.uv = find_uv()

    def build(self, *, without_cache: bool) -> None:
        base = self.match.image.python
        if self.uv:
            self._run([self.uv, "venv", "--quiet", "--no-project", "--python", base, str(self.place)])  # fmt: skip
        else:
            self._run([base, "-m", "venv", "--without-pip", str(self.place)])
        python = str(self.place / "bin" / "python")
        with tempfile.TemporaryDirectory() as folder:
            pins = Path(folder) / "requirements.txt"
            pins.write_text("".join(f"{line}\n" for line in self.match.requirements), "utf-8")
            if not self.match.requirements:
                return
            if self.uv:
                self._install_with_uv(self.uv, python, pins, without_cache=without_cache)
            else:
                self._install_with_pip(python, pins, without_cache=without_cache)
        if self.match.kind == "on_top":
            self._show_base()

    def _lock_with_uv(self, uv: str, python: str, sources: Sequence[str], settings: Mapping[str, str]) -> None:  # fmt: skip
        """Write what was installed as a lock that others can install: PEP 751, with addresses and hashes."""
        pins = self.place / "pylock.toml"
        with tempfile.TemporaryDirectory() as folder:
            installed = Path(folder) / "installed.txt"
            direct = [line for line in self.match.requirements if " @ " in line]
            names = {line.split(" @ ")[0] for line in direct}
            rows = [row for row in installed_in(self.place) if row.split("==")[0] not in names]
            rows += [re.sub(r" --hash=\S+", "", line) for line in direct]
            installed.write_text("".join(f"{row}\n" for row in rows), "utf-8")
            command = [
                uv,
                "pip",
                "compile",
                "--quiet",
                "--no-deps",
                "--no-header",
                "--python",
                python,
            ]
            command += [*sources, "--format", "pylock.toml", "--output-file", str(pins)]
            self._run([*command, str(installed)], settings)
        pins.write_text(public_url(pins.read_text("utf-8")), "utf-8")

    def _install_with_uv(self, uv: str, python: str, pins: Path, *, without_cache: bool) -> None:
        command = [uv, "pip", "install", "--quiet", "--python", python, "--requirements", str(pins)]
        if self.match.resolve:  # the pins hold, whatever else their requirements say
            overrides = pins.with_name("overrides.txt")
            overrides.write_text(re.sub(r" --hash=\S+", "", pins.read_text("utf-8")), "utf-8")
            command += ["--overrides", str(overrides)]
        else:
            command += ["--no-deps"]
        sources = ["--no-cache"] if without_cache else []
        settings: Mapping[str, str] = {}
        if self.packages:
            sources += ["--no-index", "--find-links", str(self.packages)]
        elif not uv_is_configured():
            settings, options = uv_settings(os.environ, pip_config(self.match.image.python))
            sources += options
        self._run([*command, *sources], settings)
        if not self.packages:  # of a named one its document is the lock
            self._lock_with_uv(uv, python, sources, settings)

    def _install_with_pip(self, python: str, pins: Path, *, without_cache: bool) -> None:
        command = [self.match.image.python, "-m", "pip", "--python", python, "install", "--quiet"]
        command += ["--no-cache-dir"] if without_cache else []
        command += [] if self.match.resolve else ["--no-deps"]
        if self.packages:
            command += ["--no-index", "--find-links", str(self.packages)]
        # one hash makes pip demand one of every line: those with and those without go apart
        lines = pins.read_text("utf-8").splitlines(keepends=True)
        for part in ([x for x in lines if "--hash=" in x], [x for x in lines if "--hash=" not in x]):  # fmt: skip
            if part:
                pins.write_text("".join(part), "utf-8")
                deps = ["--no-deps"] if "--hash=" in part[0] and self.match.resolve else []
                self._run([*command, *deps, "--requirement", str(pins)])

    def _show_base(self) -> None:
        """Let the environment see the image's packages, after its own."""
        question = "import site, json, sys; print(json.dumps([p for p in sys.path if p.endswith('-packages')]))"
        done = self._run([self.match.image.python, "-c", question])
        (own,) = self.place.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in json.loads(done)]
        (own / "_image.pth").write_text("".join(lines), "utf-8")

    def _run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,  # nobody is there to be asked for a password
            capture_output=True,
            text=True,
            check=False,
            cwd=self.place.parent,  # not in a project that has settings of its own
            env={**os.environ, **(env or {})},
            pass_fds=(self.lock,),  # who outlives us is waited for
        )
        said = done.stderr.strip() or done.stdout.strip()
        if done.returncode < 0 or _NO_ROOM.search(said):  # says nothing about the packages
            ended = f"it was ended by signal {-done.returncode}" if done.returncode < 0 else said
            raise OSError(f"{Path(command[0]).name}: {public_url(ended)}")
        if done.returncode:
            raise self._refusal(said)
        return done.stdout

    def _refusal(self, said: str) -> InputError:
        """Name the packages that the installer names; its words follow, without passwords."""
        names = [re.split(r"==| @ ", line)[0] for line in self.match.requirements]
        blamed = [name for name in names if re.search(rf"\b{re.escape(name)}\b", said)] or [""]
        words = public_url("\n".join(said.splitlines()[-12:]))
        problems = [
            Problem(
                code="not_installed",
                field=name or "environment",
                message=f"cannot be installed for {self.match.image.name}: {words}",
                hint=pip_hint(self.match.image.python, said)
                or "install a version that the target's index has, and try it here first",
            )
            for name in blamed[:1]
        ]
        return InputError(problems=problems)


def _check_pins(match: Match, installed: Sequence[str]) -> None:
    """Raise InputError where an installer took another version than the recorded one, as pip does for a dependency."""
    there = dict(row.split("==") for row in installed)
    pins = [line.split()[0].split("==") for line in match.requirements if " @ " not in line]
    problems = [
        Problem(
            code="not_installed",
            field=name,
            message=f"{there.get(name, 'nothing')} was installed for {match.image.name}",
            value=version,
            hint="install uv on the target: it keeps the recorded versions, whatever packages ask of each other",
        )
        for name, version in pins
        if not _is_version(there.get(name, ""), version)
    ]
    if problems:
        raise InputError(problems=problems)


def _is_version(found: str, pin: str) -> bool:
    """Say whether a version fits `==pin` (PEP 440): a pin without a local label takes any."""
    found = found if "+" in pin else found.partition("+")[0]
    try:
        return Version(found) == Version(pin)
    except InvalidVersion:
        return found == pin.replace("-", "_")
