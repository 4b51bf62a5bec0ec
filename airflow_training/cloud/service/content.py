"""Contents by their SHA-256 in a folder: verified when they arrive, kept until they are asked for.

Each lies there once, whoever sends it; and is there only for accounts that have sent all of it, as a digest
is no secret: whoever reads it in a log or a manifest is not given the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from airflow_training.cloud.packing import PackBytes, PackHeader, PackReader
from airflow_training.cloud.protocol import MissingContent
from airflow_training.errors import InputError

__all__ = ["ContentFolder", "PackWriter"]

T = TypeVar("T")

_DIGEST = re.compile(r"[0-9a-f]{64}")
_READ_BYTES = 1 << 20


class ContentFolder:
    """A folder of contents. What is half there belongs to one submission, so that no two write the same file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str) -> Path:
        """Where a content lies once it is whole."""
        return Path(self.place(sha256))

    def place(self, sha256: str) -> str:
        """The same as a text: paths of thousands of contents take their time to be built."""
        return f"{self._folder}/whole/{sha256[:2]}/{sha256}"

    def has(self, sha256: str) -> bool:
        """Whether it has arrived whole; what lies there is verified again where it is used."""
        return os.path.isfile(self.place(sha256))  # noqa: PTH113 - by texts, as of `place`

    def holds(self, account: str, sha256: str) -> bool:
        """Whether it has arrived whole, and from this account too."""
        return os.path.isfile(self._proof(account, sha256)) and self.has(sha256)  # noqa: PTH113 - as of `place`

    def missing(
        self, wanted: Iterable[str], *, account: str, submission: str
    ) -> Sequence[MissingContent]:
        """Those that the account has not sent, with how much of each is there."""
        parts = self._folder / "parts" / submission
        begun = {each.name: each.stat().st_size for each in parts.glob("*")}
        return [
            MissingContent(sha256=each, have=begun.get(each, 0))
            for each in wanted
            if not self.holds(account, each)
        ]

    def part(self, sha256: str, *, submission: str) -> Path:
        """Where a content lies until it is whole; raises InputError for what is no digest."""
        if not _DIGEST.fullmatch(sha256):
            raise _refused(sha256, "is no SHA-256 in hexadecimal")
        return self._folder / "parts" / submission / sha256

    def take(self, sha256: str, *, account: str, submission: str, data: bytes) -> None:
        """Keep a content whose bytes are all here; raises InputError where they are others than was announced."""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise _other_bytes(sha256)
        # of one writer, and unknown by its name: what lies under that of the content is whole
        draft = f"{self._folder}/parts/{submission}/{sha256}.{secrets.token_hex(8)}"
        try:
            file = _made(draft, lambda: os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(file, left) :]
            finally:
                os.close(file)
            self._settle(draft, sha256, account=account)
        except OSError:  # a full disk: the next try does not find this name
            Path(draft).unlink(missing_ok=True)
            raise

    def accept(self, sha256: str, *, account: str, submission: str, size: int) -> None:
        """Take a part that is complete; raises InputError, and forgets it, where it is something else."""
        part = self.part(sha256, submission=submission)
        found = part.stat().st_size
        if found != size or digest_of(part) != sha256:
            part.unlink()
            raise _other_bytes(sha256)
        self._settle(str(part), sha256, account=account)

    def _settle(self, draft: str, sha256: str, *, account: str) -> None:
        """Take what was verified just now for the content, also where another account has sent it, and prove that it came."""
        whole = self.place(sha256)
        _made(whole, lambda: os.replace(draft, whole))  # noqa: PTH105 - by texts, as of `place`
        proof = self._proof(account, sha256)
        with contextlib.suppress(FileExistsError):
            _made(proof, lambda: self._prove(account, proof))

    def _prove(self, account: str, proof: str) -> None:
        """Say that a content has come: by another name of one empty file, as file systems take longer to make a new one."""
        empty = f"{self._folder}/accounts/{_account_name(account)}.empty"
        try:
            os.link(empty, proof)
        except FileExistsError:
            raise
        except (
            OSError
        ):  # the first, more names than a file may have, or a file system that knows one name only
            Path(proof).touch()  # raises where its folder is missing
            with contextlib.suppress(OSError):
                Path(empty).unlink(missing_ok=True)
                os.link(proof, empty)

    def all(self) -> Sequence[Path]:
        """Where each content lies that has arrived whole."""
        return [*(self._folder / "whole").glob("*/*")]

    def proofs(self, sha256: str) -> Sequence[Path]:
        """The files that say which accounts have sent a content."""
        return [*(self._folder / "accounts").glob(f"*/{sha256[:2]}/{sha256}")]

    def parts(self, submission: str) -> Path:
        """Where contents of a submission are that have begun to arrive."""
        return self._folder / "parts" / submission

    def account_bytes(self, account: str) -> int:
        """Bytes of all contents that an account has sent, also of those that others have sent too."""
        total = 0
        for proof in (self._folder / "accounts" / _account_name(account)).glob("*/*"):
            with contextlib.suppress(FileNotFoundError):
                total += self.path(proof.name).stat().st_size
        return total

    def forget(self, sha256: str) -> None:
        """Remove a content that was found damaged: it is asked for again."""
        self.path(sha256).unlink(missing_ok=True)

    def end_submission(self, submission: str) -> None:
        """Remove what is left of its parts."""
        folder = self._folder / "parts" / submission
        for each in folder.glob("*"):
            each.unlink(missing_ok=True)
        if folder.is_dir():
            folder.rmdir()

    def _proof(self, account: str, sha256: str) -> str:
        """The empty file that says that an account has sent a content."""
        return f"{self._folder}/accounts/{_account_name(account)}/{sha256[:2]}/{sha256}"


class PackWriter:
    """Writes a pack as it arrives: what was written stays, should the rest never come."""

    def __init__(
        self,
        content: ContentFolder,
        *,
        account: str,
        submission: str,
        wanted: Callable[[], Mapping[str, int]],
    ) -> None:
        """`wanted`: what the submission is made of, as far as its list is here, with the most bytes of each.

        Nothing else is taken.
        """
        self._content = content
        self._account = account
        self._submission = submission
        self._ask = wanted
        self._wanted = wanted()
        self._reader = PackReader()
        self._header: PackHeader | None = None
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Take the next piece; raises InputError."""
        for each in self._reader.feed(data):
            if isinstance(each, PackHeader):
                self._begin(each)
            else:
                self._add(each)

    def close(self) -> None:
        """Raise InputError where the end is missing."""
        self.abandon()
        if not self._reader.complete:
            raise InputError.of(code="wrong_type", field="pack", message="ends in the middle")

    def abandon(self) -> None:
        """Keep what there is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, header: PackHeader) -> None:
        if header.sha256 not in self._wanted:
            self._wanted = self._ask()  # its list may have come in this pack
        if header.sha256 not in self._wanted:
            raise _refused(header.sha256, "is no content of this submission")
        if header.size > self._wanted[header.sha256]:
            raise _refused(
                header.sha256, f"has at most {self._wanted[header.sha256]} bytes in this submission"
            )
        self._header = header
        if header.offset:
            self._file = self._open(header)

    def _open(self, header: PackHeader) -> BinaryIO:
        """The file of what has come so far of a content, at the place where more of it comes."""
        part = self._content.part(header.sha256, submission=self._submission)
        part.parent.mkdir(parents=True, exist_ok=True)
        have = part.stat().st_size if part.exists() else 0
        if header.offset > have:
            raise _refused(
                header.sha256, f"{have} bytes of it are here: what follows them is wanted"
            )
        file = part.open("r+b" if have else "wb", buffering=0)
        file.truncate(header.offset)
        file.seek(header.offset)
        return file

    def _add(self, piece: PackBytes) -> None:
        header = self._header
        if header is None:  # the reader yields a header first
            raise _refused("", "comes before its header")
        whole = piece.last and self._file is None  # mostly: no part is written, and read again
        if not whole:
            self._file = self._file or self._open(header)
            self._file.write(piece.data)
        if not piece.last:
            return
        self.abandon()
        if self._content.holds(self._account, header.sha256):
            return
        keep = (
            partial(self._content.take, data=piece.data)
            if whole
            else partial(self._content.accept, size=header.size)
        )
        keep(header.sha256, account=self._account, submission=self._submission)


def _made(path: str, work: Callable[[], T]) -> T:
    """Make a file, whose folder mostly is there."""
    try:
        return work()
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - as of `place`
        return work()


@lru_cache(maxsize=256)
def _account_name(account: str) -> str:
    return hashlib.sha256(account.encode()).hexdigest()[:32]


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        if path.stat().st_size <= _READ_BYTES:
            return hashlib.sha256(file.read()).hexdigest()
        found = hashlib.sha256()
        while data := file.read(_READ_BYTES):
            found.update(data)
        return found.hexdigest()


def _other_bytes(sha256: str) -> InputError:
    return _refused(sha256, "other bytes arrived than were announced; nothing of them is kept")


def _refused(sha256: str, message: str) -> InputError:
    return InputError.of(code="not_allowed", field="content", value=sha256, message=message)
