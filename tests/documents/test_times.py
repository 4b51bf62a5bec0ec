"""ISO 8601 times read alike by every Python."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from airflow_training.documents.times import parse_time

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01T12:00:00.5Z", NOON + timedelta(seconds=0.5)),
        ("2026-01-01T12:00:00.123456789+00:00", NOON + timedelta(microseconds=123456)),
        ("2026-01-01", datetime(2026, 1, 1)),  # noqa: DTZ001 - it names no zone
    ],
)
def test_a_time_is_read(text, says):
    assert parse_time(text) == says


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match=r"isoformat|month"):
        parse_time(text)
