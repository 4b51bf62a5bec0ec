"""The built pages: which files there are, and the route that serves them, to strangers too."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse

__all__ = ["FOLDER", "manifest", "router"]

FOLDER = Path(__file__).with_name("static")
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
_HASHED = re.compile(r"\.[A-Za-z0-9]{8,}\.[a-z0-9]+(\.map)?$")
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}

router = APIRouter()


@functools.cache
def manifest() -> Mapping[str, str]:
    """Names of the built parts of the pages; empty where they were not built."""
    try:
        found = json.loads((FOLDER / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@router.get("/static/{name}")
def static(name: str) -> FileResponse:
    """Return a file of the pages. A name with a digest in it never means another content."""
    path = FOLDER / name
    media_type = _TYPES.get(path.suffix)
    if media_type is None or not _NAME.fullmatch(name) or not path.is_file():
        raise HTTPException(404, "there is no such file")
    cached = "public, max-age=31536000, immutable" if _HASHED.search(name) else "no-cache"
    headers = {"Cache-Control": cached, "X-Content-Type-Options": "nosniff"}
    return FileResponse(path, media_type=media_type, headers=headers)
