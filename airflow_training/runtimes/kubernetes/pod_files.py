"""The files of an instance, as its pod mounts them from ConfigMaps. Pure."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Mapping
from typing import Any

from airflow_training.runtimes.kubernetes import inject, names
from airflow_training.runtimes.kubernetes.facts import RunFacts
from airflow_training.runtimes.port import InstanceSpec

__all__ = [
    "ANSWER_BYTES",
    "SHARD_BYTES",
    "answer_shards",
    "file_data",
    "file_mounts",
    "files_annotation",
    "files_volume",
    "live_modes",
    "replaced_volumes",
]

ANSWER_BYTES = 64 * 1024
"""A larger answer does not go into the annotation."""
SHARD_BYTES = 512 * 1024
_BYTES_PER_ADDRESS = 200


def file_data(spec: InstanceSpec) -> dict[str, str]:
    """Return the data of the instance's own ConfigMap: key -> content; empty where it needs none."""
    return {
        **{_key(spec.files, path): text for path, text in _fixed(spec).items()},
        **{f"live-{_key(spec.live_files, p)}": text for p, text in spec.live_files.items()},
    }


def answer_shards(facts: RunFacts) -> int:
    """Return for how many parts of a release answer a held pod has a place; 0: it is never large.

    Twice what all addresses of now need, so that a job may grow while an instance waits.
    """
    expected = sum(role.replicas for role in facts.roles.values()) * _BYTES_PER_ADDRESS
    return 0 if 2 * expected <= ANSWER_BYTES else math.ceil(2 * expected / SHARD_BYTES)


def files_volume(pod: str, spec: InstanceSpec) -> dict[str, Any] | None:
    """Return the volume with the data of the instance's own ConfigMap; None where it has none."""
    data = file_data(spec)
    if not data:
        return None
    executable = {_key(spec.files, path): path in spec.executables for path in _fixed(spec)}
    return {
        "name": names.FILES_VOLUME,
        "configMap": {
            "name": names.files_name(pod, data),
            "items": [
                {"key": key, "path": key, "mode": 0o555 if runs else 0o444}
                for key, runs in {**executable, **live_modes(spec)}.items()
            ],
        },
    }


def file_mounts(spec: InstanceSpec) -> list[dict[str, Any]]:
    """Return where the training container has them; the live ones are where the hold writes them."""
    return [
        *(
            {
                "name": names.FILES_VOLUME,
                "mountPath": _absolute(path),
                "subPath": _key(spec.files, path),
                "readOnly": True,
            }
            for path in _fixed(spec)
        ),
        *(
            inject.live_mount(f"live-{_key(spec.live_files, path)}", _absolute(path))
            for path in spec.live_files
        ),
    ]


def files_annotation(files: Mapping[str, str]) -> dict[str, str]:
    """Return the annotation from which the agent writes these files (path -> content); empty where there are none."""
    told = {_absolute(path): files[path] for path in sorted(files)}
    return {names.FILES: json.dumps(told)} if told else {}


def replaced_volumes(spec: InstanceSpec) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return (volume, mount) of the folders in which files may be replaced, by whichever user the container has."""
    folders = sorted({posixpath.dirname(_absolute(path)) for path in spec.replaced})
    return [
        ({"name": name, "emptyDir": {}}, {"name": name, "mountPath": folder})
        for number, folder in enumerate(folders)
        for name in [f"airflow-training-replaced-{number}"]
    ]


def live_modes(spec: InstanceSpec) -> dict[str, bool]:
    """Return key -> whether it is executable, of the files that are written once addresses are known."""
    return {
        f"live-{_key(spec.live_files, path)}": path in spec.executables for path in spec.live_files
    }


def _fixed(spec: InstanceSpec) -> dict[str, str]:
    """Return the files that stay as they are: what is mounted of a ConfigMap cannot be replaced."""
    return {path: text for path, text in spec.files.items() if path not in spec.replaced}


def _key(files: Mapping[str, str], path: str) -> str:
    return f"file-{sorted(files).index(path)}"


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"{inject.TRAINING_FOLDER}/{path}"
