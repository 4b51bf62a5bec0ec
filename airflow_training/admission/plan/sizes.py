"""How many devices the instances of a job have, and how many instances a plan's devices need. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.text import counted
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.pods import requested_amounts, training_container
from airflow_training.planning.sources.node_labels import count_of

__all__ = ["Sizes", "accelerators", "devices_of", "requested_cores", "sizes_of"]

_RANKS_PER_INSTANCE = ("nprocPerNode", "slotsPerWorker")
"""Parameters of frameworks whose instances start several ranks; a rank drives one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a job says about its size."""

    role: str
    """Whose replicas a plan sets."""
    training_roles: tuple[str, ...]
    """All that take ranks."""
    per_instance: int
    """Devices of one instance."""
    instances: int
    """Of all training roles, as the document has them."""
    fixed: int
    """Of the training roles that keep their size."""
    least: int
    """Replicas of `role`."""
    most: int | None
    warnings: tuple[str, ...] = ()

    def replicas(self, devices: int) -> dict[str, int]:
        """Return the size of the role that trains for a plan of so many devices."""
        return {self.role: devices // self.per_instance - self.fixed}

    def bound(
        self, given: Mapping[str, Any], *, applied: Collection[str], cluster_devices: int
    ) -> dict[str, Any]:
        """Return the user's constraints, and the numbers of devices that whole instances make.

        Raises InputError where the two contradict each other.
        """
        low, high = self.instances, self.instances
        if "replicas" in applied:
            low = self.fixed + self.least
            high = self.fixed + self.most if self.most is not None else 0
        low *= self.per_instance
        high *= self.per_instance
        asked = given.get("devices")
        if isinstance(asked, int) and not isinstance(asked, bool):
            self._check_pinned(asked, low, high)
            return dict(given)
        rule = dict(asked) if isinstance(asked, Mapping) else {}
        if not all(isinstance(rule.get(end, 1), int) for end in ("min", "max")):
            return dict(given)  # a mistake that the search explains
        low = max(low, rule.get("min", 1))
        high = min(high or rule.get("max", 0), rule.get("max", high))
        if high and low > high:
            raise self._contradiction(rule, low, high)
        merged: dict[str, Any] = dict(rule)
        merged |= {"min": low} if low > 1 else {}
        merged |= {"max": high} if high else {}
        broken = [n for n in range(1, cluster_devices + 1) if n % self.per_instance]
        if broken:
            merged["not"] = [*_listed(rule.get("not", ())), *broken]
        return {**given, "devices": merged} if merged else dict(given)

    def _check_pinned(self, asked: int, low: int, high: int) -> None:
        if asked % self.per_instance or asked < low or (high and asked > high):
            raise self._contradiction(asked, low, high)

    def _contradiction(self, asked: Any, low: int, high: int) -> InputError:
        room = f"{low} to {high}" if high > low else f"{low}" + ("" if high else " or more")
        return InputError(
            problems=[
                Problem(
                    code="conflict",
                    field="spec.plan.constraints.devices",
                    value=asked if isinstance(asked, int) else None,
                    message=f"the job can have {room} devices,"
                    f" {self.per_instance} in each instance of its training roles",
                    hint=f"change it, the replicas of '{self.role}', or its minReplicas and"
                    " maxReplicas",
                )
            ]
        )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def sizes_of(job: TrainingJob, resolved: ResolvedJob) -> Sizes:
    """Return the sizes of a job; raises InputError where its training roles have unequal devices."""
    training = [role for role in resolved.roles if role.rank_offset is not None]
    name = job.spec.plan.role or training[-1].name
    if name not in {role.name for role in training}:
        raise InputError(
            problems=[
                Problem(
                    code="not_allowed",
                    field="spec.plan.role",
                    value=name,
                    message=f"'{name}' takes no ranks: a plan cannot set its size",
                    allowed=[role.name for role in training],
                )
            ]
        )
    devices = {role.name: devices_of(role, resolved) for role in training}
    if len(set(devices.values())) > 1:
        raise InputError(
            problems=[
                Problem(
                    code="conflict",
                    field="spec.roles",
                    message="the training roles have unequal numbers of devices: "
                    + ", ".join(f"{role} {count}" for role, count in devices.items()),
                    hint="give every training role the same resources",
                )
            ]
        )
    role = resolved.role(name)
    others = sum(each.replicas for each in training if each.name != name)
    return Sizes(
        role=name,
        training_roles=tuple(each.name for each in training),
        per_instance=devices[name],
        instances=others + role.replicas,
        fixed=others,
        least=role.min_replicas if role.min_replicas is not None else (0 if others else 1),
        most=role.max_replicas,
        warnings=tuple(_warnings(training, resolved)),
    )


def accelerators(role: ResolvedRole) -> int:
    """Return how many accelerators one instance of a role asks for."""
    return count_of(instance_amounts(role))


def requested_cores(role: ResolvedRole) -> float:
    """Return how many processors one instance of a role asks for; one where it does not say."""
    return instance_amounts(role).get("cpu") or 1.0


def instance_amounts(role: ResolvedRole) -> Mapping[str, float]:
    """Return resource -> how much one instance of a role asks for, in cores, bytes and pieces."""
    container = training_container(role.template, None, name=role.container)
    return {name: parse_quantity(amount) for name, amount in requested_amounts(container).items()}


def devices_of(role: ResolvedRole, resolved: ResolvedJob) -> int:
    """Return the ranks of an instance, each of which drives one device."""
    ranks = [resolved.parameters.get(key) for key in _RANKS_PER_INSTANCE]
    said = next((count for count in ranks if isinstance(count, int)), None)
    return said or accelerators(role) or 1


def _warnings(training: list[ResolvedRole], resolved: ResolvedJob) -> list[str]:
    return [
        f"an instance of '{role.name}' has {counted(asked, 'device')} and starts"
        f" {counted(ranks, 'rank')}: set {' or '.join(_RANKS_PER_INSTANCE)}"
        for role in training
        if (asked := accelerators(role)) and asked != (ranks := devices_of(role, resolved))
    ]
