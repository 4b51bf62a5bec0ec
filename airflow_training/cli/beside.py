"""Doing one thing in a child while this process does another: for a `run` that starts quickly.

Checking a document needs other libraries than driving it. Importing both is most of the time that
`run` takes before the first instance starts, and two processors can do it at once.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from airflow_training.errors import InputError

__all__ = ["beside"]

T = TypeVar("T")


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Start `work` in a child; return what waits for its result and raises its InputError.

    The result must be picklable. Where a child is not possible, or comes to harm, the work is
    done in this process when the result is asked for.
    """
    if threading.active_count() > 1 or (os.cpu_count() or 1) < 2:
        return work  # a fork of threads may hang, and one processor gains nothing
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(_answer(work), pipe)
        os._exit(0)
    os.close(writer)

    def result() -> T:
        with os.fdopen(reader, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        try:
            refused, answer = pickle.loads(data)  # noqa: S301 - our own child's
        except (pickle.UnpicklingError, EOFError):
            return work()
        if refused:
            problems, path = answer
            raise InputError(problems=problems, path=path)
        found: T = answer
        return found

    return result


def _answer(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Return (refused, result or the parts of the InputError, which itself cannot be pickled)."""
    try:
        return False, work()
    except InputError as error:
        return True, (tuple(error.problems), error.path)
