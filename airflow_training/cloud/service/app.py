"""The protocol over HTTP: which path leads to what. Starlette, so that it starts fast; no Airflow."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from airflow_training import __version__
from airflow_training.accounts.bills import bill_csv
from airflow_training.cloud.packing import PackHeader, header_line
from airflow_training.cloud.protocol import (
    CLIENT_PATH,
    PREFIX,
    VERSION,
    CloudRunState,
    SubmissionRequest,
)
from airflow_training.cloud.refusals import problems_to_json
from airflow_training.cloud.service.admission import (
    Admission,
    Caller,
    LoginRefused,
    QuotaRefused,
    RightRefused,
    RunRight,
)
from airflow_training.cloud.service.client_wheel import client_wheel
from airflow_training.cloud.service.data_routes import data_routes
from airflow_training.cloud.service.node_routes import node_routes
from airflow_training.cloud.service.places import OutputStream
from airflow_training.cloud.service.run_data import RunData
from airflow_training.cloud.service.runs import is_over, read_log, run_bill, run_state
from airflow_training.cloud.service.submissions import Submissions
from airflow_training.errors import InputError, Problem, TrainingError

__all__ = ["cloud_app"]

log = logging.getLogger(__name__)

_RANGE = re.compile(r"bytes=(\d{1,18})-")
_SUBMISSION_BYTES = 1 << 20
_SENDING_BYTES = 8 << 30
_MOST_NUMBER = (1 << 63) - 1
"""Of bytes in a file."""
_THREADS = 16
_STARTS = 16
"""At a time: an environment may be built first, which takes minutes. Others wait for their turn."""
Handler = Callable[[Request], Awaitable[Response]]
Answer = TypeVar("Answer")


def cloud_app(submissions: Submissions, admission: Admission, *, mounted_at: str = "") -> Starlette:
    """The app of a service: `protocol.PREFIX` and `protocol.CLIENT_PATH`.

    `mounted_at`: the beginning of both, where another app has followed it already.
    """
    routes = [
        Route("/", about),
        Route("/submissions", submit, methods=["POST"]),
        Route("/submissions/whole", submit_whole, methods=["POST"]),
        Route("/submissions/{id}/pack", take_pack, methods=["POST"]),
        Route("/submissions/{id}/blobs/{sha256}", take_blob, methods=["PUT"]),
        Route("/submissions/{id}/start", start, methods=["POST"]),
        Route("/runs", list_runs),
        Route("/runs/{run}", show_run),
        Route("/runs/{run}/log", show_log),
        Route("/runs/{run}/result", show_result),
        Route("/runs/{run}/files/{path:path}", send_file),
        Route("/runs/{run}/bill", show_bill),
        Route("/runs/{run}/stop", stop, methods=["POST"]),
        *data_routes(_run_data, partial(is_over, submissions.launcher)),
        *node_routes(submissions.data_of_run),
    ]
    handlers: dict[Any, Any] = {
        TrainingError: _refuse,
        KeyError: _unknown,
        OSError: _break_down,
        ClientDisconnect: _leave,
    }
    client = CLIENT_PATH.removeprefix(mounted_at)
    app = Starlette(
        routes=[
            Route(client, describe_client),
            Route(f"{client}/{{name}}", send_client),
            Mount(PREFIX.removeprefix(mounted_at), routes=routes),
        ],
        exception_handlers=handlers,
    )
    app.state.submissions = submissions
    app.state.admission = admission
    # threads of its own: what is slow here keeps none from whatever else the process serves
    app.state.threads = CapacityLimiter(_THREADS)
    app.state.starts = CapacityLimiter(_STARTS)
    return app


async def about(request: Request) -> Response:
    """Say who serves; the only answer that needs no key."""
    admission: Admission = request.app.state.admission
    return JSONResponse({"protocol": VERSION, "version": __version__, "login": admission.users})


async def describe_client(request: Request) -> Response:
    """Version, digest and install command of the client that fits this service; needs no key."""
    wheel = await _in_thread(request, client_wheel)
    address = f"{str(request.base_url).rstrip('/')}{CLIENT_PATH}/{wheel.name}"
    return JSONResponse(
        {
            "version": wheel.version,
            "sha256": wheel.sha256,
            "size": len(wheel.data),
            "url": address,
            "install": f"pip install '{address}#sha256={wheel.sha256}'",
        }
    )


async def send_client(request: Request) -> Response:
    """The wheel; needs no key, as it is public code."""
    wheel = await _in_thread(request, client_wheel)
    if request.path_params["name"] != wheel.name:
        raise KeyError(request.path_params["name"])
    return Response(wheel.data, media_type="application/zip")


async def submit(request: Request) -> Response:
    """Login, quota and environment are answered here, before content moves."""
    caller = await _caller(request, "submit")
    document = await _json_body(request)
    wanted = SubmissionRequest.from_json(document)
    answer = await _in_thread(request, _submissions(request).submit, caller.account, wanted)
    return JSONResponse(answer.to_json(), status_code=201)


async def submit_whole(request: Request) -> Response:
    """A submission as a line, and its contents as a pack behind it: all in one body.

    Who sends it hears that it is refused once all of it was sent, or more than may be sent at all.
    """
    caller = await _caller(request, "submit")
    pieces = request.stream()
    try:
        line, rest = await _first_line(pieces)
        wanted = SubmissionRequest.from_json(_parsed(line))
        answer = await _in_thread(request, _submissions(request).submit, caller.account, wanted)
        await _write(request, caller, answer.id, pieces, first=rest)
    except TrainingError:
        with contextlib.suppress(ClientDisconnect):
            left = _SENDING_BYTES
            async for data in pieces:
                left -= len(data)
                if left < 0:
                    break
        raise
    run_id = await _start_if_wanted(request, caller, answer.id)
    answer = await _in_thread(request, _submissions(request).submit, caller.account, wanted)
    return JSONResponse({**answer.to_json(), "run": run_id}, status_code=201)


async def _first_line(pieces: AsyncIterator[bytes]) -> tuple[bytes, bytes]:
    """The first line of a body, and what came behind it so far."""
    head = b""
    async for data in pieces:
        head += data
        if b"\n" in data:
            break
        if len(head) > _SUBMISSION_BYTES:
            raise _too_large(_SUBMISSION_BYTES)
    line, _, rest = head.partition(b"\n")
    return line, rest


async def take_pack(request: Request) -> Response:
    """Contents, several in a body; what has arrived stays, should the rest not come."""
    return await _take_contents(request, begin=lambda: b"")


async def take_blob(request: Request) -> Response:
    """One content, from `offset` on; `size` is that of all of it."""

    def begin() -> bytes:
        header = PackHeader(
            sha256=request.path_params["sha256"],
            size=_number(request, "size", least=0),
            offset=_number(request, "offset", 0),
        )
        return header_line(header)

    return await _take_contents(request, begin=begin)


async def _take_contents(request: Request, *, begin: Callable[[], bytes]) -> Response:
    """Write a body to the store as it comes. `begin`: what the path says of a pack, read once somebody is known."""
    caller, submission = await _caller(request, "submit"), request.path_params["id"]
    received = await _write(request, caller, submission, request.stream(), begin=begin)
    run_id = await _start_if_wanted(request, caller, submission)
    return JSONResponse({"received": received, **({"run": run_id} if run_id else {})})


async def _write(
    request: Request,
    caller: Caller,
    submission: str,
    pieces: AsyncIterator[bytes],
    *,
    first: bytes = b"",
    begin: Callable[[], bytes] = lambda: b"",
) -> int:
    """Take contents as they come, and return how many bytes of a body that were. Raises ClientDisconnect too."""
    writer = await _in_thread(request, _submissions(request).writer, caller.account, submission)
    received = 0
    try:
        if head := begin() + first:
            await _in_thread(request, writer.write, head)
        async for data in pieces:
            received += len(data)
            if received > _SENDING_BYTES:
                raise _too_large(_SENDING_BYTES)
            await _in_thread(request, writer.write, data)  # a folder of other machines may be slow
        writer.close()
    except (ClientDisconnect, InputError, OSError):
        writer.abandon()
        raise
    return received


async def start(request: Request) -> Response:
    """Lay the tree out, compare its digest, run it."""
    caller = await _caller(request, "submit")
    return JSONResponse({"run": await _started(request, caller, request.path_params["id"])})


async def _started(request: Request, caller: Caller, submission: str) -> str:
    begin = partial(_submissions(request).start, caller.account, submission)
    return await anyio.to_thread.run_sync(begin, limiter=request.app.state.starts)


async def _start_if_wanted(request: Request, caller: Caller, submission: str) -> str | None:
    """Run it now that something of it has come, where `start=1` says so and all of it is there; else None."""
    if not _number(request, "start", 0):
        return None
    complete = _submissions(request).is_complete
    if not await _in_thread(request, complete, caller.account, submission):
        return None
    return await _started(request, caller, submission)


async def list_runs(request: Request) -> Response:
    """The runs of the account."""
    caller = await _caller(request, "read")
    submissions = _submissions(request)

    def rows() -> list[Mapping[str, Any]]:
        found = []
        for each in submissions.run_ids(caller.account):
            with contextlib.suppress(KeyError):  # one that was deleted where it ran
                found.append(_state(submissions, each).to_json())
        return found

    return JSONResponse({"runs": await _in_thread(request, rows)})


async def show_run(request: Request) -> Response:
    """How a run stands, with the progress of each rank."""
    run_id, _ = await _run(request, "read")
    state = await _in_thread(request, _state, _submissions(request), run_id)
    return JSONResponse(state.to_json())


def _state(submissions: Submissions, run_id: str) -> CloudRunState:
    """How a run stands, and its data."""
    state, data = run_state(submissions.launcher, run_id), submissions.data_of_run(run_id)
    return state if data is None else data.described(state)


async def show_log(request: Request) -> Response:
    """Bytes of what a rank printed; where to go on stands in the headers."""
    run_id, _ = await _run(request, "read_logs")

    def read() -> Response:
        stretch = read_log(
            _submissions(request).launcher,
            run_id,
            rank=_number(request, "rank", 0),
            attempt=_number(request, "attempt", -1, least=-1),
            offset=_number(request, "offset", 0),
        )
        headers = {
            "X-Next-Offset": str(stretch.next_offset),
            "X-Attempt": str(stretch.attempt),
            "X-Next-Attempt": str(stretch.next_attempt),
            "X-End": str(int(stretch.end)),
        }
        return Response(stretch.data, media_type="application/octet-stream", headers=headers)

    return await _in_thread(request, read)


async def show_result(request: Request) -> Response:
    """What the run wrote: files that come back, with their digests."""
    caller, run_id = await _caller(request, "read_logs"), request.path_params["run"]

    def result() -> Mapping[str, Any]:
        submissions = _submissions(request)
        return submissions.place.result(submissions.of_run(caller, run_id), run_id)

    return JSONResponse(await _in_thread(request, result))


async def send_file(request: Request) -> Response:
    """A file that the run wrote; Range is understood."""
    caller, run_id = await _caller(request, "read_logs"), request.path_params["run"]

    wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
    start = int(wanted[1]) if wanted else 0

    def found() -> Any:
        submissions = _submissions(request)
        submissions.of_run(caller, run_id)
        return submissions.place.output(run_id, request.path_params["path"], start=start)

    file = await _in_thread(request, found)
    return _streamed(file)


def _streamed(file: OutputStream) -> Response:
    """Answer with a file; of one that was asked for from its end on there is nothing."""
    if file.start and file.start >= file.size:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{file.size}"})
    headers = {"Content-Length": str(file.size - file.start), "Accept-Ranges": "bytes"}
    if file.start:
        headers["Content-Range"] = f"bytes {file.start}-{file.size - 1}/{file.size}"
    code = 206 if file.start else 200
    return StreamingResponse(file.pieces, status_code=code, headers=headers)


async def show_bill(request: Request) -> Response:
    """What the run has cost so far; `format=csv` for a table."""
    run_id, _ = await _run(request, "read")
    bill = await _in_thread(request, run_bill, _submissions(request).launcher, run_id)
    if request.query_params.get("format") == "csv":
        return Response(bill_csv(bill), media_type="text/csv")
    return JSONResponse(bill.to_json())


async def stop(request: Request) -> Response:
    """End the run."""
    run_id, caller = await _run(request, "act")
    await _in_thread(request, _submissions(request).launcher.stop, run_id, caller.account)
    return JSONResponse({"run": run_id}, status_code=202)


async def _caller(request: Request, right: RunRight) -> Caller:
    admission: Admission = request.app.state.admission
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    given = key.strip() if scheme.lower() == "bearer" else ""
    return await _in_thread(request, partial(admission.login, given, right=right))


async def _run(request: Request, right: RunRight) -> tuple[str, Caller]:
    """The run in the path, where whoever asks may do that to it."""
    caller, run_id = await _caller(request, right), str(request.path_params["run"])
    await _in_thread(request, _submissions(request).of_run, caller, run_id)
    return run_id, caller


async def _in_thread(request: Request, work: Callable[..., Answer], *args: Any) -> Answer:
    return await anyio.to_thread.run_sync(partial(work, *args), limiter=request.app.state.threads)


async def _run_data(request: Request) -> RunData:
    """The data of the run in the path: whoever sends it has to be who sent the run."""
    caller, run_id = await _caller(request, "submit"), str(request.path_params["run"])
    find = partial(_submissions(request).data_of_run, run_id, account=caller.account)
    data = await _in_thread(request, find)
    if data is None:
        raise KeyError(f"data of {run_id}")
    return data


async def _json_body(request: Request) -> Any:
    body = b""
    async for data in request.stream():
        body += data
        if len(body) > _SUBMISSION_BYTES:
            raise _too_large(_SUBMISSION_BYTES)
    return _parsed(body)


def _parsed(body: bytes) -> Any:
    try:
        document = json.loads(body, parse_constant=_no_constant)
        json.dumps(
            document, ensure_ascii=False
        ).encode()  # half a character, which no answer can hold
    except (ValueError, RecursionError):
        raise InputError.of(code="wrong_type", field="", message="is no JSON") from None
    return document


def _no_constant(name: str) -> None:
    """Not a number, or without an end: Python reads it, and JSON has none such."""
    raise ValueError(name)


def _number(request: Request, name: str, default: int | None = None, *, least: int = 0) -> int:
    text = request.query_params.get(name)
    try:
        number = default if text is None else int(text)
    except ValueError:
        number = None
    if number is None or not least <= number <= _MOST_NUMBER:
        raise InputError.of(code="wrong_type", field=name, message="is no whole number", value=text)
    return number


def _submissions(request: Request) -> Submissions:
    submissions: Submissions = request.app.state.submissions
    return submissions


async def _refuse(request: Request, error: TrainingError) -> Response:
    del request
    codes = (
        (LoginRefused, 401, "login"),
        (RightRefused, 403, "login"),
        (QuotaRefused, 402, "quota"),
        (InputError, 422, "submission"),
    )
    for kind, code, stage in codes:
        if isinstance(error, kind):
            return JSONResponse(problems_to_json(stage, error.problems), status_code=code)
    return _unavailable(str(error))


async def _break_down(request: Request, error: OSError) -> Response:
    """A full disk, a folder that may not be written: who serves has to know, and whoever sends too."""
    del request
    log.error("%s", error, exc_info=error)
    return _unavailable(f"the service's own machine: {error.strerror or error}")


def _unavailable(message: str) -> Response:
    problem = Problem(code="unavailable", field="", message=message)
    return JSONResponse(problems_to_json("service", [problem]), status_code=503)


async def _leave(request: Request, error: ClientDisconnect) -> Response:
    """Answer nobody: who has sent is gone."""
    del request, error
    return Response(status_code=400)


async def _unknown(request: Request, error: KeyError) -> Response:
    del request
    problem = Problem(
        code="not_found",
        field="",
        message=f"this service knows no {error.args[0]}",
        hint="airflow-training cloud list",
    )
    return JSONResponse(problems_to_json("submission", [problem]), status_code=404)


def _too_large(most: int) -> InputError:
    return InputError.of(
        code="out_of_range", field="body", message=f"is larger than {most >> 20} MiB"
    )
