"""Random pauses of storage clients, apart from the random numbers of a training.

A client that repeats a request waits for a random time, and most clients draw it from Python's own generator, of which a
training takes its shuffles and augmentations. One answer of 503 would change all that is drawn after it: a run that
was restored would not end as one that never stopped, nor would the same run twice.
"""

from __future__ import annotations

import random
import sys
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

__all__ = ["separate_jitter"]

_CLIENTS = frozenset({"adlfs", "aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs", "urllib3"})  # fmt: skip


def _second_random() -> ModuleType:
    """Return another copy of the module: with all that clients call of it, a state of its own, and new after a fork."""
    spec: Any = random.__spec__
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_RANDOM = _second_random()


def separate_jitter() -> None:
    """Have the storage clients that are imported draw their pauses from a copy of `random` of their own."""
    for name, module in tuple(sys.modules.items()):
        of_client = name.partition(".")[0] in _CLIENTS
        if of_client and getattr(module, "__dict__", {}).get("random") is random:
            vars(module)["random"] = _RANDOM
    standard = sys.modules.get("botocore.retries.standard")  # AWS_RETRY_MODE=standard or adaptive
    backoff = getattr(standard, "ExponentialBackoff", None)
    if backoff is not None:
        defaults = backoff.__init__.__defaults__ or ()
        backoff.__init__.__defaults__ = tuple(
            _RANDOM.random if value == random.random else value for value in defaults
        )
