"""A service of this machine keeps what it is sent to itself, and says what is wrong with the settings."""

from __future__ import annotations

import os

import pytest

from airflow_training.cloud.local_service import LocalService
from airflow_training.cloud.service.admission import KeyAdmission
from airflow_training.cloud.service.serving import make_service
from airflow_training.errors import InputError


def test_what_is_sent_is_not_for_other_users(tmp_path, airflow_home):
    folder = tmp_path / "cloud" / "service"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    make_service(folder, KeyAdmission("key", account="ada"), same_machine=True)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_store_that_cannot_be_made_is_told_in_a_sentence(tmp_path, monkeypatch, capfd):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "file" / "home"))
    for name in [each for each in os.environ if each.startswith("AIRFLOW__")]:
        monkeypatch.delenv(name)
    service = LocalService()
    try:
        with pytest.raises(InputError, match="cannot be made: Not a directory"):
            service.url()
    finally:
        service.close()
    assert capfd.readouterr().err == ""
