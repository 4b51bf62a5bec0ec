"""Frameworks from remote addresses, against a real HTTP server: what is fetched, what never is."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_training.errors import InputError
from airflow_training.frameworks import remote
from airflow_training.frameworks.registry import load_reference
from airflow_training.frameworks.remote import MAX_BYTES, cache_folder
from airflow_training.settings import load_settings
from tests.frameworks.samples import codes

MINE = b"""
apiVersion: airflow-training/v1
kind: Framework
metadata: {name: mine}
spec: {anyRole: true}
"""
REF = ("bad_reference", "spec.framework.ref")
DIGEST = ("bad_reference", "spec.framework.digest")


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Server:
    """Serves `pages` (path -> bytes, or where it redirects to) and remembers what was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | str] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                page = outer.pages.get(self.path)
                self.send_response(404 if page is None else 302 if isinstance(page, str) else 200)
                if isinstance(page, str):
                    self.send_header("Location", page)
                self.end_headers()
                if isinstance(page, bytes):
                    with contextlib.suppress(OSError):  # the client had enough
                        self.wfile.write(page)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server(airflow_home, monkeypatch) -> Iterator[Server]:
    with Server() as server:
        server.pages["/team/mine.yaml"] = MINE
        monkeypatch.setenv("AIRFLOW__TRAINING__REMOTE_FRAMEWORK_PREFIXES", f"{server.url}/team")
        yield server


def load(ref: str, *, digest: str | None = None, fetch: bool = True):
    return load_reference(name="mine", ref=ref, digest=digest, base_dir="", fetch=fetch)


def refused(ref: str, **more: Any) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        load(ref, **more)
    return codes(caught.value.problems)


@pytest.mark.e2e
def test_fetched_once_then_taken_from_the_cache(server):
    ref = f"{server.url}/team/mine.yaml"
    assert load(ref, digest=digest_of(MINE)).framework.name == "mine"
    assert load(ref, digest=digest_of(MINE)).framework.name == "mine"
    assert server.asked == ["/team/mine.yaml"]


@pytest.mark.e2e
def test_nothing_is_fetched_unless_asked_for(server):
    ref = f"{server.url}/team/mine.yaml"
    assert refused(ref, digest=digest_of(MINE), fetch=False) == [REF]
    assert server.asked == []
    load(ref, digest=digest_of(MINE))
    assert load(ref, digest=digest_of(MINE), fetch=False).framework.name == "mine"


@pytest.mark.e2e
def test_a_damaged_cache_is_not_believed(server):
    ref = f"{server.url}/team/mine.yaml"
    load(ref, digest=digest_of(MINE))
    (kept,) = cache_folder().iterdir()
    kept.write_bytes(MINE.replace(b"mine", b"evil"))
    assert refused(ref, digest=digest_of(MINE), fetch=False) == [REF]
    assert load(ref, digest=digest_of(MINE)).framework.name == "mine"


@pytest.mark.e2e
def test_a_remote_framework_needs_a_digest(server):
    assert refused(f"{server.url}/team/mine.yaml") == [DIGEST]
    assert server.asked == []


@pytest.mark.e2e
def test_another_text_than_the_digest_says_is_neither_used_nor_kept(server):
    ref = f"{server.url}/team/mine.yaml"
    assert refused(ref, digest=digest_of(b"other")) == [
        ("digest_mismatch", "spec.framework.digest")
    ]
    assert not cache_folder().exists()


@pytest.mark.e2e
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/other/mine.yaml", id="beside-the-prefix"),
        pytest.param("/team-evil/mine.yaml", id="prefix-of-a-name-only"),
        pytest.param("/team/../other/mine.yaml", id="dots"),
        pytest.param("/team/%2e%2e/other/mine.yaml", id="encoded-dots"),
        pytest.param("/team/..%2fother/mine.yaml", id="encoded-slash"),
    ],
)
def test_an_address_outside_the_prefixes_is_not_asked(server, path):
    server.pages[path] = MINE
    assert refused(server.url + path, digest=digest_of(MINE)) == [REF]
    assert server.asked == []


@pytest.mark.e2e
@pytest.mark.parametrize(
    "ref",
    [
        "http://127.0.0.1:{port}@evil.example/team/mine.yaml",
        "http://127.0.0.1.evil.example/team/mine.yaml",
        "https://127.0.0.1:{port}/team/mine.yaml",
        "s3://bucket/team/mine.yaml",
        "simplecache::http://127.0.0.1:{port}/team/mine.yaml",
    ],
)
def test_another_host_or_scheme_is_not_asked(server, ref):
    ref = ref.format(port=server.url.rpartition(":")[2])
    with pytest.raises(InputError, match="no allowed prefix"):
        load(ref, digest=digest_of(MINE))
    assert server.asked == []


@pytest.mark.e2e
def test_without_prefixes_nothing_is_allowed(server, monkeypatch):
    monkeypatch.delenv("AIRFLOW__TRAINING__REMOTE_FRAMEWORK_PREFIXES")
    assert refused(f"{server.url}/team/mine.yaml", digest=digest_of(MINE)) == [REF]


@pytest.mark.e2e
def test_a_redirect_below_the_prefix_is_followed(server):
    server.pages["/team/latest.yaml"] = "/team/mine.yaml"
    assert load(f"{server.url}/team/latest.yaml", digest=digest_of(MINE)).framework.name == "mine"


@pytest.mark.e2e
def test_a_redirect_to_another_host_is_refused_even_if_both_are_allowed(server, monkeypatch):
    with Server() as other:
        both = f"{server.url}/team,{other.url}/team"
        monkeypatch.setenv("AIRFLOW__TRAINING__REMOTE_FRAMEWORK_PREFIXES", both)
        other.pages["/team/mine.yaml"] = MINE
        server.pages["/team/away.yaml"] = f"{other.url}/team/mine.yaml"
        assert refused(f"{server.url}/team/away.yaml", digest=digest_of(MINE)) == [REF]
        assert other.asked == []


@pytest.mark.e2e
def test_a_redirect_out_of_the_prefix_is_refused(server):
    server.pages["/secret.yaml"] = MINE
    server.pages["/team/away.yaml"] = "/secret.yaml"
    assert refused(f"{server.url}/team/away.yaml", digest=digest_of(MINE)) == [REF]
    assert server.asked == ["/team/away.yaml"]


@pytest.mark.e2e
def test_a_redirect_without_end_is_refused(server):
    server.pages["/team/round.yaml"] = "/team/round.yaml"
    assert refused(f"{server.url}/team/round.yaml", digest=digest_of(MINE)) == [REF]
    assert len(server.asked) < 10


@pytest.mark.e2e
def test_more_than_a_mebibyte_is_refused(server):
    large = MINE + b"#" * MAX_BYTES
    server.pages["/team/large.yaml"] = large
    assert refused(f"{server.url}/team/large.yaml", digest=digest_of(large)) == [REF]


@pytest.mark.e2e
def test_an_answer_without_end_is_cut_off(server):
    # far more than fits: read to its end it would take a while, and much memory
    server.pages["/team/endless.yaml"] = b"#" * (64 * MAX_BYTES)
    assert refused(f"{server.url}/team/endless.yaml", digest=digest_of(b"")) == [REF]


@pytest.mark.e2e
@pytest.mark.parametrize("path", ["/team/none.yaml", "/team/"])
def test_what_is_not_there_is_a_bad_reference(server, path):
    assert refused(server.url + path, digest=digest_of(MINE)) == [REF]


@pytest.mark.e2e
def test_a_server_that_sends_a_little_at_a_time_is_given_up(airflow_home, monkeypatch):
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("AIRFLOW__TRAINING__REMOTE_FRAMEWORK_PREFIXES", address)
        monkeypatch.setattr(remote, "_TOTAL_SECONDS", 0.5)

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not ended.wait(0.05):
                    connection.sendall(b"X-More: 1\r\n")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            with pytest.raises(InputError, match=r"was not fetched within 0\.5 seconds"):
                load(f"{address}/mine.yaml", digest="sha256:" + "0" * 64)
        finally:
            ended.set()
            thread.join()


@pytest.mark.e2e
def test_a_server_that_is_gone_is_a_bad_reference(airflow_home, monkeypatch):
    with Server() as server:
        url = server.url
    monkeypatch.setenv("AIRFLOW__TRAINING__REMOTE_FRAMEWORK_PREFIXES", url)
    assert refused(f"{url}/mine.yaml", digest=digest_of(MINE)) == [REF]


def test_object_storage_through_fsspec(airflow_home, monkeypatch):
    import fsspec

    monkeypatch.setenv("AIRFLOW__TRAINING__REMOTE_FRAMEWORK_PREFIXES", "memory://team")
    with fsspec.open("memory://team/mine.yaml", "wb") as file:
        file.write(MINE)
    assert load("memory://team/mine.yaml", digest=digest_of(MINE)).framework.name == "mine"
    assert refused("memory://team/none.yaml", digest=digest_of(b"x")) == [REF]


def test_a_store_whose_package_is_missing_says_so(airflow_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__REMOTE_FRAMEWORK_PREFIXES", "nosuchstore://team")
    with pytest.raises(InputError) as caught:
        load("nosuchstore://team/mine.yaml", digest=digest_of(MINE))
    assert "nosuchstore" in str(caught.value)


@pytest.mark.e2e
def test_a_remote_framework_brings_no_hook(server):
    hooked = MINE.replace(b"{anyRole: true}", b"{anyRole: true, hook: 'os:abort'}")
    server.pages["/team/hook.yaml"] = hooked
    assert refused(f"{server.url}/team/hook.yaml", digest=digest_of(hooked)) == [REF]


def test_settings_name_no_prefix_by_default(airflow_home):
    assert load_settings().remote_framework_prefixes == ()
