"""What is relied on where something of a file system does not work."""

from __future__ import annotations

from airflow_training.remote_data import guard


def test_leases_are_not_relied_on_where_nothing_would_tell_of_a_read_after_their_end(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(guard, "_has_times", lambda path: False)
    assert not guard.probe_guard(tmp_path, files=1).leases
    assert list(tmp_path.iterdir()) == []
