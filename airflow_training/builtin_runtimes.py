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
    "each_runtime",
    "gang_kinds",
    "is_gang_kind",
    "is_runtime",
    "load_adapter",
    "runtime_names",
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
    """Return the adapter called `name`, None for no such runtime; `runtimes.registry` knows its type."""
    module, _, attribute = adapter_at(name).partition(":")
    return getattr(import_module(module), attribute) if module else None


def gang_kinds() -> tuple[str, ...]:
    """Return the kinds of gangs that runtimes bring, `none` first."""
    return tuple(dict.fromkeys(("none", *_kinds())))


def is_gang_kind(kind: str) -> bool:
    """Return whether a document may name it."""
    return kind == "none" or kind in _kinds()


def _kinds() -> Iterator[str]:
    for name in each_runtime():
        try:
            adapter = load_adapter(name)
        except ImportError as error:  # another package's: jobs that do not name it need it not
            log.warning("the runtime %s cannot be loaded: %s", name, error)
            continue
        yield from adapter.capabilities.gangs
