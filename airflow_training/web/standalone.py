"""The pages without Airflow, for whoever has the token. Imports nothing of Airflow."""

from __future__ import annotations

import hmac
import html
from collections.abc import Collection
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.port import Runtime
from airflow_training.settings import user_name
from airflow_training.supervise.runtimes import open_runtime
from airflow_training.web.app import add_routes
from airflow_training.web.command_runs import CommandRuns
from airflow_training.web.rights import User, Verb, keep_user
from airflow_training.web.static_files import manifest

__all__ = ["TokenRights", "runtime_of", "standalone_app"]

_STRANGER = "open the address that `airflow-training ui` printed"
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
_ICON = (
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>"
    "<rect width='16' height='16' rx='3' fill='%230072b2'/>"
    "<path d='M3 3q2 9 10 9' fill='none' stroke='white' stroke-width='2'/></svg>"
)
"""A loss that falls."""
_NO_PAGES = "The pages are not built here; the API below /training/api works."


class TokenRights:
    """One user, who started the server and may do anything; see `rights.Rights`."""

    standalone = True

    def __init__(self, token: str) -> None:
        self._token = token
        self._user = User(name=user_name())

    async def authenticate(
        self, request: Request, authorization: Annotated[str, Header()] = ""
    ) -> None:
        """Keep the user for the token, in the cookie or as a bearer's."""
        scheme, _, bearer = authorization.partition(" ")
        in_header = scheme.lower() == "bearer" and self.knows(bearer.strip())
        if not in_header and not self.has_cookie(request):
            raise HTTPException(401, _STRANGER)
        keep_user(request, self._user)

    def has_cookie(self, request: Request) -> bool:
        """Return whether a browser shows the token."""
        return self.knows(request.cookies.get(_cookie(request), ""))

    def knows(self, token: str) -> bool:
        """Return whether this is the token."""
        return hmac.compare_digest(token.encode(), self._token.encode())

    def may(self, user: User, verb: Verb, dag_id: str | None) -> bool:  # noqa: ARG002 - the protocol's
        """Return True: it is their machine."""
        return True

    def may_read_of(self, user: User, dag_ids: Collection[str]) -> Collection[str]:  # noqa: ARG002 - the protocol's
        """Return all of them."""
        return dag_ids

    def readable(self, user: User) -> Collection[str] | None:  # noqa: ARG002 - the protocol's
        """Return None: all."""
        return None

    def team_of(self, dag_id: str) -> str | None:  # noqa: ARG002 - the protocol's
        """Return None: teams are Airflow's."""
        return None

    def sources(self) -> Collection[str] | None:
        """Return None: whatever is in their store."""
        return None


def standalone_app(token: str) -> FastAPI:
    """Return the app for this token: pages at `/`, `/new`, `/usage` and `/runs/<uid>`, all else below `/training`."""
    rights = TokenRights(token)
    training = FastAPI(title="Training", docs_url=None, redoc_url=None, openapi_url=None)
    add_routes(training, rights, runtime_of=runtime_of, new_runs=CommandRuns())
    app = FastAPI(title="airflow-training", docs_url=None, redoc_url=None, openapi_url=None)
    # a page of another site that resolves its own name to this machine is not answered
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    app.mount("/training", training)

    def page(request: Request, token: str = "") -> Response:
        if token and rights.knows(token):
            answer = RedirectResponse(request.url.path, status_code=303)
            answer.set_cookie(_cookie(request), token, httponly=True, samesite="strict")
            return answer
        return _shell(200) if rights.has_cookie(request) else _stranger()

    def no_page(request: Request) -> Response:
        # the shell says so, with a way back
        return _shell(404) if rights.has_cookie(request) else _stranger()

    app.get("/", response_class=HTMLResponse)(page)
    app.get("/new", response_class=HTMLResponse)(page)
    app.get("/usage", response_class=HTMLResponse)(page)
    app.get("/runs/{uid}", response_class=HTMLResponse)(page)
    app.get("/{path:path}", response_class=HTMLResponse)(no_page)
    return app


def _cookie(request: Request) -> str:
    """Return the name of the cookie: browsers send those of all ports of this machine to each."""
    return f"training_token_{request.url.port or 80}"


def _stranger() -> Response:
    """Return what who has no token is told."""
    return PlainTextResponse(_STRANGER, status_code=401)


def _shell(status: int) -> Response:
    """Return the page without anything in it; what it shows, its script asks for."""
    names = manifest()
    style, script = names.get("style"), names.get("shell")
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><base href="/">'
        '<meta name="viewport" content="width=device-width"><title>Trainings</title>'
        + f'<link rel="icon" href="{html.escape(_ICON)}">'
        + (f'<link rel="stylesheet" href="training/static/{html.escape(style)}">' if style else "")
        + '</head><body><div id="root">'
        + ("" if script else _NO_PAGES)
        + "</div>"
        + (
            f'<script type="module" src="training/static/{html.escape(script)}"></script>'
            if script
            else ""
        )
        + "</body></html>"
    )
    return HTMLResponse(text, status, headers={"Content-Security-Policy": _POLICY})


def runtime_of(job: ResolvedJob) -> Runtime:
    """Return the runtime of a job, reached as this machine's user reaches it."""
    return open_runtime(job.runtime, connection=job.connection)
