"""Sends that take a known time on their way, as on a slow link: while the sender goes on, or while it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d


class DelayedWork:
    """A send that has not reached the network yet."""

    def __init__(self, posted: Future[Any]) -> None:
        self._posted = posted

    def wait(self) -> None:
        self._posted.result().wait()


@contextmanager
def delay_sends(seconds: float, *, blocking: bool) -> Iterator[None]:
    """Let each send of this process arrive so much later; `blocking`: the sender does nothing else meanwhile."""
    send = dist.isend

    def post(due: float, *args: Any, **options: Any) -> Any:
        time.sleep(max(0.0, due - time.monotonic()))
        return send(*args, **options)

    def isend(*args: Any, **options: Any) -> Any:
        due = time.monotonic() + seconds
        if blocking:
            return post(due, *args, **options)
        return DelayedWork(link.submit(post, due, *args, **options))

    # one thread: what is sent first arrives first, and several are on their way at once
    with ThreadPoolExecutor(1) as link:
        _set_send(isend)
        try:
            yield
        finally:
            _set_send(send)


def _set_send(function: Callable[..., Any]) -> None:
    """Put a function in the place of `isend`, where torch's schedules and stages look for it."""
    for module in (dist, distributed_c10d):
        module.isend = function  # type: ignore[attr-defined]
