"""Bring an output folder to its address: plain folders by ourselves, the rest through fsspec."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = [
    "describe",
    "fetch_output",
    "local_target",
    "may_pass",
    "output_files",
    "put",
    "put_file",
    "remote_storage",
    "remove_parts",
    "upload",
    "upload_patiently",
]

_COMMAND = "TRAINING_OUTPUT_COMMAND"
"""Program that brings what other instances have written into the output folder: of frameworks whose
rank 0 lives in another instance than the one that uploads."""

_WAITS_SECONDS = (1.0, 5.0, 20.0, 60.0)
"""Before each further try of an upload: what a storage does not take within a minute and a half, it refuses."""
_PASSING_ERRNOS = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
_PASSING = (
    r"(?i)time-?out|timed out|throttl|slow ?down|too ?many ?requests|\b(?:429|50[0234])\b|unavailable|internal ?error"
    r"|server ?busy|try again|temporar|reset by peer|disconnected|connection|name resolution|\bdns\b|getaddrinfo"
)
"""Words of storages, and of their clients, about what may be better soon."""
_REFUSING = r"(?i)denied|forbidden|credential|not exist|no ?such|\b40[134]\b"
_NONE: Mapping[str, Path] = {}
_BLOCK = 1 << 20
_TOLD = 5


def fetch_output() -> None:
    """Run the program that a framework names for it, if it does; raises OSError where that fails."""
    command = os.environ.get(_COMMAND)
    if command:
        import subprocess

        code = subprocess.run([command], stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            raise OSError(f"{command} has failed with exit code {code}")


def local_target(uri: str) -> Path | None:
    """Return the folder that a plain path or a `file://` address means, else None."""
    if "://" not in uri:
        return Path(uri)
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def output_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative name, path) of every file, by name; no link that leads out of the folder."""
    inside = _place(folder)
    for name, path in _found(folder):
        if inside in path.resolve().parents:
            yield name, path


def _all_files(folder: Path, beside: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of what is uploaded, by name."""
    yield from sorted({**dict(output_files(folder)), **beside}.items())


def _links_out(folder: Path) -> list[str]:
    """Return the names in a folder that lead to files elsewhere: these are not its own."""
    inside = _place(folder)
    return [name for name, path in _found(folder) if inside not in path.resolve().parents]


def _found(folder: Path) -> Iterator[tuple[str, Path]]:
    found = [p for p in folder.rglob("*") if p.is_file()]
    for path in sorted(found, key=lambda p: p.relative_to(folder).as_posix()):
        yield path.relative_to(folder).as_posix(), path


def _place(folder: Path) -> Path:
    """Return where the folder is itself: a link in its place leads out as any other does."""
    return folder.parent.resolve() / folder.name


def describe(folder: Path, beside: Mapping[str, Path] = _NONE) -> dict[str, Any]:
    r"""Return `{bytes, digest, files}` of a folder; `beside`: files of elsewhere that go with it, by name.

    The digest is that of the listing `sha256sum` prints for its files by name, so that
    `find . -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum | sha256sum` gives it too.
    """
    listing = hashlib.sha256()
    size = count = 0
    for name, path in _all_files(folder, beside):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
        listing.update(f"{digest.hexdigest()}  {name}\n".encode(errors="surrogateescape"))
        count += 1
    return {"bytes": size, "digest": f"sha256:{listing.hexdigest()}", "files": count}


def upload(
    folder: Path, uri: str, *, say: Callable[[str], None], beside: Mapping[str, Path] = _NONE
) -> dict[str, Any]:
    """Copy every file of `folder`, and those `beside` it, below `uri`; return `{uri, bytes, digest, files}`.

    Raises whatever the target raises; files that are there and not ours stay. `say` is told of
    links that lead out of the folder: what is behind them is nobody's output.
    """
    if left_out := _links_out(folder):
        names = ", ".join(map(repr, left_out[:_TOLD]))
        more = f" and {len(left_out) - _TOLD} more" if len(left_out) > _TOLD else ""
        say(f"not uploaded, as links lead out of the output folder: {names}{more}")
    described = describe(folder, beside)
    target = local_target(uri)
    if target is None:
        _upload_remote(folder, beside, uri)
    else:
        target.mkdir(parents=True, exist_ok=True)
        for name, path in _all_files(folder, beside):
            _partial_copy(path, target / name).replace(target / name)
    return {"uri": uri, **described}


def _partial_copy(path: Path, destination: Path) -> Path:
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_name(f".{destination.name}.{os.getpid()}.part")
    shutil.copy2(path, partial)
    return partial


def remove_parts(uri: str, pid: int) -> None:
    """Remove what a process that was ended has left half copied, where `uri` is a folder."""
    target = local_target(uri)
    with contextlib.suppress(OSError):  # the output is more than what lies beside it
        for left in target.rglob(f".*.{pid}.part") if target is not None else ():
            left.unlink()


def put_file(path: Path, uri: str, *, whole: Callable[[], bool]) -> bool:
    """Copy one file to `uri` and return whether what is there is it; raises whatever the target raises.

    `whole`: whether the file is still what it was before. In a folder, what is not never takes the place of what was
    there; a storage has it until the next time.
    """
    target = local_target(uri)
    if target is None:
        filesystem, destination = remote_storage(uri)
        filesystem.makedirs(destination.rsplit("/", 1)[0], exist_ok=True)
        filesystem.put_file(str(path), destination)
        return whole()
    partial = _partial_copy(path, target)
    if whole():
        partial.replace(target)
        return True
    partial.unlink()
    return False


def upload_patiently(
    folder: Path,
    uri: str,
    *,
    say: Callable[[str], None],
    beside: Mapping[str, Path] = _NONE,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Return the answer of `upload`, tried a few times where the storage may only be away for a moment.

    Where none succeeds, `{error}` in the storage's words, with how often it was tried if that was more than once.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return upload(folder, uri, say=say, beside=beside)
        except BaseException as error:  # noqa: BLE001  # whatever a storage client raises
            if not may_pass(error) or tries > len(_WAITS_SECONDS):
                often = f" (tried {tries} times)" if tries > 1 else ""
                return {"error": f"{uri}: {error!r}{often}"}
            wait = _WAITS_SECONDS[tries - 1]
            say(f"the output is not uploaded yet: {uri}: {error!r}; next try in {wait:g} s")
            sleep(wait)


def may_pass(error: BaseException) -> bool:
    """Return whether another try of the same may succeed soon, as far as an error of a storage tells."""
    import re  # of what failed only

    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _PASSING_ERRNOS
    if not isinstance(error, Exception) or isinstance(error, (ImportError, ValueError)):
        return False
    words = repr(error)
    return re.search(_PASSING, words) is not None and re.search(_REFUSING, words) is None


def put(content: bytes, uri: str) -> None:
    """Write one small file at `uri`; raises whatever the target raises."""
    target = local_target(uri)
    if target is None:
        filesystem, path = remote_storage(uri)
        filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        filesystem.pipe_file(path, content)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    partial.write_bytes(content)
    partial.replace(target)


def _upload_remote(folder: Path, beside: Mapping[str, Path], uri: str) -> None:
    filesystem, root = remote_storage(uri)
    for name, path in _all_files(folder, beside):
        destination = f"{root.rstrip('/')}/{name}"
        filesystem.makedirs(destination.rsplit("/", 1)[0], exist_ok=True)
        filesystem.put_file(str(path), destination)


def remote_storage(uri: str) -> tuple[Any, str]:
    """Return (file system of fsspec, path in it) of an address."""
    import site
    import sys

    # the agent starts without site-packages because that is twice as fast
    if not any(p.endswith(("site-packages", "dist-packages")) for p in sys.path):
        site.main()
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(uri)
    return filesystem, path
