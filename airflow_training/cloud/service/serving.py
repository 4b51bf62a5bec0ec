"""Serves the app on a socket: in the foreground, or for one client of this machine until that ends."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import threading
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from airflow_training.accounts.operations import is_in_use
from airflow_training.cloud.protocol import problems_to_json
from airflow_training.cloud.service.account_admission import AccountAdmission
from airflow_training.cloud.service.admission import Admission, KeyAdmission
from airflow_training.cloud.service.app import cloud_app
from airflow_training.cloud.service.image_records import catalogue_of
from airflow_training.cloud.service.launching import ProcessLauncher
from airflow_training.cloud.service.storage_place import StoragePlace
from airflow_training.cloud.service.submissions import Submissions
from airflow_training.cloud.target_settings import TargetSettings
from airflow_training.cloud.targets import cloud_folder, find_target
from airflow_training.errors import InputError
from airflow_training.state.store import open_store

__all__ = ["admission_of", "main", "make_server", "make_service"]

_HOST = "127.0.0.1"


def admission_of(key: str) -> tuple[Admission, bool]:
    """Who is let in: the accounts of the store where it keeps any (then True), else whoever has the key."""
    store = open_store()
    if is_in_use(store):
        return AccountAdmission(store), True
    return KeyAdmission(key, account="service"), False


def make_service(
    folder: Path,
    admission: Admission,
    *,
    same_machine: bool,
    settings: TargetSettings | None = None,
) -> ASGIApp:
    """The app over the store of the settings, with its content in a folder; raises InputError.

    `settings`: where its runs go, else to folders of this machine. An image is asked first what it has.
    """
    open_store()  # says now what is wrong with it
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)  # programs and the values of their variables
    except OSError as error:
        raise InputError.of(
            code="not_allowed",
            field="AIRFLOW_HOME",
            value=str(folder),
            message=f"{folder} cannot be written: {error.strerror}",
        ) from None
    place = None
    if settings is not None:
        catalogue = catalogue_of(settings, folder / "images")
        place = partial(StoragePlace, settings, catalogue)
    submissions = Submissions(
        folder, admission, ProcessLauncher(), same_machine=same_machine, place=place
    )
    return cloud_app(submissions, admission)


def make_server(app: ASGIApp, *, grace_seconds: int = 5) -> uvicorn.Server:
    """A server of the app that prints nothing but warnings."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=grace_seconds
    )
    return uvicorn.Server(config)


def main() -> None:
    """Serve whoever has started this process, until its end of our standard input closes.

    It says the port on standard output, or what is wrong with the settings, and is given the key in the
    first line of the input. An argument names the target whose settings say where runs go.
    """
    key = sys.stdin.readline().strip()
    admission = KeyAdmission(key, account=_user())
    folder, settings = cloud_folder() / "service", None
    try:
        for name in sys.argv[1:]:
            folder = cloud_folder() / "direct" / name
            settings = TargetSettings.from_json(find_target(name).settings, field="")
        app = make_service(folder, admission, same_machine=settings is None, settings=settings)
    except InputError as error:
        json.dump(problems_to_json("service", error.problems), sys.stdout)
        sys.exit(2)
    server = make_server(app, grace_seconds=1)
    listener = socket.socket()
    listener.bind((_HOST, 0))
    listener.listen(64)
    sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
    sys.stdout.flush()

    def wait() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=wait, daemon=True).start()
    server.run(sockets=[listener])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return f"uid {os.getuid()}"


if __name__ == "__main__":
    main()
