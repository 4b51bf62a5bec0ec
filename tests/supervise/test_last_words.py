"""The words of a headline where no signature explains a log: what the instance printed last, or that it printed nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_training.control.attempts import AttemptId
from airflow_training.control.root_cause import cause_of_reason, is_wordless, message_of
from airflow_training.control.usage import AttemptUsage
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk, Runtime
from airflow_training.supervise.followers.last_words import read_last_words

RUN = RunRef(uid="u", job="digits", namespace="default", controller="c", generation=1)
KEY = InstanceKey("worker", 0)


class Logs:
    """A runtime that has nothing but logs, by attempt; an error is raised, None is a log that was lost."""

    def __init__(self, written: Mapping[int, bytes | Exception | None]) -> None:
        self._written = written

    async def read_log(self, ref: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk:
        found = self._written[ref.attempt_id.attempt]
        if isinstance(found, Exception):
            raise found
        data = (found or b"")[cursor.offset : cursor.offset + limit]
        end = Cursor(offset=cursor.offset + len(data))
        lost = "its pod is gone" if found is None else ""
        return LogChunk(data=data, next=end, end=len(data) < limit, missing=lost)


def failure(attempt: int, **more: Any) -> Any:
    told = {"reason": "Error", "message": "", "at": 31.0, "exit_code": 1, **more}
    return cause_of_reason(role="worker", index=0, attempt=attempt, **told)


async def words(*written: bytes | Exception | None, epoch: int = 0) -> str:
    """Return the words of the last of these attempts, which began every 6 s."""
    usage = [
        AttemptUsage(
            key=KEY,
            attempt_id=AttemptId(epoch=epoch, job_attempt=number, attempt=number, generation=3),
            started_at=6.0 * number,
            finished_at=6.0 * number + 1,
            resources={},
            seconds=1.0,
        )
        for number in range(len(written))
    ]
    logs = cast("Runtime", Logs(dict(enumerate(written))))
    return await read_last_words(logs, RUN, failure(len(written) - 1), usage)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        pytest.param([b"step 1\nonly here\n\n"], "last line: only here", id="last-line"),
        pytest.param([b"old\n", b"new"], "last line: new", id="of-the-last-attempt"),
        pytest.param([b""], "it printed nothing", id="nothing"),
        pytest.param([b" \n"], "it printed nothing", id="blank"),
        pytest.param(
            [b"airflow-training: the command has ended\n"], "it printed nothing", id="only-ours"
        ),
        pytest.param([b""] * 5, "5 attempts in 25 s, each printed nothing", id="silent-loop"),
        pytest.param([b"hello\n", b""], "it printed nothing", id="silent-only-now"),
        pytest.param([None], "its log could not be read: its pod is gone", id="lost-is-not-empty"),
        pytest.param(
            [RuntimeUnavailable("may not get pods/log")],
            "its log could not be read: may not get pods/log",
            id="refused",
        ),
        pytest.param([None, b""], "its log could not be read: its pod is gone", id="one-was-lost"),
    ],
)
async def test_what_an_instance_printed_last_is_told(written, told):
    assert await words(*written) == told


async def test_an_attempt_that_nobody_counted_has_no_words():
    assert await read_last_words(cast("Runtime", Logs({})), RUN, failure(0), []) == ""


@pytest.mark.parametrize(
    ("more", "wordless"),
    [
        pytest.param({}, True, id="exit-code"),
        pytest.param({"message": "exit code 1"}, True, id="exit-code-in-words"),
        pytest.param({"exit_code": 137}, True, id="signal-of-a-child"),
        pytest.param({"exit_code": None, "signal": 9}, True, id="signal"),
        pytest.param({"reason": "OOMKilled", "signal": 9}, False, id="signal-of-a-reason"),
        pytest.param({"exit_code": None, "reason": "NodeLost"}, False, id="reason"),
        pytest.param({"message": "pyhton: command not found"}, False, id="words-of-its-own"),
    ],
)
def test_words_are_looked_for_only_where_there_are_none(more, wordless):
    assert is_wordless(failure(0, **more)) is wordless


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        pytest.param(
            "maxRestarts 4 is used up",
            "worker-0: exit code 1: last line: code 2; maxRestarts 4 is used up",
            id="of-the-job",
        ),
        pytest.param(
            "worker-0: exit code 1; that is permanent in the table custom",
            "worker-0: exit code 1: last line: code 2; that is permanent in the table custom",
            id="of-the-same-instance",
        ),
        pytest.param(
            "worker-0: exit code 1 (python-exception): bad; no other try helps",
            "worker-0: exit code 1 (python-exception): bad; no other try helps",
            id="with-words-of-its-own",
        ),
    ],
)
def test_the_words_stand_before_the_limit(limit, told):
    assert message_of(replace(failure(0), evidence="last line: code 2"), limit) == told
