"""The sharing machine over HTTP, and what a node makes of answers that are none."""

from __future__ import annotations

import hashlib
import http.client
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_training.remote_data.errors import DataNotShared, SourceAway
from airflow_training.remote_data.roots import share
from airflow_training.remote_data.server import HttpSource, start_server


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"1234")
    return share([tmp_path])


@pytest.fixture
def server(shared):
    made = start_server(shared)
    yield made
    made.close()


def first_file(shared):
    root = shared.manifest.roots[0]
    return root, root.files[0]


def test_a_token_never_travels_in_the_clear_where_the_address_says_https(shared, server):
    root, file = first_file(shared)
    source = HttpSource(server.url.replace("http:", "https:"), server.token)
    with pytest.raises(SourceAway, match="https://"):
        source.chunk(root, file, 0)


@pytest.mark.parametrize("told", ["", "Bearer ", "Bearer wrong", "Basic x", "bearer \xe9"])
@pytest.mark.parametrize("route", ["/digests", "/chunk", "/", "/../etc/passwd"])
def test_without_the_token_nothing_is_told(server, told, route):
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    headers = {"Authorization": told} if told else {}
    connection.request("GET", f"{route}?root=data0&path=a.bin&index=0", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 401
    assert b"1234" not in answer.read()
    connection.close()


def test_a_small_file_comes_with_its_digest_once(shared, server):
    root, file = first_file(shared)
    source = HttpSource(server.url, server.token)
    digest = hashlib.sha256(b"1234").hexdigest()
    assert source.only_chunk(root, file) == ([digest], b"1234")
    assert source.only_chunk(root, file) == ([digest], b""), "who asks again may find it elsewhere"
    source._local.connection.close()


@pytest.mark.parametrize("index", ["", "-1", "1", "x", "0x0", "9" * 30, "9" * 5000])
def test_chunks_that_are_none_are_refused(shared, server, index):
    root, file = first_file(shared)
    source = HttpSource(server.url, server.token)
    with pytest.raises(DataNotShared):
        source._get("/chunk", root="data0", path="a.bin", index=index)
    assert source.chunk(root, file, 0) == b"1234"
    source._local.connection.close()


@pytest.fixture
def proxy():
    """Answers what a test sets, whatever is asked."""
    answer: list[Any] = [200, b""]
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, *args):
            """Say nothing."""

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}", answer, paths
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.mark.parametrize("status", [200, 502])
@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"{}", b"\xff", b"null", b'"x"'])
def test_what_a_proxy_says_is_waited_out(shared, proxy, status, content):
    url, answer, _ = proxy
    answer[:] = status, content
    source = HttpSource(url, "x")
    with pytest.raises(SourceAway):
        source.digests(*first_file(shared))
    with pytest.raises(SourceAway):
        source.only_chunk(*first_file(shared))
    source._local.connection.close()


def test_an_address_may_have_a_path(shared, proxy):
    root, file = first_file(shared)
    url, answer, paths = proxy
    answer[:] = 200, b"1234"
    source = HttpSource(f"{url}/runs/7/", "x")
    assert source.chunk(root, file, 0) == b"1234"
    source._local.connection.close()
    assert paths[0].startswith("/runs/7/chunk?")
