"""Routes that read no more of a request than a document may have."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

__all__ = ["DocumentRoute"]

MOST_BYTES = 2 * 1024 * 1024
"""More than the longest document takes as JSON."""


class DocumentRoute(APIRoute):
    """Answers 413 as soon as a request is longer, before it is in memory."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which reads by a counting `receive`."""
        handle = super().get_route_handler()

        async def handle_limited(request: Request) -> Response:
            read = 0

            async def receive() -> MutableMapping[str, Any]:
                nonlocal read
                message = await request.receive()
                read += len(message.get("body", b""))
                if read > MOST_BYTES:
                    raise HTTPException(413, f"a request has at most {MOST_BYTES} bytes")
                return message

            try:
                return await handle(Request(request.scope, receive))
            except RequestValidationError as error:
                # not what was sent: it is long, and half a character of it cannot be answered
                told = [
                    {name: value for name, value in each.items() if name not in ("input", "ctx")}
                    for each in error.errors()
                ]
                raise RequestValidationError(told) from error

        return handle_limited
