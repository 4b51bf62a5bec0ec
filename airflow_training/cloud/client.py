"""The service as a client talks to it: one method for each path of the protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

# its own command line would draw in rich, click and pygments: half of the time that it takes to import
if "httpx" not in sys.modules:
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # as the import system marks what is not there
    import httpx

    del sys.modules["httpx._main"]
else:
    import httpx

from airflow_training.cloud.local_service import LocalService, start_local
from airflow_training.cloud.packing import Pack, PackHeader, header_line
from airflow_training.cloud.protocol import (
    CLIENT_PATH,
    PREFIX,
    CloudRunState,
    SubmissionAnswer,
    SubmissionRequest,
)
from airflow_training.cloud.refusals import problems_from_json
from airflow_training.cloud.targets import Target
from airflow_training.errors import InputError, RuntimeUnavailable

__all__ = ["CloudClient", "PrintedBytes", "connect"]

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_BUILDING = {"timeout": httpx.Timeout(1800.0, connect=10.0).as_dict()}
_READ_BYTES = 1 << 18
_NOT_OURS = (
    httpx.codes.NOT_FOUND,
    httpx.codes.METHOD_NOT_ALLOWED,
    httpx.codes.NOT_IMPLEMENTED,
)
"""What a server says that knows nothing of the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedBytes:
    """A stretch of a rank's log; see the protocol."""

    data: bytes
    next_offset: int
    attempt: int
    next_attempt: int
    end: bool


class CloudClient:
    """One service. Use it as a context manager; raises RuntimeUnavailable where nothing answers."""

    def __init__(self, http: httpx.Client, *, local: LocalService | None = None) -> None:
        """`http`: with address and key of the service. `local`: the service, which ends with this."""
        self.sent = 0
        """Bytes of all bodies."""
        self._http = http
        self._local = local

    @classmethod
    def at(cls, url: str, key: str, *, local: LocalService | None = None) -> CloudClient:
        """The client of the service at an address."""
        http = httpx.Client(
            base_url=url.rstrip("/") + PREFIX,
            timeout=_TIMEOUT,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            trust_env=local is None,  # no proxy leads to this machine
            verify=not url.startswith("http://"),  # reading all certificates takes 60 ms
        )
        return cls(http, local=local)

    @classmethod
    def of(cls, local: LocalService) -> CloudClient:
        """The client of a service of this machine, made while that may still start."""
        client = cls.at("http://127.0.0.1", local.key, local=local)
        client._http.base_url = httpx.URL(local.url() + PREFIX)
        return client

    @property
    def url(self) -> str:
        """The address, for messages."""
        return str(self._http.base_url).removesuffix("/").removesuffix(PREFIX)

    def __enter__(self) -> CloudClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()
        if self._local is not None:
            self._local.close()

    def revive(self) -> None:
        """Start the service of this machine again, should it have ended: its runs go on without it."""
        if self._local is not None and self._local.revive():
            self._http.base_url = httpx.URL(self._local.url() + PREFIX)
            self._http.headers["Authorization"] = f"Bearer {self._local.key}"

    def about(self) -> Mapping[str, Any]:
        """Version of the protocol and of the service, and where it has its users from (`login`)."""
        return self._json("GET", "/")

    def about_client(self) -> Mapping[str, Any]:
        """Version, digest and install command of the client that fits the service."""
        return self._json("GET", f"{self.url}{CLIENT_PATH}")

    def submit(self, request: SubmissionRequest) -> SubmissionAnswer:
        """Ask to be let in, or how a submission stands; raises InputError with what is refused."""
        body = json.dumps(request.to_json(), separators=(",", ":")).encode()
        self.sent += len(body)
        return SubmissionAnswer.from_json(self._json("POST", "/submissions", content=body))

    def submit_whole(
        self, request: SubmissionRequest, pack: Pack, sources: Mapping[str, Path | bytes]
    ) -> tuple[SubmissionAnswer, str]:
        """Ask to be let in and send all of it, in one request; returns how it stands, and the run where it was started.

        A refusal comes once all was sent.
        """

        def body() -> Iterator[bytes]:
            line = json.dumps(request.to_json(), separators=(",", ":")).encode() + b"\n"
            self.sent += len(line)
            yield line
            yield from self._packed(pack, sources)

        answer = {
            **self._json(
                "POST",
                "/submissions/whole",
                params={"start": 1},
                content=_gathered(body()),
                extensions=_BUILDING,
            )
        }
        run_id = answer.pop("run")
        return SubmissionAnswer.from_json(answer), str(run_id or "")

    def send(self, submission: str, pack: Pack, sources: Mapping[str, Path | bytes]) -> None:
        """Send contents; `sources`: file or bytes by digest."""
        body = _gathered(self._packed(pack, sources))
        self._json("POST", f"/submissions/{submission}/pack", content=body)

    def _packed(self, pack: Pack, sources: Mapping[str, Path | bytes]) -> Iterator[bytes]:
        for header in pack.headers:
            line = header_line(header)
            self.sent += len(line)
            left = header.size - header.offset
            pieces = _pieces(sources[header.sha256], header.offset)
            first = next(pieces, b"")[:left]
            self.sent += len(first)
            left -= len(first)
            yield line + first  # small files in few writes
            for piece in pieces:
                piece = piece[:left]
                left -= len(piece)
                self.sent += len(piece)
                yield piece
            if left:
                raise InputError.of(
                    code="conflict",
                    field=str(sources[header.sha256]),
                    message="became shorter while it was sent",
                    hint="the same command again captures it as it is now",
                )

    def start(self, submission: str) -> str:
        """Run it, once however often this is called; returns the run's id. Its environment may be built first."""
        path = f"/submissions/{submission}/start"
        return str(self._json("POST", path, extensions=_BUILDING)["run"])

    def runs(self) -> Sequence[CloudRunState]:
        """The runs of this account."""
        return [CloudRunState(**row) for row in self._json("GET", "/runs")["runs"]]

    def run(self, run_id: str) -> CloudRunState:
        """How a run stands."""
        return CloudRunState(**self._json("GET", f"/runs/{run_id}"))

    def log(self, run_id: str, *, rank: int, attempt: int, offset: int) -> PrintedBytes:
        """What a rank printed from a byte on."""
        query: dict[str, Any] = {"rank": rank, "attempt": attempt, "offset": offset}
        answer = self._call("GET", f"/runs/{run_id}/log", params=query)
        heads = answer.headers
        return PrintedBytes(
            data=answer.content,
            next_offset=int(heads["X-Next-Offset"]),
            attempt=int(heads["X-Attempt"]),
            next_attempt=int(heads["X-Next-Attempt"]),
            end=heads["X-End"] == "1",
        )

    def result(self, run_id: str) -> Mapping[str, Any]:
        """What the run wrote."""
        return self._json("GET", f"/runs/{run_id}/result")

    def download(self, run_id: str, path: str, *, to: Path) -> None:
        """Bring a file; what is in `to` already is its beginning."""
        have = to.stat().st_size if to.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # models do not become smaller, only later
        if have:
            headers["Range"] = f"bytes={have}-"
        try:
            with self._http.stream(
                "GET", f"/runs/{run_id}/files/{quote(path)}", headers=headers
            ) as got:
                if got.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return
                if got.is_error:
                    got.read()
                    self._check(got)
                resumed = got.status_code == httpx.codes.PARTIAL_CONTENT
                with to.open("ab" if resumed else "wb") as file:
                    for data in got.iter_bytes():
                        file.write(data)
        except httpx.TransportError as error:
            raise self._away(error) from error

    def bill(self, run_id: str) -> Mapping[str, Any]:
        """What the run has cost so far."""
        return self._json("GET", f"/runs/{run_id}/bill")

    def bill_csv(self, run_id: str) -> str:
        """The same as a table for spreadsheets."""
        return self._call("GET", f"/runs/{run_id}/bill", params={"format": "csv"}).text

    def data_requests(self, run_id: str, *, wait_seconds: float) -> Mapping[str, Any]:
        """What the run asks for of what stays here, after `wait_seconds` at most: `{"over", "requests"}`."""
        return self._json("GET", f"/runs/{run_id}/data/requests", params={"wait": wait_seconds})

    def missing_chunks(self, run_id: str, digests: Sequence[str]) -> Sequence[str]:
        """Those that the service has not."""
        body = json.dumps({"chunks": [*digests]}).encode()
        answer = self._json("POST", f"/runs/{run_id}/data/missing", content=body)
        return [str(each) for each in answer["missing"]]

    def send_chunks(self, run_id: str, chunks: Mapping[str, bytes]) -> Sequence[str]:
        """Send chunks by their digests; returns those that arrived damaged."""
        body = b"".join(
            header_line(PackHeader(sha256=digest, size=len(data))) + data
            for digest, data in chunks.items()
        )
        answer = self._json("POST", f"/runs/{run_id}/data/chunks", content=body)
        return [str(each) for each in answer["damaged"]]

    def answer_data(self, run_id: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Say of requests which chunks they are, all of which were sent, or why they are refused."""
        body = json.dumps({"answers": answers}).encode()
        self._json("POST", f"/runs/{run_id}/data/answers", content=body)

    def stop(self, run_id: str) -> None:
        """Ask for its end."""
        self._json("POST", f"/runs/{run_id}/stop")

    def _json(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:
        answer = self._call(method, path, **options)
        try:
            document: Mapping[str, Any] = answer.json()
        except ValueError:
            raise InputError.of(
                code="not_supported",
                field="--target",
                value=self.url,
                message=f"{self.url} answers, and is no service of this protocol",
                hint="airflow-training cloud targets",
            ) from None
        return document

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise self._away(error) from error
        self._check(answer)
        return answer

    def _away(self, error: Exception) -> RuntimeUnavailable:
        return RuntimeUnavailable(
            f"{self.url} does not answer: {error}\nnext: airflow-training cloud targets"
        )

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        try:
            problems = problems_from_json(answer.json())
        except ValueError:
            problems = ()
        if not problems and answer.status_code in _NOT_OURS:
            raise InputError.of(
                code="not_supported",
                field="--target",
                value=self.url,
                message=f"{self.url} answers, and has no service of this protocol",
                hint="is that the address, and is airflow-training installed there?",
            )
        if not problems or answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            said = "; ".join(each.message for each in problems) or answer.reason_phrase
            raise RuntimeUnavailable(
                f"{self.url} answers {answer.status_code}: {said}\n"
                "next: the same command again goes on where this one ended"
            )
        raise InputError(problems=problems)


def connect(target: Target, *, local: LocalService | None = None) -> CloudClient:
    """The client of a target; for what has no service, of one that is started for it, or was: `local`."""
    service = local or start_local(target)
    if service is not None:
        return CloudClient.of(service)
    return CloudClient.at(target.url, target.key)


def _pieces(source: Path | bytes, offset: int) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source[offset:]
        return
    with source.open("rb") as file:
        file.seek(offset)
        while data := file.read(_READ_BYTES):
            yield data


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces: each costs a write and a chunk."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _READ_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)
