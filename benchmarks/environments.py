"""The Python of a laptop: recorded, matched, and made elsewhere from a warm cache of the installer.

The environment that is made is torch with all that it needs, for the interpreter that this virtual environment lies
on, which has none of it. It is made once before the clock starts, so that the installer's cache is warm. Twenty that ask
at once are twenty processes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from airflow_training.agent.package import environment_program
from airflow_training.environments import PythonEnvironment, catalogue_here, match, prepare, record
from airflow_training.environments.builtin import builtin_environment
from airflow_training.environments.cache import find_cached, remove, verify
from airflow_training.environments.orders import EnvironmentOrder, builtin_source
from benchmarks.report import figure, heading, median

AT_ONCE = 20
_IMPORT = "import time; began = time.perf_counter(); from airflow_training.environments import record; record(); print(time.perf_counter() - began)"
_PREPARE = """
import sys
from pathlib import Path
from airflow_training.environments import catalogue_here, match, prepare
from airflow_training.environments.catalogue import read_record
found = match(read_record(Path(sys.argv[1])), catalogue_here(sys.argv[2]))
print(prepare(found, Path(sys.argv[3])).cached)
"""


def main() -> None:
    """Measure and print."""
    heading("environments")
    found = record()
    count = len(found.distributions)
    new = median([float(_output("-c", _IMPORT)) for _ in range(5)])
    figure("recorded, in a new process with its imports", new, "s", note=f"{count} distributions")
    figure("recorded again", median([*_seconds(10, record)]), "s")
    figure("another interpreter", median([*_seconds(5, lambda: record(sys.executable))]), "s")
    here = catalogue_here()
    figure("matched", median([*_seconds(10, lambda: match(found, here))]), "s")
    with tempfile.TemporaryDirectory() as folder:
        _measure_torch(found, Path(folder))
    with tempfile.TemporaryDirectory(
        dir=Path(sys.prefix).parent
    ) as folder:  # on the file system of what is installed
        _measure_builtin(Path(folder))


def _measure_builtin(folder: Path) -> None:
    """Measure what `spec.environment` costs: what an agent does before it starts a command."""
    source = builtin_source()
    described = median([*_seconds(5, lambda: builtin_environment(source))])
    digest = builtin_environment(source).digest
    figure("builtin looked up", described, "s")
    order = EnvironmentOrder(name="builtin", version="", digest=digest, source=source)
    document = {"environment": order.to_json(), "cache": str(folder / "cache")}
    program = environment_program(folder)
    words = [sys.executable, "-I", "-S", str(program), json.dumps(document)]
    began = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    figure("builtin made, by copies", time.perf_counter() - began, "s")
    starts: list[float] = []
    cpu: list[float] = []
    for _ in range(15):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        starts += _seconds(1, lambda: subprocess.run(words, stdout=subprocess.DEVNULL, check=True))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    files = sum(1 for path in (folder / "cache").rglob("*") if path.is_file())
    note = (
        f"{files} files; processor {1000 * median(cpu):.0f} ms, fastest {1000 * min(starts):.0f} ms"
    )
    figure("added to each cached start", 1000 * median(starts), "ms", target="200 ms", note=note)


def _measure_torch(found: PythonEnvironment, folder: Path) -> None:
    base = str(Path(sys.executable).resolve())
    names = {*_needed("torch")}
    rows = [each for each in found.distributions if each.name in names]
    asked = match(replace(found, distributions=rows), catalogue_here(base))
    cache = folder / "cache"
    prepare(asked, cache)
    remove(cache, asked.digest)
    made = prepare(asked, cache)
    note = f"{len(made.installed)} distributions"
    figure("torch made, the installer's cache warm", made.seconds, "s", target="15 s", note=note)
    again = median([*_seconds(10, lambda: prepare(asked, cache))])
    figure("the same from our cache", again, "s", target="1 s")
    whole = find_cached(cache, asked.digest)
    if whole:
        figure("every byte of it compared", median([*_seconds(3, lambda: verify(whole))]), "s")
    remove(cache, asked.digest)
    (folder / "record.json").write_text(json.dumps(replace(found, distributions=rows).to_json()))
    began = time.perf_counter()
    words = [sys.executable, "-c", _PREPARE, str(folder / "record.json"), base, str(cache)]
    asking = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(AT_ONCE)]
    built = [each.communicate()[0].strip() for each in asking].count("False")
    seconds = time.perf_counter() - began
    figure(f"{AT_ONCE} processes ask at once", seconds, "s", note=f"built {built} times")


def _needed(name: str) -> Iterator[str]:
    """Yield a distribution and all that it needs here."""
    names, seen = [name], {name}
    while names:
        one = names.pop()
        yield one
        for text in requires(one) or ():
            requirement = Requirement(text)
            other = canonicalize_name(requirement.name)
            if other not in seen and (
                not requirement.marker or requirement.marker.evaluate({"extra": ""})
            ):
                seen.add(other)
                names.append(other)


def _seconds(times: int, call: Callable[[], object]) -> Iterator[float]:
    for _ in range(times):
        began = time.perf_counter()
        call()
        yield time.perf_counter() - began


def _output(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    return done.stdout
