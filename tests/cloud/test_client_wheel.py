"""The client that a service hands out: a wheel that installers take, the same bytes each time."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import subprocess
import sys
import zipfile

import pytest

from airflow_training import __version__
from airflow_training.cloud.service.client_wheel import client_wheel
from tests.waiting import PATIENCE


def test_anybody_may_have_the_client(service):
    http = service.http(key="nobody's")
    about = http.get("http://127.0.0.1/training/client").json()
    assert about["version"] == __version__
    wheel = http.get(about["url"]).content
    assert hashlib.sha256(wheel).hexdigest() == about["sha256"]
    assert about["install"] == f"pip install '{about['url']}#sha256={about['sha256']}'"
    assert http.get("http://127.0.0.1/training/client/other.whl").status_code == 404


def test_every_file_is_in_the_record_with_its_digest():
    archive = zipfile.ZipFile(io.BytesIO(client_wheel().data))
    [record] = [each for each in archive.namelist() if each.endswith("/RECORD")]
    rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
    assert rows.keys() == {*archive.namelist()}
    for name, (digest, size) in rows.items():
        data = archive.read(name)
        found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert name == record or (digest, size) == (f"sha256={found}", str(len(data)))
    names = {*archive.namelist()}
    assert {"airflow_training/cloud/__init__.py", "airflow_training/operators/__init__.py"} <= names
    assert not [each for each in names if "__pycache__" in each or "/web/pages/" in each]


def test_the_same_files_give_the_same_bytes():
    first = client_wheel()
    client_wheel.cache_clear()
    assert client_wheel().data == first.data


@pytest.mark.e2e
def test_an_installer_takes_it(tmp_path):
    wheel = client_wheel()
    path = tmp_path / wheel.name
    path.write_bytes(wheel.data)
    words = ["install", "--no-deps", "--no-index", "--target", str(tmp_path / "there"), str(path)]
    subprocess.run(
        [sys.executable, "-m", "pip", *words], check=True, capture_output=True, timeout=PATIENCE
    )
    done = subprocess.run(
        [sys.executable, "-c", "from airflow_training import cloud; print(cloud.__file__)"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "there")}, capture_output=True, text=True, check=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.stdout.startswith(str(tmp_path / "there"))
