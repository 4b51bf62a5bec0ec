"""Short logs of many programs, each with health, cause, rank, and whether another try helps; the values are invented, the messages have their programs' form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.logs.model import Diagnosis
from tests.logs.diagnosis.asking import ask

CASES = [
    case
    for path in sorted((Path(__file__).parent / "situations").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8"))
]
HELPS = {"yes": {"yes", "once", "unknown"}, "no": {"no"}, "any": {"yes", "once", "no", "unknown"}}
"""What counts: another node, or one more try, is a yes."""


def wrong(case: dict[str, Any], found: Diagnosis) -> dict[str, Any]:
    """Return what a diagnosis says otherwise than a case expects; `cause` and `rank` list all that is right."""
    if case["cause"] == "healthy":
        return {} if found.healthy else {"health": found.causes[0] if found.causes else "failed"}
    if not found.causes:
        return {"health": "healthy"}
    root = found.causes[0]
    told: dict[str, object] = {}
    if root.id not in case["cause"].split():
        told["cause"] = root.id
    if root.rank not in case["rank"]:
        told["rank"] = root.rank
    if root.retryable not in HELPS[case["again"]]:
        told["again"] = root.retryable
    return told


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_situation_is_told_right(case):
    assert not wrong(case, ask(case.get("logs") or case["log"]))
