"""ConfigMaps and Secrets around pods: files, the agent, large answers, ssh keys, tokens. Pure but for keys."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.kubernetes import inject, names

__all__ = [
    "agent_document",
    "answer_documents",
    "callback_secret_document",
    "files_document",
    "ssh_secret_document",
]


def files_document(
    run: RunRef, pod: str, data: Mapping[str, str], *, record_uid: str
) -> dict[str, Any]:
    """Return the ConfigMap with an instance's files (`pods.file_data`)."""
    made = _object(run, "ConfigMap", names.files_name(pod, data), record_uid=record_uid)
    return {**made, "immutable": True, "data": dict(data)}


def agent_document(
    run: RunRef, programs: Mapping[str, bytes], *, record_uid: str
) -> dict[str, Any]:
    """Return the ConfigMap with the agent's program and what else is started beside it, which all instances share."""
    name = names.agent_name(run, b"".join(programs.values()))
    made = _object(run, "ConfigMap", name, record_uid=record_uid)
    content = {key: base64.b64encode(program).decode() for key, program in programs.items()}
    return {**made, "immutable": True, "binaryData": content}


def answer_documents(
    run: RunRef, pod: str, pod_uid: str, answer: str, *, shard_bytes: int, record_uid: str
) -> list[dict[str, Any]]:
    """Return the ConfigMaps that carry a large release answer (ASCII JSON) to one pod, in order.

    Their keys hold the pod's uid, so that a later pod of the same name never reads them.
    """
    parts = [answer[at : at + shard_bytes] for at in range(0, len(answer), shard_bytes)]
    return [
        {
            **_object(run, "ConfigMap", names.answer_name(pod, i), record_uid=record_uid),
            "data": {f"{pod_uid}-{i}": part},
        }
        for i, part in enumerate(parts)
    ]


def callback_secret_document(run: RunRef, token: str, *, record_uid: str) -> dict[str, Any]:
    """Return the Secret with the token by which the run's instances report progress."""
    made = _object(run, "Secret", names.callback_secret_name(run), record_uid=record_uid)
    return {**made, "type": "Opaque", "data": {inject.TOKEN_KEY: _encoded(token)}}


def ssh_secret_document(run: RunRef, *, record_uid: str) -> dict[str, Any]:
    """Return a Secret with new ssh keys for one run: another one each time it is called.

    `id` and `id.pub` are the key of whoever connects, `host` that of every sshd of the run, and
    `authorized_keys` and `known_hosts` let each side accept the other and nobody else.
    """
    user, user_public = _key_pair()
    host, host_public = _key_pair()
    made = _object(run, "Secret", names.ssh_secret_name(run), record_uid=record_uid)
    content = {
        "id": user,
        "id.pub": f"{user_public}\n",
        "host": host,
        "authorized_keys": f"{user_public}\n",
        "known_hosts": f"* {host_public}\n",
    }
    encoded = {name: _encoded(text) for name, text in content.items()}
    return {**made, "type": "Opaque", "immutable": True, "data": encoded}


def _key_pair() -> tuple[str, str]:
    """Return (private, public) as OpenSSH writes them."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private.decode(), public.decode()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _object(run: RunRef, kind: str, name: str, *, record_uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": run.namespace,
            "labels": names.run_labels(run),
            "annotations": {names.GENERATION: str(run.generation)},
            "ownerReferences": [names.owner_reference(run, record_uid)],
        },
    }
