"""Prints the OpenAPI document of the API: `python -m airflow_training.web.openapi`. The pages' types are made from it."""

from __future__ import annotations

import json
import sys
from typing import Any

from fastapi import FastAPI

from airflow_training.web.app import add_routes
from airflow_training.web.command_runs import CommandRuns
from airflow_training.web.standalone import TokenRights, runtime_of

__all__ = ["openapi_document"]


def openapi_document() -> dict[str, Any]:
    """Return the document; the same wherever the API is mounted."""
    app = FastAPI(title="Training", version="1")
    add_routes(app, TokenRights(""), runtime_of=runtime_of, new_runs=CommandRuns())
    return app.openapi()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(openapi_document(), indent=1, sort_keys=True))
