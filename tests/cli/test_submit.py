"""`submit` before anything is sent."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from tests.cli.conftest import job_file


def test_files_that_the_server_lacks_are_named_and_refused(typed):
    """Before anything is sent: no server is there to be asked."""
    Path("train.py").touch()
    Path("data").mkdir()
    Path("data/config.yaml").touch()
    path = job_file(
        Path("job.yaml"), command=["python", "train.py", "--config", "data/config.yaml", "missing.py"]
    )  # fmt: skip
    done = typed("submit", str(path), "--server", "http://127.0.0.1:9")
    assert done.code == 2
    assert "spec.command[1]" in done.stderr
    assert "the server does not have the file 'train.py'" in done.stderr
    assert "the server does not have the file 'data/config.yaml'" in done.stderr
    assert "missing.py" not in done.stderr


class OpenServer(BaseHTTPRequestHandler):
    """An Airflow without logins, where nobody has a run: it gives a token to everybody who asks."""

    def do_GET(self) -> None:
        if self.path == "/auth/token":
            self._answer(201, {"access_token": "everybody"})
        elif self.headers["Authorization"] == "Bearer everybody":
            self._answer(404, {"detail": "there is no such run"})
        else:
            self._answer(401, {"detail": "log in"})

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the test reads what the command says."""


def test_a_server_without_logins_is_asked_for_its_token(typed, monkeypatch):
    for name in ("AIRFLOW_TOKEN", "AIRFLOW_API_TOKEN", "AIRFLOW_CLI_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), OpenServer) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            done = typed("status", "mine", "--server", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
    assert done.code == 2
    assert "there is no such run" in done.stderr
