"""The protocol over HTTP: which path leads to what. Starlette, so that it starts fast; no Airflow."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from airflow_training import __version__
from airflow_training.accounts.bills import bill_csv
from airflow_training.cloud.packing import PackHeader, header_line
from airflow_training.cloud.protocol import (
    CLIENT_PATH,
    PREFIX,
    VERSION,
    SubmissionRequest,
    problems_to_json,
)
from airflow_training.cloud.service.admission import Admission, LoginRefused, QuotaRefused
from airflow_training.cloud.service.client_wheel import client_wheel
from airflow_training.cloud.service.places import OutputStream
from airflow_training.cloud.service.runs import read_log, request_stop, run_bill, run_state
from airflow_training.cloud.service.submissions import Submissions
from airflow_training.errors import InputError, Problem, TrainingError
from airflow_training.state.account_records import KeyScope

__all__ = ["cloud_app"]

_RANGE = re.compile(r"bytes=(\d{1,18})-")
_SUBMISSION_BYTES = 1 << 20
_SENDING_BYTES = 8 << 30
_MOST_NUMBER = (1 << 63) - 1
"""Of bytes in a file."""
Handler = Callable[[Request], Awaitable[Response]]


def cloud_app(submissions: Submissions, admission: Admission) -> Starlette:
    """The app of a service, below `protocol.PREFIX`."""
    routes = [
        Route("/", about),
        Route("/submissions", submit, methods=["POST"]),
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
    ]
    handlers: dict[Any, Any] = {TrainingError: _refuse, KeyError: _unknown}
    client = [Route(CLIENT_PATH, describe_client), Route(f"{CLIENT_PATH}/{{name}}", send_client)]
    app = Starlette(routes=[*client, Mount(PREFIX, routes=routes)], exception_handlers=handlers)
    app.state.submissions = submissions
    app.state.admission = admission
    return app


async def about(request: Request) -> Response:
    """Say who serves; the only answer that needs no key."""
    del request
    return JSONResponse({"protocol": VERSION, "version": __version__})


async def describe_client(request: Request) -> Response:
    """Version, digest and install command of the client that fits this service; needs no key."""
    wheel = await run_in_threadpool(client_wheel)
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
    wheel = await run_in_threadpool(client_wheel)
    if request.path_params["name"] != wheel.name:
        raise KeyError(request.path_params["name"])
    return Response(wheel.data, media_type="application/zip")


async def submit(request: Request) -> Response:
    """Login, quota and environment are answered here, before content moves."""
    account = await _account(request)
    document = await _json_body(request)
    wanted = SubmissionRequest.from_json(document)
    answer = await run_in_threadpool(_submissions(request).submit, account, wanted)
    return JSONResponse(answer.to_json(), status_code=201)


async def take_pack(request: Request) -> Response:
    """Contents, several in a body; what has arrived stays, should the rest not come."""
    account = await _account(request)
    writer = await run_in_threadpool(
        _submissions(request).writer, account, request.path_params["id"]
    )
    received = 0
    try:
        async for data in request.stream():
            received += len(data)
            if received > _SENDING_BYTES:
                raise _too_large(_SENDING_BYTES)
            writer.write(data)  # into the page cache: no longer than a turn to a thread would take
        writer.close()
    except ClientDisconnect:
        writer.abandon()
        return Response(status_code=400)
    except InputError:
        writer.abandon()
        raise
    return JSONResponse({"received": received})


async def take_blob(request: Request) -> Response:
    """One content, from `offset` on; `size` is that of all of it."""
    account = await _account(request)
    writer = await run_in_threadpool(
        _submissions(request).writer, account, request.path_params["id"]
    )
    size = _number(request, "size", least=0)
    header = PackHeader(
        sha256=request.path_params["sha256"], size=size, offset=_number(request, "offset", 0)
    )
    try:
        writer.write(header_line(header))
        async for data in request.stream():
            writer.write(data)
        writer.close()
    except ClientDisconnect:
        writer.abandon()
        return Response(status_code=400)
    except InputError:
        writer.abandon()
        raise
    return JSONResponse({"received": size - header.offset})


async def start(request: Request) -> Response:
    """Lay the tree out, compare its digest, run it."""
    account = await _account(request)
    run_id = await run_in_threadpool(
        _submissions(request).start, account, request.path_params["id"]
    )
    return JSONResponse({"run": run_id})


async def list_runs(request: Request) -> Response:
    """The runs of the account."""
    account = await _account(request)
    submissions = _submissions(request)

    def rows() -> list[Mapping[str, Any]]:
        return [run_state(each).to_json() for each in submissions.run_ids(account)]

    return JSONResponse({"runs": await run_in_threadpool(rows)})


async def show_run(request: Request) -> Response:
    """How a run stands, with the progress of each rank."""
    run_id = await _own_run(request)
    state = await run_in_threadpool(run_state, run_id)
    return JSONResponse(state.to_json())


async def show_log(request: Request) -> Response:
    """Bytes of what a rank printed; where to go on stands in the headers."""
    run_id = await _own_run(request)

    def read() -> Response:
        stretch = read_log(
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

    return await run_in_threadpool(read)


async def show_result(request: Request) -> Response:
    """What the run wrote: files that come back, with their digests."""
    account, run_id = await _account(request), request.path_params["run"]

    def result() -> Mapping[str, Any]:
        submissions = _submissions(request)
        return submissions.place.result(submissions.of_run(account, run_id), run_id)

    return JSONResponse(await run_in_threadpool(result))


async def send_file(request: Request) -> Response:
    """A file that the run wrote; Range is understood."""
    account, run_id = await _account(request), request.path_params["run"]

    wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
    start = int(wanted[1]) if wanted else 0

    def found() -> Any:
        submissions = _submissions(request)
        submissions.of_run(account, run_id)
        return submissions.place.output(run_id, request.path_params["path"], start=start)

    file = await run_in_threadpool(found)
    return FileResponse(file) if isinstance(file, Path) else _streamed(file)


def _streamed(file: OutputStream) -> Response:
    """Answer with a file that lies in a storage, as `FileResponse` would."""
    if file.start and file.start >= file.size:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{file.size}"})
    headers = {"Content-Length": str(file.size - file.start), "Accept-Ranges": "bytes"}
    if file.start:
        headers["Content-Range"] = f"bytes {file.start}-{file.size - 1}/{file.size}"
    code = 206 if file.start else 200
    return StreamingResponse(file.pieces, status_code=code, headers=headers)


async def show_bill(request: Request) -> Response:
    """What the run has cost so far; `format=csv` for a table."""
    run_id = await _own_run(request)
    bill = await run_in_threadpool(run_bill, run_id)
    if request.query_params.get("format") == "csv":
        return Response(bill_csv(bill), media_type="text/csv")
    return JSONResponse(bill.to_json())


async def stop(request: Request) -> Response:
    """End the run."""
    account, run_id = await _account(request), await _own_run(request)
    await run_in_threadpool(lambda: request_stop(run_id, by=account))
    return JSONResponse({"run": run_id}, status_code=202)


async def _account(request: Request) -> str:
    admission: Admission = request.app.state.admission
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    given = key if scheme.lower() == "bearer" else ""
    scope: KeyScope = "read" if request.method == "GET" else "submit"
    return await run_in_threadpool(partial(admission.login, given, scope=scope))


async def _own_run(request: Request) -> str:
    account, run_id = await _account(request), str(request.path_params["run"])
    await run_in_threadpool(_submissions(request).of_run, account, run_id)
    return run_id


async def _json_body(request: Request) -> Any:
    body = b""
    async for data in request.stream():
        body += data
        if len(body) > _SUBMISSION_BYTES:
            raise _too_large(_SUBMISSION_BYTES)
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
        (QuotaRefused, 402, "quota"),
        (InputError, 422, "submission"),
    )
    for kind, code, stage in codes:
        if isinstance(error, kind):
            return JSONResponse(problems_to_json(stage, error.problems), status_code=code)
    problem = Problem(code="unavailable", field="", message=str(error))
    return JSONResponse(problems_to_json("service", [problem]), status_code=503)


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
