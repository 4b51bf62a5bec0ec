"""What a service says where it refuses, as JSON. Light: the client reads it before it imports the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.errors import Problem

__all__ = ["problems_from_json", "problems_to_json"]


def problems_to_json(stage: str, problems: Sequence[Problem]) -> Mapping[str, Any]:
    """`stage`: what refuses: login, quota, environment, submission, content."""
    rows = [
        {
            "code": each.code,
            "field": each.field,
            "message": each.message,
            "value": each.value,
            "allowed": list(each.allowed),
            "hint": each.hint,
        }
        for each in problems
    ]
    return {"stage": stage, "problems": rows}


def problems_from_json(document: Mapping[str, Any]) -> Sequence[Problem]:
    """The problems of an answer that refuses; none where it is no such answer."""
    try:
        return [Problem(**each) for each in document["problems"]]
    except (KeyError, TypeError):
        return ()
