"""Random pauses of storage clients, apart from the random numbers of a training.

A client that repeats a request waits for a random time, and most clients draw it from Python's own generator, of which a
training takes its shuffles and augmentations. One answer of 503 would change all that is drawn after it: a run that
was restored would not end as one that never stopped, nor would the same run twice.
"""

from __future__ import annotations

import random
import sys

__all__ = ["separate_jitter"]

_CLIENTS = frozenset({"adlfs", "aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs", "urllib3"})  # fmt: skip
_GENERATOR = random.Random()  # noqa: S311 - pauses, no secret


def separate_jitter() -> None:
    """Have the storage clients that are imported draw their pauses from a generator of their own."""
    for name, module in tuple(sys.modules.items()):
        of_client = name.partition(".")[0] in _CLIENTS
        if of_client and getattr(module, "__dict__", {}).get("random") is random:
            module.random = _GENERATOR  # type: ignore[attr-defined]  # what they call of the module, it has
    standard = sys.modules.get("botocore.retries.standard")  # AWS_RETRY_MODE=standard or adaptive
    backoff = getattr(standard, "ExponentialBackoff", None)
    if backoff is not None:
        defaults = backoff.__init__.__defaults__ or ()
        backoff.__init__.__defaults__ = tuple(
            _GENERATOR.random if value == random.random else value for value in defaults
        )
