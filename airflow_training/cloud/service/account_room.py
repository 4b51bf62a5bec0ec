"""What one account may have of a service's disk: asked before content comes, also where many are sent at once."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_training.cloud.protocol import SubmissionRequest, TreeManifest
from airflow_training.cloud.service.admission import QuotaRefused
from airflow_training.cloud.service.content import ContentFolder
from airflow_training.errors import InputError

__all__ = ["AccountRoom"]

_SENT_SECONDS = 2 * 3600.0
"""What was let in and has not come within it was given up."""


class AccountRoom:
    """The limit of each account. Several processes may use it at once."""

    def __init__(self, folder: Path, content: ContentFolder, *, most_bytes: int) -> None:
        """`folder`: of the service. `most_bytes`: of contents and chunks; 0: any."""
        self._folder = folder
        self._content = content
        self.most_bytes = most_bytes

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        """One is let in at a time, as each counts what was let in before."""
        if not self.most_bytes:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "room.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def check(self, account: str, submission: str, wanted: Mapping[str, int]) -> int:
        """Raise QuotaRefused where contents of these bytes do not fit; returns the bytes that are left for chunks."""
        kept = self._content.account_bytes(account)
        coming = {**self._coming(account, besides=submission), **wanted}
        total = kept + sum(coming.values())
        if total > self.most_bytes:
            raise self.refusal(account, kept=kept, coming=total - kept)
        return self.most_bytes - total

    def refusal(self, account: str, *, kept: int, coming: int) -> InputError:
        """A QuotaRefused that says what does not fit."""
        return QuotaRefused.of(
            code="quota",
            field="[training] cloud_account_gb",
            value=kept + coming,
            allowed=[self.most_bytes],
            message=f"the service keeps {kept:,} bytes of {account}, and {coming:,} more would come",
            hint="where the service runs: airflow-training cloud gc --unused-days 0",
        )

    def _coming(self, account: str, *, besides: str) -> Mapping[str, int]:
        """Contents that other submissions were let in with and that have not come."""
        found: dict[str, int] = {}
        for path in (self._folder / "submissions").glob("*/submission.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, InputError):
                if (
                    path.parent.name == besides
                    or time.time() - path.stat().st_mtime > _SENT_SECONDS
                ):
                    continue
                document = json.loads(path.read_text())
                if document["account"] != account or document["started"]:
                    continue
                manifest = self._content.path(
                    SubmissionRequest.from_json(document["request"]).manifest
                )
                found.update(TreeManifest.from_bytes(manifest.read_bytes()).tree.blobs)
        return {
            each: size for each, size in found.items() if not self._content.holds(account, each)
        }
