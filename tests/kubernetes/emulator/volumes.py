"""The volumes of a pod as folders; configuration is written as the kubelet does it: atomically."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.environment import data_of, field_value, resource_value
from tests.kubernetes.emulator.store import Store

Files = dict[str, tuple[bytes, int]]
"""Relative path -> content and mode."""

CONFIGURED = ("configMap", "secret", "downwardAPI", "projected")


class MountError(Exception):
    """A volume that cannot be set up (yet): the pod waits in ContainerCreating."""


def set_up(
    store: Store, pod: Mapping[str, Any], folder: Path, allocatable: Mapping[str, str]
) -> dict[str, Path]:
    """Make all volumes of a pod; returns volume name -> path."""
    found = {}
    for volume in pod["spec"].get("volumes") or ():
        name = volume["name"]
        if volume.get("hostPath"):
            path = Path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                raise MountError(f"hostPath type check failed: {path} is not there")
        elif volume.get("emptyDir") is not None:
            path = folder / name
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o777)
        elif any(volume.get(key) for key in CONFIGURED):
            path = folder / name
            path.mkdir(parents=True, exist_ok=True)
            publish(path, files_of(store, pod, volume, allocatable))
        else:
            raise MountError(f'MountVolume.SetUp failed for volume "{name}": not emulated')
        found[name] = path
    return found


def refresh(
    store: Store, pod: Mapping[str, Any], folder: Path, allocatable: Mapping[str, str]
) -> None:
    """Bring configuration volumes up to date; what vanished stays as it was."""
    for volume in pod["spec"].get("volumes") or ():
        if any(volume.get(key) for key in CONFIGURED) and (folder / volume["name"]).is_dir():
            try:
                files = files_of(store, pod, volume, allocatable)
            except MountError:
                continue
            publish(folder / volume["name"], files)


def files_of(
    store: Store,
    pod: Mapping[str, Any],
    volume: Mapping[str, Any],
    allocatable: Mapping[str, str],
) -> Files:
    for key in ("configMap", "secret", "downwardAPI"):
        if source := volume.get(key):
            return _source(store, pod, key, source, source.get("defaultMode", 0o644), allocatable)
    projected = volume["projected"]
    files: Files = {}
    for one in projected.get("sources") or ():
        for key, source in one.items():
            if source is not None and key != "serviceAccountToken":
                mode = projected.get("defaultMode", 0o644)
                files |= _source(store, pod, key, source, mode, allocatable)
    return files


def _source(
    store: Store,
    pod: Mapping[str, Any],
    key: str,
    source: Mapping[str, Any],
    mode: int,
    allocatable: Mapping[str, str],
) -> Files:
    if key == "downwardAPI":
        files: Files = {}
        for item in source.get("items") or ():
            if item.get("fieldRef"):
                text = field_value(pod, item["fieldRef"]["fieldPath"])
            else:
                text = resource_value(pod, "", item["resourceFieldRef"], allocatable)
            files[item["path"]] = (text.encode(), item.get("mode") or mode)
        return files
    kind = kinds.CONFIGMAPS if key == "configMap" else kinds.SECRETS
    name = source.get("secretName") or source.get("name") or ""
    data = data_of(store, kind, pod["metadata"]["namespace"], name)
    if data is None:
        if source.get("optional"):
            return {}
        raise MountError(f'{kind.kind.lower()} "{name}" not found')
    items = source.get("items")
    if not items:
        return {path: (content, mode) for path, content in data.items()}
    files = {}
    for item in items:
        if item["key"] not in data:
            if source.get("optional"):
                continue
            raise MountError(f"references non-existent config key: {item['key']}")
        files[item["path"]] = (data[item["key"]], item.get("mode") or mode)
    return files


def publish(folder: Path, files: Files) -> None:
    """Write a new set of files at once: readers see the old set or the new one."""
    current = folder / "..data"
    if current.is_symlink() and _same(folder / current.readlink(), files):
        return
    fresh = folder / f"..{uuid.uuid4().hex}"
    fresh.mkdir()
    for path, (content, mode) in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    old = folder / current.readlink() if current.is_symlink() else None
    link = folder / "..data_tmp"
    link.symlink_to(fresh.name)
    link.replace(current)
    visible = {path.partition("/")[0] for path in files}
    for name in visible:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for entry in list(folder.iterdir()):
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in visible:
            entry.unlink()
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _same(folder: Path, files: Files) -> bool:
    there = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    return there.keys() == files.keys() and all(
        there[name].read_bytes() == content for name, (content, _) in files.items()
    )
