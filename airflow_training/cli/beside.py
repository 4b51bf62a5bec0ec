"""Doing one thing in a child while this process does another: for a `run` that starts quickly.

Understanding a command line and a document needs other libraries than driving a job. Importing
both is most of the time before the first instance starts, and two processors can do it at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from airflow_training.errors import InputError

__all__ = ["beside"]

T = TypeVar("T")


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Start `work` in a child; return what waits for its result.

    The result must be picklable; InputError and SystemExit come back as themselves. Where a child
    is not possible, or comes to harm, the work is done in this process when it is asked for.
    """
    if threading.active_count() > 1 or (os.cpu_count() or 1) < 2:
        return work  # a fork of threads may hang, and one processor gains nothing
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            gc.disable()  # too short a life to be worth it
            answer = pickle.dumps(_outcome(work))
            sys.stdout.flush()
            sys.stderr.flush()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer)
        os._exit(0)
    os.close(writer)

    def result() -> T:
        with os.fdopen(reader, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        try:
            outcome, value = pickle.loads(data)  # noqa: S301 - our own child's
        except (pickle.UnpicklingError, EOFError):
            return work()
        if outcome is _Outcome.REFUSED:
            problems, path = value
            raise InputError(problems=problems, path=path)
        if outcome is _Outcome.EXIT:
            raise SystemExit(value)
        done: T = value
        return done

    return result


class _Outcome(Enum):
    DONE = "done"
    REFUSED = "refused"
    EXIT = "exit"


def _outcome(work: Callable[[], Any]) -> tuple[_Outcome, Any]:
    """Return what came of the work, in a form that can be pickled."""
    try:
        return _Outcome.DONE, work()
    except InputError as error:
        return _Outcome.REFUSED, (tuple(error.problems), error.path)
    except SystemExit as end:
        return _Outcome.EXIT, end.code
