"""Whether a store would take and give checkpoints right now. Asked by the agent before a start.

`python -m airflow_training.checkpoints.reachable ROOT [INITIAL]` prints one line of JSON: `error`, empty where
all is well, or `unchecked` where this Python has no driver for the address: the script may have one.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys

from airflow_training.checkpoints.errors import BadCheckpoint, StoreRefused
from airflow_training.checkpoints.keys import MANIFESTS, save_of
from airflow_training.checkpoints.store import ObjectStore, open_store
from airflow_training.checkpoints.verifying import persistently

__all__ = ["find_problem", "main"]


def find_problem(root: str | ObjectStore, initial: str = "") -> str:
    """Return why checkpoints below `root` could not be kept or read, "" where they could.

    `initial`: the root of another training, from which this one starts; it is only read.

    Raises:
        StoreRefused: no driver for the address is installed.
    """
    store = open_store(root)
    try:
        _write(store)
        _read_newest(store)
        if initial:
            _read_newest(open_store(initial))
    except OSError as error:
        return str(error)
    return ""


def _write(store: ObjectStore) -> None:
    """Create a key as saves do, and read it back."""
    key, content = f"probes/{secrets.token_hex(8)}", secrets.token_bytes(16)
    try:
        store.create(key, content)
        if store.read(key) != content:
            raise OSError(f"{store.uri} does not show what was just written")
    finally:
        store.delete(key)


def _read_newest(store: ObjectStore) -> None:
    saves = [(save, key) for key, _ in store.list(MANIFESTS) if (save := save_of(key))]
    if saves:
        _, newest = max(saves)
        # swept meanwhile, or the only one that cannot be read: then an older one is taken
        with contextlib.suppress(FileNotFoundError, BadCheckpoint):
            persistently(store, newest, lambda: store.read(newest))


def main(arguments: list[str]) -> int:
    """Print what `find_problem` says; returns the exit code."""
    try:
        answer = {"error": find_problem(*arguments)}
    except StoreRefused as error:
        answer = {"unchecked": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
