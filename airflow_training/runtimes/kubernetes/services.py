"""Headless services: each instance has a stable name as soon as it exists, ready or not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.facts import RunFacts

__all__ = ["service_documents"]


def service_documents(run: RunRef, facts: RunFacts, *, record_uid: str) -> list[dict[str, Any]]:
    """Return one service for each role that has instances, owned by the run's record."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": names.service_name(run.prefix, role),
                "namespace": run.namespace,
                "labels": names.run_labels(run),
                "annotations": {names.GENERATION: str(run.generation)},
                "ownerReferences": [names.owner_reference(run, record_uid)],
            },
            "spec": {
                "clusterIP": "None",
                # peers look each other up before any of them is ready
                "publishNotReadyAddresses": True,
                "selector": names.role_selector(run, role),
                **_ports(about.ports),
            },
        }
        for role, about in facts.roles.items()
        if about.replicas
    ]


def _ports(named: Mapping[str, int]) -> dict[str, Any]:
    by_number = {number: name for name, number in reversed(list(named.items()))}
    ports = [
        {"name": name, "port": number, "targetPort": number}
        for name, number in named.items()
        if by_number[number] == name  # a service knows each number once
    ]
    return {"ports": ports} if ports else {}
