"""What a reader's machine has: a cluster whose image holds the folder's script, an object store."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

__all__ = ["SUPPLIES"]


def _cluster(
    request: pytest.FixtureRequest, folder: Path, *, image: str, starts_in: Path
) -> Mapping[str, str]:
    cluster = request.getfixturevalue("cluster")
    cluster.control.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}}
    )
    cluster.control.image_starts_in(image, str(starts_in))
    return {"KUBECONFIG": str(cluster.write_kubeconfig(folder.parent / "kubeconfig"))}


def _of_readme(request: pytest.FixtureRequest, folder: Path) -> Mapping[str, str]:
    return _cluster(request, folder, image="registry.example/digits:1", starts_in=folder)


def _of_kubernetes(request: pytest.FixtureRequest, folder: Path) -> Mapping[str, str]:
    """The namespace and the image that its first commands make."""
    example = ROOT / "dags" / "examples" / "digits"
    return _cluster(request, folder, image="registry.example/digits:1", starts_in=example)


def _of_clusters(request: pytest.FixtureRequest, folder: Path) -> Mapping[str, str]:
    image = "airflow-training/digits:latest"
    return _cluster(request, folder, image=image, starts_in=folder / "measure")


def _of_logs(request: pytest.FixtureRequest, _: Path) -> Mapping[str, str]:
    """An object store that holds the log of a rank."""
    import s3fs  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    request.addfinalizer(server.stop)
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    files = s3fs.S3FileSystem(key="test", secret="test", endpoint_url=address)
    files.mkdir("logs")
    lines = (f"2026-01-31 08:{30 + n}:00 step: {n} loss: {1 / (n + 1):.3f}\n" for n in range(9))
    files.pipe("logs/run/rank0.log.gz", gzip.compress("".join(lines).encode()))
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
    }


SUPPLIES: Mapping[str, Callable[[pytest.FixtureRequest, Path], Mapping[str, str]]] = {
    "README.md": _of_readme,
    "clusters.md": _of_clusters,
    "kubernetes.md": _of_kubernetes,
    "logs.md": _of_logs,
}
