"""Where pods of a test report to, and what they said."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from airflow_training.documents.instances import InstanceKey

__all__ = ["Reports"]


class Reports(ThreadingHTTPServer):
    """A server that keeps the records of environments, as the store behind the route does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.records: defaultdict[str, defaultdict[InstanceKey, list[Any]]]
        self.records = defaultdict(lambda: defaultdict(list))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def of(
        self, run_uid: str, _awaited: Collection[InstanceKey]
    ) -> Mapping[InstanceKey, Sequence[Mapping[str, Any]]]:
        """Return what the instances of a run said, oldest first."""
        return {key: tuple(lines) for key, lines in self.records[run_uid].items()}

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Reports

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        run_uid = self.path.split("/")[2]
        key = InstanceKey(said["role"], int(said["index"]))
        self.server.records[run_uid][key].append(json.loads(said["environment"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass
