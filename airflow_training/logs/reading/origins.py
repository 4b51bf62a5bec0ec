"""Which rank wrote a file, as far as its name tells."""

from __future__ import annotations

import re

from airflow_training.logs.model import Origin

__all__ = ["origin_of"]

_ENDINGS = re.compile(r"(?:\.(?:log|txt|out|err|stdout|stderr|gz|zst|json|jsonl))+$")
_ROLE = re.compile(
    r"(?:^|[_.-])(?P<role>master|worker|chief|ps|evaluator|launcher|trainer|server)[_-]?(?P<index>\d{1,5})$"
)
_STARTER = re.compile(r"(?:^|[_.-])(?P<role>launcher|driver|scheduler|tracker|client)$")
_RANK = re.compile(r"(?:rank|[_.])[_-]?(?P<rank>\d{1,5})$", re.IGNORECASE)
_TORCHRUN = re.compile(r"/attempt_(?P<attempt>\d+)/(?P<rank>\d{1,5})/std(?:out|err)")


def origin_of(name: str) -> Origin:
    """Rank and role in a name such as `rank3.log`, `train_3.log`, `worker-3`, `launcher` or torchrun's `attempt_0/3/stderr.log`."""
    if (found := _TORCHRUN.search(name)) is not None:
        return Origin(file=name, attempt=int(found["attempt"]), rank=int(found["rank"]))
    stem = _ENDINGS.sub("", name.rstrip("/").rpartition("/")[2])
    if (found := _ROLE.search(stem)) is not None:
        index = int(found["index"])
        return Origin(file=name, role=found["role"], index=index, rank=index)
    if (found := _STARTER.search(stem)) is not None:
        return Origin(file=name, role=found["role"])
    found = _RANK.search(stem)
    return Origin(file=name, rank=None if found is None else int(found["rank"]))
