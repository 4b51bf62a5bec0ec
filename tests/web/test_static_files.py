"""The built files are served to everybody, and nothing else of the machine is."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.web import static_files


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(static_files, "FOLDER", tmp_path / "static")
    (tmp_path / "static").mkdir()
    (tmp_path / "secret.js").write_text("secret")
    (tmp_path / "static" / "Training.AB12CD34.js").write_text("pages")
    (tmp_path / "static" / "manifest.json").write_text("{}")
    (tmp_path / "static" / "notes.txt").write_text("x")
    return tmp_path / "static"


def test_a_name_with_a_digest_is_kept_for_ever(client):
    answer = client.get("/static/Training.AB12CD34.js", headers={"user": ""})
    assert (answer.status_code, answer.text) == (200, "pages")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")


def test_a_name_without_one_is_asked_for_again(client):
    assert client.get("/static/manifest.json").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["..%2fsecret.js", "../secret.js", "%2e%2e/secret.js", "..\\secret.js", "gone.js",
             "notes.txt", ".hidden.js", "a%00.js", ""]
)  # fmt: skip
def test_nothing_else_is_served(client, name: str):
    assert client.get(f"/static/{name}").status_code == 404
