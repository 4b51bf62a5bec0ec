"""The text of a framework at an address: what may be fetched, how, and the cache by digest.

A remote address needs a digest and an allow-listed prefix. Nothing is fetched unless the caller
says so; what was fetched once is kept under its digest and never fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from airflow_training.errors import InputError
from airflow_training.settings import Settings, airflow_home

__all__ = ["MAX_BYTES", "cache_folder", "is_remote", "local_text", "text_of"]

MAX_BYTES = 1024 * 1024
_MAX_REDIRECTS = 5
_TIMEOUT_SECONDS = 20.0
"""Of each step of a fetch."""
_TOTAL_SECONDS = 60.0
"""Of all of it, however little at a time a server sends."""
_REF = "spec.framework.ref"
_DIGEST = "spec.framework.digest"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def is_remote(ref: str) -> bool:
    """Return whether an address leads away from this machine's disk."""
    scheme = urlsplit(ref).scheme
    return "://" in ref and scheme != "file"


def cache_folder() -> Path:
    """Return where fetched frameworks are kept, one file per digest."""
    return airflow_home() / "training_cache" / "frameworks"


def local_text(ref: str, *, digest: str | None, base_dir: str) -> str:
    """Return the text of a file named relative to the job; raises InputError.

    `base_dir` "": the job came without a folder (a form), so it cannot name files of this server.
    """
    if not base_dir:
        _refuse(ref, "a job without a folder of its own cannot name a file", hint="use an address")
    path = Path(base_dir) / unquote(ref.removeprefix("file://"))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        _refuse(ref, f"{path}: {error.strerror or 'cannot be read'}")
    _check_size(ref, content)
    if digest is not None:
        _check_digest(content, digest)
    return _decode(ref, content)


def text_of(ref: str, *, digest: str | None, fetch: bool, settings: Settings) -> str:
    """Return the text at a remote address, from the cache where it is known; raises InputError."""
    if digest is None:
        raise InputError.of(
            code="bad_reference",
            field=_DIGEST,
            message="a framework from a remote address needs its digest",
            hint="digest: sha256:<64 hexadecimal digits>, as `sha256sum` prints it",
        )
    if not _is_allowed(ref, settings.remote_framework_prefixes):
        _refuse(
            ref,
            "no allowed prefix covers this address",
            allowed=settings.remote_framework_prefixes,
            hint="an administrator may add one to [training] remote_framework_prefixes",
        )
    known = _cached(digest)
    if known is None:
        if not fetch:
            _refuse(
                ref,
                "has not been fetched yet",
                hint="airflow-training validate --fetch FILE fetches and keeps it",
            )
        known = _in_time(ref, lambda: _fetch(ref, settings))
        _check_digest(known, digest)
        _keep(known, digest)
    return _decode(ref, known)


# --- rules --------------------------------------------------------------------------------------


def _is_allowed(ref: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether a prefix covers the address: same scheme and host, path below its path."""
    address = _split(ref)
    if address is None:
        return False
    for text in prefixes:
        prefix = _split(text)
        if prefix is None or _origin(prefix) != _origin(address):
            continue
        folder = prefix.path
        if address.path == folder or folder in ("", "/"):
            return True
        # a path ends at a slash: /team covers /team/a.yaml, not /team-of-others/a.yaml
        if address.path.startswith(folder if folder.endswith("/") else folder + "/"):
            return True
    return False


def _split(ref: str) -> SplitResult | None:
    """Return the parts of an address; None for one with tricks in it."""
    try:
        parts = urlsplit(ref)
        _ = parts.port
    except ValueError:
        return None
    steps = unquote(parts.path).split("/")
    tricks = (
        "::" in ref or "\\" in ref or "@" in parts.netloc or ".." in steps or "%2f" in ref.lower()
    )
    if tricks or not parts.scheme or not parts.netloc or any(c.isspace() for c in ref):
        return None
    return parts


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def _check_size(ref: str, content: bytes | bytearray) -> None:
    if len(content) > MAX_BYTES:
        _refuse(ref, f"is larger than {MAX_BYTES} bytes")


def _check_digest(content: bytes, digest: str) -> None:
    found = _digest(content)
    if found != digest:
        raise InputError.of(
            code="digest_mismatch",
            field=_DIGEST,
            value=digest,
            message=f"what is there has the digest {found}",
            hint="read the new text before you trust it",
        )


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _decode(ref: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        _refuse(ref, "is no UTF-8 text")


def _refuse(ref: str, message: str, *, allowed: tuple[str, ...] = (), hint: str = "") -> NoReturn:
    raise InputError.of(
        code="bad_reference", field=_REF, value=ref, message=message, allowed=allowed, hint=hint
    )


# --- fetching -----------------------------------------------------------------------------------


def _in_time(ref: str, fetch: Callable[[], bytes]) -> bytes:
    """Return what is fetched in a thread of its own: a driver may know no limit."""
    answer: Future[bytes] = Future()

    def work() -> None:
        try:
            answer.set_result(fetch())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is waited for
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result(_TOTAL_SECONDS)
    except FutureTimeout:
        _refuse(ref, f"was not fetched within {_TOTAL_SECONDS:g} seconds")


def _fetch(ref: str, settings: Settings) -> bytes:
    scheme = urlsplit(ref).scheme
    if scheme in ("http", "https"):
        return _fetch_http(ref, settings)
    return _fetch_storage(ref)


def _fetch_http(ref: str, settings: Settings) -> bytes:
    import httpx

    address = ref
    try:
        # uncompressed, so that a few bytes cannot become a mountain
        plain = {"Accept-Encoding": "identity"}
        with httpx.Client(headers=plain, timeout=_TIMEOUT_SECONDS) as client:
            for _ in range(_MAX_REDIRECTS + 1):
                with client.stream("GET", address) as response:
                    if response.status_code in _REDIRECTS and "location" in response.headers:
                        address = _redirected(ref, address, response.headers["location"], settings)
                        continue
                    if response.status_code != httpx.codes.OK:
                        _refuse(ref, f"answers {response.status_code}")
                    return _read_at_most(ref, response.iter_raw())
    except httpx.HTTPError as error:
        _refuse(ref, f"cannot be fetched: {str(error) or type(error).__name__}")
    _refuse(ref, f"redirects more than {_MAX_REDIRECTS} times")


def _redirected(ref: str, address: str, location: str, settings: Settings) -> str:
    """Return where a redirect leads; refuses another host, and places no prefix covers."""
    target = urljoin(address, location)
    old, new = _split(address), _split(target)
    if old is None or new is None or _origin(new) != _origin(old):
        _refuse(ref, f"redirects to another host: {target}")
    if not _is_allowed(target, settings.remote_framework_prefixes):
        _refuse(ref, f"redirects to where no allowed prefix leads: {target}")
    return target


def _read_at_most(ref: str, chunks: Iterator[bytes]) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        _check_size(ref, content)
    return bytes(content)


def _fetch_storage(ref: str) -> bytes:
    from importlib import import_module

    fsspec: Any = import_module("fsspec")  # without types, and slow to import
    try:
        with fsspec.open(ref, "rb") as file:
            content: bytes = file.read(MAX_BYTES + 1)
    except ImportError as error:
        _refuse(ref, f"needs a package: {error}")
    except Exception as error:  # noqa: BLE001 - every object store has errors of its own
        _refuse(ref, f"cannot be fetched: {type(error).__name__}: {error}")
    _check_size(ref, content)
    return content


# --- cache --------------------------------------------------------------------------------------


def _cache_file(digest: str) -> Path:
    return cache_folder() / f"{digest.removeprefix('sha256:')}.yaml"


def _cached(digest: str) -> bytes | None:
    """Return what is kept under a digest; None where nothing, or something damaged, is there."""
    try:
        content = _cache_file(digest).read_bytes()
    except OSError:
        return None
    return content if _digest(content) == digest else None


def _keep(content: bytes, digest: str) -> None:
    """Keep a text under its digest; a cache that cannot be written is only slower."""
    target = _cache_file(digest)
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".fetched-")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(target)
