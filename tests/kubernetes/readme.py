"""The job that the README shows, as it stands there, on an emulated cluster."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.emulator import Cluster

__all__ = ["readme_job"]

_ROOT = Path(__file__).parents[2]
_IMAGE = "registry.example/digits:1"


def readme_job(cluster: Cluster) -> str:
    """Return the job's YAML, and let its image hold the script of the example."""
    cluster.control.image_starts_in(_IMAGE, str(_ROOT / "dags" / "examples" / "digits"))
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    job = readme[readme.index("apiVersion:") :].partition("```")[0]
    assert f"image: {_IMAGE}" in job
    return job
