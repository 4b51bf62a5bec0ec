"""A user's first log: what is small is understood before Hyperscan would have compiled its patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.logs.engine import scan
from airflow_training.logs.engine.automaton import COMPILED_FROM_BYTES, Hyperscan, automaton_for
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.model import Origin
from tests.logs.engine.sources import Dribble

hyperscan = pytest.importorskip("hyperscan", reason="of the extra `logs`")

PATTERNS = [Pattern(name="full", pattern="No space left on device")]
BLOCK = bytearray(b"all is well\nOSError: No space left on device\n")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "airflow-training"


def test_nothing_is_compiled_for_a_small_log(cache: Path):
    found = automaton_for(PATTERNS, [], size=len(BLOCK))
    assert not isinstance(found, Hyperscan)
    assert found.candidates(BLOCK, anchors=False).signatures == [0]
    assert not cache.exists()


@pytest.mark.parametrize("size", [COMPILED_FROM_BYTES, None], ids=["large", "not-known"])
def test_what_was_compiled_for_a_large_log_serves_small_ones(size: int | None, cache: Path):
    assert isinstance(automaton_for(PATTERNS, [], size=size), Hyperscan)
    found = automaton_for(PATTERNS, [], size=len(BLOCK))
    assert isinstance(found, Hyperscan)
    assert found.candidates(BLOCK, anchors=False).signatures == [0]


def test_nothing_is_compiled_for_a_small_log_that_does_not_tell_its_size(cache: Path):
    """As one of a run is: its runtime is asked for the next bytes."""
    log = Dribble(bytes(BLOCK), [7])
    found = scan(Origin(file="worker-0"), log, signatures=PATTERNS)
    assert [each.signature for each in found.hits] == ["full"]
    assert not list(cache.glob("hyperscan-*"))
