"""What a run's record (a ConfigMap) says: who owns it, which generation, its gang and its sizes. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.gangs import Gang, GangGroup, gang_of
from airflow_training.runtimes.kubernetes.network_policies import policy_text
from airflow_training.runtimes.kubernetes.quotas import needs_together
from airflow_training.runtimes.kubernetes.unfit import annotation_of

__all__ = ["NEVER_REMOVED", "RECORD_KEY", "RoleFacts", "RunFacts", "facts_of"]

RECORD_KEY = "run.json"
NEVER_REMOVED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFacts:
    replicas: int
    ports: Mapping[str, int] = field(default_factory=dict)
    awaits_port: bool = False
    """Another role waits until this one's first port answers."""
    network_policy: str = ""
    """The `spec` of its NetworkPolicy as JSON; "": it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything later calls need to know of a run that was prepared, by whomever."""

    uid: str
    job: str
    controller: str
    generation: int = 0
    removed: int = NEVER_REMOVED
    """The newest generation that removed the run; `NEVER_REMOVED`: none did."""
    removed_at: float | None = None
    """When that was done first, at the end of the job; None: not yet, or by an older version."""
    clean_pod_policy: str = "Running"
    ttl_seconds_after_finished: float | None = None
    deadline_seconds: float | None = None
    ssh: bool = False
    """Its instances reach each other by ssh, with keys of this run only."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The job's own, for its pods."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    gang: Gang = field(default_factory=Gang)
    roles: Mapping[str, RoleFacts] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    """What all of its pods ask for together, where that has to be there before the first is made."""
    unfit_nodes: str = ""
    """Which nodes are to be left, as its pods carry it; "": as is usual."""

    def bury(self, generation: int, *, now: float) -> RunFacts:
        """Write down that the run was removed under a generation: from then on nothing of it may be created.

        Whoever removes it again, later, does not move the time from which `ttlSecondsAfterFinished` counts, unless
        the run was opened anew meanwhile.
        """
        anew = self.removed == NEVER_REMOVED or self.generation > self.removed
        return replace(
            self,
            removed=max(self.generation, self.removed, generation),
            removed_at=now if anew else self.removed_at,
        )

    @property
    def numbered(self) -> bool:
        """Return whether pods are named by attempt too."""
        return self.gang.kind == "kueue"

    def to_json(self) -> str:
        return json.dumps(_camel(dataclasses.asdict(self)), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RunFacts:
        """Read a record; raises ValueError for one that is not ours."""
        try:
            known = _snake(json.loads(text))
            gang = dict(known.pop("gang", {}))
            groups = tuple(
                GangGroup(**{**group, "roles": tuple(group["roles"])})
                for group in gang.pop("groups", ())
            )
            roles = {name: RoleFacts(**role) for name, role in known.pop("roles", {}).items()}
            return cls(**known, gang=Gang(**gang, groups=groups), roles=roles)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the run's record cannot be read: {error}") from error

    def document(self, run: RunRef) -> dict[str, Any]:
        """Return the ConfigMap of the record."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": names.record_name(run),
                "namespace": run.namespace,
                "labels": names.run_labels(run),
                "annotations": {names.GENERATION: str(self.generation)},
            },
            "data": {RECORD_KEY: self.to_json()},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunFacts:
        """Read a ConfigMap; raises ValueError for one that is no record of ours."""
        return cls.from_json((document.get("data") or {}).get(RECORD_KEY, "null"))


def facts_of(run: RunRef, job: ResolvedJob) -> RunFacts:
    """Return the facts of a run as `prepare` writes them, under the run's generation."""
    awaited = {
        each.role for role in job.roles for each in role.depends_on if each.status == "PortOpen"
    }
    return RunFacts(
        uid=run.uid,
        job=run.job,
        controller=run.controller,
        generation=run.generation,
        clean_pod_policy=job.clean_pod_policy,
        ttl_seconds_after_finished=job.ttl_seconds_after_finished,
        deadline_seconds=job.active_deadline_seconds,
        ssh=any(
            names.SSH_KEYS in ((role.template.get("metadata") or {}).get("annotations") or {})
            for role in job.roles
        ),
        labels=job.labels,
        annotations=job.annotations,
        gang=gang_of(run, job),
        roles={
            role.name: RoleFacts(
                replicas=role.replicas,
                ports=role.ports,
                awaits_port=role.name in awaited,
                network_policy=policy_text(run, role),
            )
            for role in job.roles
        },
        needs=needs_together(job),
        unfit_nodes=annotation_of(job.scheduling.unfit_nodes),
    )


_VERBATIM = frozenset(
    {"labels", "annotations", "ports", "spread", "min_resources", "minResources", "needs"}
)
"""Mappings whose keys are not ours to spell."""
_BY_NAME = "roles"


def _camel(value: Any) -> Any:
    return _respelled(value, _to_camel)


def _snake(value: Any) -> Any:
    return _respelled(value, _to_snake)


def _respelled(value: Any, spell: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {
            spell(key): inner
            if key in _VERBATIM
            else {name: _respelled(each, spell) for name, each in inner.items()}
            if key == _BY_NAME and isinstance(inner, Mapping)
            else _respelled(inner, spell)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_respelled(each, spell) for each in value]
    return value


def _to_camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _to_snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
