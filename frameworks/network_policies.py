"""Network policies of roles: names of ports become numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from airflow_training.documents.resolved import (
    PREFLIGHT_PORT,
    ResolvedNetworkPolicy,
    ResolvedNetworkRule,
)
from airflow_training.documents.roles import NetworkRule, Role
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem

__all__ = ["port_problems", "resolve_policy"]

Ports = Mapping[str, Mapping[str, int]]
"""Role -> its ports by name."""


def resolve_policy(role: Role, ports: Ports) -> ResolvedNetworkPolicy | None:
    """Return the policy of a role with numbers for its ports; names that nobody has are left out."""
    policy = role.network_policy
    if policy is None:
        return None

    def resolved(
        rules: Sequence[NetworkRule] | None, *, own: bool
    ) -> tuple[ResolvedNetworkRule, ...] | None:
        if rules is None:
            return None
        return tuple(
            ResolvedNetworkRule(
                roles=tuple(rule.roles),
                peers=tuple(rule.peers),
                ports=_numbers(rule, _reached(role, rule, ports, own=own)),
            )
            for rule in rules
        )

    return ResolvedNetworkPolicy(
        ingress=resolved(policy.ingress, own=True), egress=resolved(policy.egress, own=False)
    )


def _reached(
    role: Role, rule: NetworkRule, ports: Ports, *, own: bool
) -> Sequence[Mapping[str, int]]:
    """Return the ports of those that a rule lets be reached: the role itself, or the roles it names."""
    return [ports[name] for name in ([role.name] if own else rule.roles) if name in ports]


def _numbers(rule: NetworkRule, reached: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    found = set()
    for port in rule.ports:
        if isinstance(port, int):
            found.add(port)
        else:
            found.update(named[port] for named in reached if port in named)
    if found and rule.roles:  # what instances measure before their commands start
        found.update(named[PREFLIGHT_PORT] for named in reached if PREFLIGHT_PORT in named)
    return tuple(sorted(found))


def port_problems(roles: Sequence[Role], ports: Ports) -> Iterator[Problem]:
    """Yield a problem for each name of a port that none of those has who are reached at it."""
    for i, role in enumerate(roles):
        policy = role.network_policy
        if policy is None:
            continue
        for way, rules in (("ingress", policy.ingress), ("egress", policy.egress)):
            for j, rule in enumerate(rules or ()):
                reached = _reached(role, rule, ports, own=way == "ingress")
                known = sorted({name for named in reached for name in named})
                for k, port in enumerate(rule.ports):
                    if isinstance(port, str) and port not in known:
                        whose = [role.name] if way == "ingress" else rule.roles
                        yield Problem(
                            code="bad_reference",
                            field=f"spec.roles[{i}].networkPolicy.{way}[{j}].ports[{k}]",
                            value=port,
                            message=f"no port is called '{port}' of {' or '.join(whose) or 'nobody: name roles'}",
                            allowed=known,
                            hint=did_you_mean(port, known)
                            or "a number, for ports that no role has",
                        )
