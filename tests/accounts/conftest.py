"""The databases of `tests/state`, for whatever reads and writes accounts."""

from __future__ import annotations

from tests.state.conftest import clock, open_another, postgres, server, store, url

__all__ = ["clock", "open_another", "postgres", "server", "store", "url"]
