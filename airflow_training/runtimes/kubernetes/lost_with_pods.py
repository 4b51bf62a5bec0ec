"""Warnings: paths inside pods that no volume outlives, where a job keeps what must not be lost. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.shapes import mapping, mappings
from airflow_training.errors import Problem
from airflow_training.frameworks.ranks import ranked_roles

__all__ = ["lost_with_pods"]


def lost_with_pods(resolved: ResolvedJob) -> Iterator[Problem]:
    """Yield a warning for each address that is a path on no volume but the pod's own."""
    savers = ranked_roles(resolved) or [role.name for role in resolved.roles]
    uri = resolved.checkpoint.uri if resolved.checkpoint else ""
    yield from _lost(resolved, "spec.checkpoint.uri", uri, savers)
    yield from _lost(resolved, "spec.output.uri", resolved.output_uri, [resolved.output_role])


def _lost(resolved: ResolvedJob, field: str, uri: str, roles: Collection[str]) -> Iterator[Problem]:
    path = uri.removeprefix("file://")
    if not path or "://" in path or "{{" in path:
        return
    without = [
        role.name for role in resolved.roles if role.name in roles and not _outlives(role, path)
    ]
    if without:
        yield Problem(
            code="not_supported",
            field=field,
            value=uri,
            message=f"a path inside the pods of {', '.join(without)}, on no volume that outlives"
            " them: what is written there is lost with the pod",
            hint="name object storage (s3://, gs://, abfs://), or mount a PersistentVolumeClaim"
            " over it",
        )


def _outlives(role: ResolvedRole, path: str) -> bool:
    """Return whether a volume that is more than a folder of the pod is mounted over an absolute path."""
    pod = mapping(role.template.get("spec"))
    lasting = {each.get("name") for each in mappings(pod.get("volumes")) if "emptyDir" not in each}
    return any(
        PurePosixPath(path).is_relative_to(str(mount.get("mountPath")))
        for container in mappings(pod.get("containers"))
        if container.get("name") == role.container
        for mount in mappings(container.get("volumeMounts"))
        if mount.get("name") in lasting
    )
