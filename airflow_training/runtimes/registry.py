"""From the name of a runtime to its adapter, which is loaded once."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_training.builtin_runtimes import (
    HERE,
    adapter_at,
    each_adapter,
    load_adapter,
    runtime_names,
    warn_unusable,
)
from airflow_training.control.reason_facts import Reasons
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.runtimes.adapter import Adapter

__all__ = [
    "adapter_of",
    "adapter_of_job",
    "adapters",
    "every_reason",
    "explained_adapter",
    "keeps_size",
]


def adapter_of(name: str) -> Adapter:
    """Return the adapter called `name`; raises InputError (`not_supported`)."""
    try:
        adapter = load_adapter(name)
    except ImportError as error:
        raise InputError.of(
            code="not_supported",
            field="spec.runtime.name",
            value=name,
            message=f"the package that brings the runtime {name!r} cannot be loaded: {error}",
            hint="mend or reinstall that package, or name another runtime",
        ) from error
    if adapter is None:
        raise InputError.of(
            code="not_supported",
            field="spec.runtime.name",
            value=name,
            message=f"this version cannot run jobs on {name!r}",
            allowed=runtime_names(),
            hint=f"--runtime {HERE}",
        )
    if not isinstance(adapter, Adapter):
        raise TypeError(f"{adapter_at(name)} is no runtimes.adapter.Adapter")
    return adapter


def adapter_of_job(job: ResolvedJob) -> Adapter:
    """Return the adapter of a job's runtime, as it is for the job's connection; raises InputError."""
    return adapter_of(job.runtime).at(job.connection)


def adapters() -> Iterator[Adapter]:
    """Yield all that documents may name, ours first; each is loaded when it is its turn.

    Another package's that cannot be loaded is left out with a warning, said once.
    """
    for adapter in each_adapter():
        if isinstance(adapter, Adapter):
            yield adapter
        else:
            warn_unusable(
                getattr(adapter, "name", repr(adapter)), "it is no runtimes.adapter.Adapter"
            )


def every_reason() -> Reasons:
    """Reasons of all runtimes together; ours go before others'."""
    tables = [each.capabilities.reasons for each in adapters()]
    return {reason: facts for table in reversed(tables) for reason, facts in table.items()}


def explained_adapter() -> Adapter:
    """Return the one whose objects `explain` shows where nobody says: the first that makes any."""
    return next(each for each in adapters() if each.shows_objects)


def keeps_size(gang: str) -> bool:
    """Return whether a group of that kind stays as large as it began, by who brings the kind."""
    bring = (each.capabilities for each in adapters() if gang in each.capabilities.gangs)
    owner = next(bring, None)
    return owner is not None and gang in owner.fixed_size_gangs
