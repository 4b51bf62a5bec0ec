"""Network policies of roles, as Kubernetes has them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.documents.resolved import ResolvedNetworkRule, ResolvedRole, RunRef
from airflow_training.runtimes.kubernetes import names

__all__ = ["policy_documents", "policy_text"]

_NAME_SERVERS = {
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}
"""Instances look each other up: without them no address means anything."""


def policy_text(run: RunRef, role: ResolvedRole) -> str:
    """Return the `spec` of the NetworkPolicy of a role as JSON; "" where it has none."""
    policy = role.network_policy
    if policy is None or (policy.ingress is None and policy.egress is None):
        return ""
    spec: dict[str, Any] = {"podSelector": {"matchLabels": names.role_selector(run, role.name)}}
    if policy.ingress is not None:
        spec["ingress"] = [_rule(run, each, "from") for each in policy.ingress]
    if policy.egress is not None:
        spec["egress"] = [*(_rule(run, each, "to") for each in policy.egress), _NAME_SERVERS]
    spec["policyTypes"] = [way.capitalize() for way in ("ingress", "egress") if way in spec]
    return json.dumps(spec, sort_keys=True)


def _rule(run: RunRef, rule: ResolvedNetworkRule, side: str) -> dict[str, Any]:
    ours: list[Mapping[str, Any]] = [
        {"podSelector": {"matchLabels": names.role_selector(run, role)}} for role in rule.roles
    ]
    peers = [*ours, *rule.peers]
    made: dict[str, Any] = {side: peers} if peers else {}
    if rule.ports:
        made["ports"] = [{"protocol": "TCP", "port": number} for number in rule.ports]
    return made


def policy_documents(
    run: RunRef, policies: Mapping[str, str], *, record_uid: str
) -> Sequence[dict[str, Any]]:
    """Return the NetworkPolicy of each role that has one, owned by the run's record. `policies`: role -> text."""
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {
                "name": names.network_policy_name(run, role),
                "namespace": run.namespace,
                "labels": names.run_labels(run),
                "annotations": {names.GENERATION: str(run.generation)},
                "ownerReferences": [names.owner_reference(run, record_uid)],
            },
            "spec": json.loads(text),
        }
        for role, text in policies.items()
        if text
    ]
