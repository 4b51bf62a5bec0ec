"""Which addresses of targets are warned of, before a password is typed."""

from __future__ import annotations

import pytest

from airflow_training.cloud.targets import is_unencrypted


@pytest.mark.parametrize(
    ("url", "readable"),
    [
        ("http://airflow.example.com", True),
        ("http://10.0.0.7:8080", True),
        ("http://localhost.example.com", True),
        ("http://[2001:db8::1]:8080", True),
        ("https://airflow.example.com", False),
        ("http://localhost:8080/airflow", False),
        ("http://127.0.0.1:8080", False),
        ("http://[::1]:8080", False),
    ],
)
def test_plain_text_through_a_network_is_told(url, readable):
    assert is_unencrypted(url) is readable
