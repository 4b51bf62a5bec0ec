"""`airflow-training ui`: the pages on this machine, without Airflow."""

from __future__ import annotations

import secrets
import socket
import threading
from typing import Annotated

import typer

from airflow_training.cli.context import open_store
from airflow_training.cli.output import fail, note

__all__ = ["Pages", "ui"]

_HOST = "127.0.0.1"


def ui(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Show the runs of this machine as pages, until interrupted.

    Only this machine reaches them, and only with the token in the address that is printed.
    """
    open_store()  # says now what is wrong with it
    pages = Pages(port)
    address = pages.address()
    print(address, flush=True)
    note("the pages are there until you press Ctrl-C")
    if browser:
        import webbrowser

        webbrowser.open(address)
    pages.serve()


class Pages:
    """The pages of this machine's runs, on a port of its loopback address."""

    def __init__(self, port: int = 0) -> None:
        """Listen, but serve nothing yet; raises InputError where the port or a package cannot be had."""
        try:
            import uvicorn

            from airflow_training.web.standalone import standalone_app
        except ModuleNotFoundError as error:
            raise fail(
                "ui",
                f"the pages need {error.name}, which is not installed",
                code="not_supported",
                hint="pip install 'airflow-training[ui]'",
            ) from None
        self._token = secrets.token_urlsafe(32)
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((_HOST, port))
            self._listener.listen(128)  # a browser that is faster than the server waits
        except OSError as error:
            self._listener.close()
            text = f"port {port} cannot be used: {error.strerror}"
            raise fail("--port", text, value=port, hint="without --port, any free one is") from None
        config = uvicorn.Config(
            standalone_app(self._token),
            log_level="warning",
            access_log=False,  # its lines would hold the token
            timeout_graceful_shutdown=1,  # pages that follow a run would keep it for minutes
        )
        self._server = uvicorn.Server(config)

    def address(self, run_uid: str = "") -> str:
        """Return where the list is, or the page of one run; whoever has it is let in."""
        page = f"runs/{run_uid}" if run_uid else ""
        return f"http://{_HOST}:{self._listener.getsockname()[1]}/{page}?token={self._token}"

    def serve(self) -> None:
        """Serve until interrupted."""
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._listener.close()

    def serve_in_background(self) -> None:
        """Serve until this process ends; returns at once."""
        threading.Thread(target=self.serve, name="training-pages", daemon=True).start()
