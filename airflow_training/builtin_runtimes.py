"""Which runtimes there are, by name: those that come with us, and other packages' by entry point.

Names are known without loading any; what runtimes bring is asked of their adapters.
Ours are a table here and no entry points of our own: so a checkout runs whatever metadata was
installed beside it, and the names that everybody types cost no look at all installed packages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

__all__ = [
    "GROUP",
    "HERE",
    "OURS",
    "SIMULATED",
    "adapter_at",
    "each_adapter",
    "each_runtime",
    "gang_kinds",
    "is_gang_kind",
    "is_runtime",
    "load_adapter",
    "runtime_names",
    "warn_unusable",
]

log = logging.getLogger(__name__)

GROUP = "airflow_training.runtimes"
"""Of entry points: name of a runtime -> its `runtimes.adapter.Adapter`, as `module:name`."""
HERE = "local"
"""What starts instances on this machine."""
SIMULATED = "memory"
"""What `--simulate` takes. No document names it."""

_OURS: Mapping[str, str] = {
    HERE: "airflow_training.runtimes.local.adapter:LOCAL",
    "kubernetes": "airflow_training.runtimes.kubernetes.adapter:KUBERNETES",
    "slurm": "airflow_training.runtimes.slurm.adapter:SLURM",
}
OURS = tuple(_OURS)
"""The names of those that come with us, for texts that may cost nothing."""
_SIMULATION = {SIMULATED: "airflow_training.runtimes.memory:MEMORY"}


@lru_cache(maxsize=1)
def _others() -> Mapping[str, str]:
    from importlib.metadata import entry_points  # slow to import: only for names that are not ours

    found = {each.name: each.value for each in entry_points(group=GROUP)}
    return {name: found[name] for name in sorted(found.keys() - {*_OURS, *_SIMULATION})}


def runtime_names() -> tuple[str, ...]:
    """Return the names that a document may use, ours first."""
    return tuple(each_runtime())


def each_runtime() -> Iterator[str]:
    """Yield these names; who finds what it seeks among ours looks through no installed packages."""
    yield from _OURS
    yield from _others()


def is_runtime(name: str) -> bool:
    """Return whether a document may name it."""
    return name in _OURS or name in _others()


def adapter_at(name: str) -> str:
    """Return where the adapter called `name` is, as `module:name`; "" for no such runtime."""
    return _OURS.get(name) or _SIMULATION.get(name) or _others().get(name, "")


@lru_cache(maxsize=64)
def load_adapter(name: str) -> Any:
    """Return the adapter called `name`, None for no such runtime; `runtimes.registry` knows its type.

    Raises ImportError, whatever the package of another raises on import.
    """
    module, _, attribute = adapter_at(name).partition(":")
    if not module:
        return None
    try:
        return getattr(import_module(module), attribute)
    except ImportError:
        raise
    except Exception as error:
        raise ImportError(f"{type(error).__name__}: {error}") from error


def each_adapter() -> Iterator[Any]:
    """Yield the adapters of these names, ours first; each is loaded when it is its turn.

    One that cannot be loaded is another package's: it is left out with a warning, as jobs that do
    not name it need it not.
    """
    for name in each_runtime():
        try:
            adapter = load_adapter(name)
        except ImportError as error:  # noqa: PERF203 - each may break
            if name in _OURS:
                raise
            warn_unusable(name, str(error))
        else:
            yield adapter


@lru_cache(maxsize=64)
def warn_unusable(name: str, reason: str) -> None:
    """Say once that the runtime of another package cannot be loaded."""
    log.warning("the runtime %s cannot be loaded, and is left out: %s", name, reason)


def gang_kinds() -> tuple[str, ...]:
    """Return the kinds of gangs that runtimes bring, `none` first."""
    return tuple(dict.fromkeys(("none", *_kinds())))


def is_gang_kind(kind: str) -> bool:
    """Return whether a document may name it."""
    return kind == "none" or kind in _kinds()


def _kinds() -> Iterator[str]:
    for adapter in each_adapter():
        yield from adapter.capabilities.gangs
