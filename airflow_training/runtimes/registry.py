"""From the name of a runtime to its adapter, which is loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module

from airflow_training.builtin_runtimes import HERE, adapter_at, runtime_names
from airflow_training.control.reason_facts import Reasons
from airflow_training.errors import InputError
from airflow_training.runtimes.adapter import Adapter

__all__ = ["adapter_of", "adapters", "every_reason"]


@lru_cache(maxsize=64)
def adapter_of(name: str) -> Adapter:
    """Return the adapter called `name`; raises InputError (`not_supported`)."""
    module, _, attribute = adapter_at(name).partition(":")
    if not module:
        raise InputError.of(
            code="not_supported",
            field="spec.runtime.name",
            value=name,
            message=f"this version cannot run jobs on {name!r}",
            allowed=runtime_names(),
            hint=f"--runtime {HERE}",
        )
    adapter = getattr(import_module(module), attribute)
    if not isinstance(adapter, Adapter):
        raise TypeError(f"{module}:{attribute} is no runtimes.adapter.Adapter")
    return adapter


def adapters() -> Iterator[Adapter]:
    """Yield all that documents may name."""
    return map(adapter_of, runtime_names())


def every_reason() -> Reasons:
    """Return what the reasons of all of them say; ours go before others'."""
    tables = [each.capabilities.reasons for each in adapters()]
    return {reason: facts for table in reversed(tables) for reason, facts in table.items()}
