"""Serves the app on a socket: in the foreground, or for clients of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from airflow_training.cloud.refusals import problems_to_json
from airflow_training.cloud.service.admission import Admission, KeyAdmission
from airflow_training.cloud.service.app import cloud_app
from airflow_training.cloud.service.image_records import catalogue_of
from airflow_training.cloud.service.launching import ProcessLauncher
from airflow_training.cloud.service.storage_place import StoragePlace
from airflow_training.cloud.service.submissions import Submissions
from airflow_training.cloud.service.use import AppUse
from airflow_training.cloud.service_record import ServiceRecord, is_published, publish_service
from airflow_training.cloud.target_settings import TargetSettings
from airflow_training.cloud.targets import cloud_folder, find_target
from airflow_training.errors import InputError
from airflow_training.settings import user_name
from airflow_training.state.store import open_store

__all__ = ["main", "make_server", "make_service"]

_HOST = "127.0.0.1"
_GRACE_SECONDS = 2.0


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
        place = partial(StoragePlace, settings, catalogue, folder / "environments")
    submissions = Submissions(
        folder,
        admission,
        ProcessLauncher(),
        same_machine=same_machine,
        place=place,
        resources=None if settings is None else settings.resources,
    )
    return cloud_app(submissions, admission)


def make_server(app: ASGIApp, *, grace_seconds: int = 5) -> uvicorn.Server:
    """A server of the app that prints nothing but warnings."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=grace_seconds,
        ws="none",  # the protocol has none, and what reads them takes 20 ms to import
    )
    return uvicorn.Server(config)


def main() -> None:
    """Serve whoever has started this process until its end of our standard input closes, and then whoever comes.

    The first line of the input says the key, the target whose settings say where runs go (empty: this machine) and,
    where `idle_seconds` is not 0, how long to wait for others, and under which conditions it was started. It says the port
    on standard output, or what is wrong with the settings.
    """
    order = json.loads(sys.stdin.readline())
    admission = KeyAdmission(order["key"], account=user_name())
    folder, settings = cloud_folder() / "service", None
    try:
        if name := order["target"]:
            folder = cloud_folder() / "direct" / name
            settings = TargetSettings.from_json(find_target(name).settings, field="")
        app = make_service(folder, admission, same_machine=settings is None, settings=settings)
    except InputError as error:
        json.dump(problems_to_json("service", error.problems), sys.stdout)
        sys.exit(2)
    use = AppUse(app)
    server = make_server(use, grace_seconds=1)
    listener = socket.socket()
    listener.bind((_HOST, 0))
    listener.listen(64)
    port: int = listener.getsockname()[1]
    published = contextlib.ExitStack()
    record = ServiceRecord(pid=os.getpid(), port=port, key=order["key"])
    stays = order["idle_seconds"] > 0 and published.enter_context(
        publish_service(order["conditions"], record)
    )
    said = json.dumps({"port": port, "stays": stays})
    with contextlib.suppress(
        BrokenPipeError
    ):  # whoever started it was refused meanwhile, or gave up
        os.write(sys.stdout.fileno(), f"{said}\n".encode())

    def wait() -> None:
        sys.stdin.read()
        if stays:
            use.wait_idle(
                order["idle_seconds"], wanted=lambda: is_published(order["conditions"], record)
            )
            published.close()
            time.sleep(_GRACE_SECONDS)  # who found it a moment ago is served
        server.should_exit = True

    threading.Thread(target=wait, daemon=True).start()
    with published:
        server.run(sockets=[listener])
