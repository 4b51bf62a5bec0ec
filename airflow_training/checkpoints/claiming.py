"""How a process becomes the coordinator of a new generation, so that no older one commits from then on.

First a claim, whose key only this process can write; then the base is chosen; then the fence says which. A save of
an older generation that was acknowledged had seen no claim, so its manifest was there before the claim, and the base
is chosen among all that were. This needs a store that lists what was written, and nothing more.
"""

from __future__ import annotations

import secrets
import time

from airflow_training.checkpoints.errors import BadCheckpoint, CheckpointError, StaleGeneration
from airflow_training.checkpoints.keys import CLAIMS, claim_key, claimed_generation
from airflow_training.checkpoints.records import Claim
from airflow_training.checkpoints.store import ObjectStore
from airflow_training.checkpoints.survey import generations

__all__ = ["claim"]

_TRIES = 20


def claim(store: ObjectStore, *, epoch: int, order: int) -> Claim:
    """Return the claim of a generation that is newer than all others, and this process's alone.

    Raises:
        StaleGeneration: where a process of a later recovery decision came first.
        CheckpointError: where others came first too many times in a row.
    """
    for attempt in range(_TRIES):
        _refuse_if_superseded(store, epoch=epoch, order=order)
        mine = Claim(
            generation=max(generations(store), default=0) + 1,
            epoch=epoch,
            order=order,
            owner=secrets.token_hex(8),
        )
        key = claim_key(mine.generation, mine.owner)
        store.create(key, mine.to_bytes())
        rivals = [
            other
            for other, _ in store.list(CLAIMS)
            if other != key and (claimed_generation(other) or 0) >= mine.generation
        ]
        if not rivals:
            return mine
        time.sleep(secrets.randbelow(50 * (attempt + 1)) / 1000)  # apart from who came as well
    raise CheckpointError(f"{store.uri}: too many processes start at once for one to be the first")


def _refuse_if_superseded(store: ObjectStore, *, epoch: int, order: int) -> None:
    for key, _ in store.list(CLAIMS):
        try:
            other = Claim.from_bytes(store.read(key), what=key)
        except (BadCheckpoint, FileNotFoundError):
            continue  # its number still counts
        if (other.epoch, other.order) > (epoch, order):
            raise StaleGeneration(
                f"{store.uri}: recovery {other.order} of epoch {other.epoch} has taken over;"
                f" this process belongs to recovery {order} of epoch {epoch}"
            )
