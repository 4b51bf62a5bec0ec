"""The cluster as slurmrestd shows it: what is asked of Slurm goes there, in the place of its commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_training.control.reasons import CANNOT_BE_CREATED
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import NodeView
from airflow_training.runtimes.slurm.cluster import SlurmSubmission, SubmitRefused
from airflow_training.runtimes.slurm.queue_view import QueuedJob, SubmitAnswer, read_refusal
from airflow_training.runtimes.slurm.rest_documents import (
    api_version,
    errors_of,
    read_nodes,
    read_queue,
    submission_document,
)

if TYPE_CHECKING:
    import httpx

__all__ = ["RestCluster"]

_SECONDS = 60.0
_OF_JOB = ("HOME", "LANG")
"""Variables of ours that its script gets."""
_PATH_OF_JOB = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/slurm/bin", "/usr/local/slurm/bin")
"""Where nodes have Slurm's commands, besides our own PATH."""
_TOKEN = re.compile(r"[\w.=-]+")
_OVER = ("Invalid job id", "already completing or completed", "already finished")
"""What is said to who cancels a job that has ended, or that nobody knows."""
_UNKNOWN_NODE = "Invalid node name"
_UNSPECIFIED = "Unspecified error"
_UNREAD = "Unable to process key"
_OF_TOKENS = re.compile(rf"(?i){_UNSPECIFIED}|zero bytes were transmitted|authentication")
"""What is said for a token that is none, too: which of both it is only newer versions tell apart."""
_UNAUTHORIZED = (401, 403)
_NOT_FOUND = 404
_MARKS = frozenset({"meta", "openapi"})
"""What every answer of slurmrestd has one of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCluster:
    """The cluster behind one slurmrestd, with the rights of a token."""

    url: str
    """`http://host:6820`, `https://...`, or `unix:///path` of a socket."""
    user: str
    """Whose jobs they are."""
    token_file: str = ""
    """Read at each request, as tokens are renewed; "": the variable `SLURM_JWT`. A socket needs none."""
    uid: int = field(default_factory=os.getuid)
    """The same as a number: slurmrestd may not know names."""
    longest_array: int = 1
    """Elements of an array that wait are listed as one text, and long ones of those are cut off."""

    def submit(self, job: SlurmSubmission, *, keep: Sequence[int] = ()) -> str:
        """Queue a job; returns its id."""
        del keep  # nothing of ours goes on once the answer is waited for no more
        unsayable = self.find_refusal(job)
        if unsayable is not None:
            raise SubmitRefused(unsayable)
        version = self._version()
        environment = {name: os.environ[name] for name in _OF_JOB if name in os.environ}
        path = [each for each in os.environ.get("PATH", "").split(os.pathsep) if each]
        environment["PATH"] = os.pathsep.join(dict.fromkeys((*path, *_PATH_OF_JOB)))
        document = submission_document(job, version=version, environment=environment)
        answer = self._ask("POST", f"/slurm/v0.0.{version}/job/submit", document)
        if answer.get("job_id"):  # with errors too, where it is queued but cannot begin yet
            return str(answer["job_id"])
        refusal = errors_of(answer)
        if _UNKNOWN_NODE in refusal and job.request.excluded:
            # one of the nodes to leave out is none of the cluster any more, and Slurm does not say which
            return self.submit(replace(job, request=replace(job.request, excluded=())))
        if not refusal:
            return ""
        said = read_refusal(refusal)
        if said.kind == "away" or (_OF_TOKENS.search(refusal) and _UNREAD not in refusal):
            raise self._away(refusal)
        raise SubmitRefused(said)

    def find_refusal(self, job: SlurmSubmission) -> SubmitAnswer | None:
        """Refuse options of sbatch: slurmrestd takes none, and cannot be asked what it would say to a job."""
        if not job.options.extra:
            return None
        message = f"slurmrestd takes no options of sbatch: {' '.join(job.options.extra)}"
        return SubmitAnswer(kind="impossible", reason=CANNOT_BE_CREATED, message=message)

    def queue(self) -> dict[str, QueuedJob]:
        """Id -> job, of all that the controller remembers of the user."""
        return read_queue(self._get("jobs"), uid=self.uid)

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs, one by one."""
        version = self._version()
        for job in jobs:
            answer = self._ask("DELETE", f"/slurm/v0.0.{version}/job/{job}")
            refusal = errors_of(answer)
            if refusal and not any(each in refusal for each in _OVER):
                raise self._away(refusal)

    def nodes(self, partition: str) -> list[NodeView]:
        """Return nodes, without the switches that they hang on."""
        return read_nodes(self._get("nodes"), partition=partition)

    # requests -----------------------------------------------------------------------------------------
    def _get(self, what: str) -> Mapping[str, Any]:
        answer = self._ask("GET", f"/slurm/v0.0.{self._version()}/{what}")
        if refusal := errors_of(answer):
            raise self._away(refusal)
        if not isinstance(answer.get(what), list):
            raise self._away(f"an answer without {what}")
        return answer

    def _away(self, refusal: str) -> RuntimeUnavailable:
        message = f"slurmrestd at {self.url}: {refusal}"
        if not self.url.startswith("unix:") and _OF_TOKENS.search(refusal):
            message += f"; perhaps {self._source()} has no token of {self.user} that is valid now"
        return RuntimeUnavailable(message)

    def _version(self) -> int:
        """Return the API that is spoken there; asked once, and again while there is none."""
        version = _versions.get(self, 0)
        if not version:
            served = self._ask("GET", "/openapi/v3").get("paths") or ()
            version = _versions[self] = api_version(served)
        if not version:
            raise RuntimeUnavailable(
                f"slurmrestd at {self.url} has none of the APIs that are known here: v0.0.38, v0.0.40 and newer"
            )
        return version

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        import httpx

        headers = {"X-SLURM-USER-NAME": self.user}
        if token := self._token():
            headers["X-SLURM-USER-TOKEN"] = token
        try:
            response = _client(self.url, os.getpid()).request(
                method, path, json=body, headers=headers
            )
        except httpx.HTTPError as error:
            raise RuntimeUnavailable(
                f"slurmrestd at {self.url}: {str(error) or type(error).__name__}"
            ) from error
        if response.status_code in _UNAUTHORIZED:
            raise RuntimeUnavailable(
                f"slurmrestd at {self.url} does not know {self.user} by the token of {self._source()}"
            )
        if response.status_code == _NOT_FOUND:  # after an upgrade it may serve other versions
            _versions.pop(self, None)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or _MARKS.isdisjoint(answer):  # something in the way
            raise RuntimeUnavailable(
                f"slurmrestd at {self.url} answers {response.status_code}: {response.text[:200]!r}"
            )
        return answer

    def _token(self) -> str:
        if not self.token_file:
            return os.environ.get("SLURM_JWT", "")
        try:
            text = Path(self.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RuntimeUnavailable(f"slurm_rest_token_file {self.token_file}: {error}") from None
        token = text.removeprefix("SLURM_JWT=")  # as `scontrol token` prints it
        if not _TOKEN.fullmatch(token):
            raise RuntimeUnavailable(f"slurm_rest_token_file {self.token_file}: is no token")
        return token

    def _source(self) -> str:
        return self.token_file or "SLURM_JWT"


@lru_cache(maxsize=4)
def _client(url: str, process: int) -> httpx.Client:
    import httpx

    del process  # a fork shares no connection with its parent

    if url.startswith("unix://"):
        transport = httpx.HTTPTransport(uds=unquote(urlsplit(url).path))
        return httpx.Client(transport=transport, base_url="http://slurmrestd", timeout=_SECONDS)
    # of its own: no proxy of the environment is to see the token
    return httpx.Client(transport=httpx.HTTPTransport(), base_url=url, timeout=_SECONDS)


_versions: dict[RestCluster, int] = {}
