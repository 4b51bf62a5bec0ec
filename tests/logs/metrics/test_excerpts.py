"""Excerpts in the shapes that many programs print, and values that a person reads in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.logs.engine import scan
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from airflow_training.logs.reading.memory import BytesLog

EXCERPTS = yaml.safe_load(Path(__file__).with_name("excerpts.yaml").read_text("utf-8"))


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda each: each["name"])
def test_an_excerpt_has_these_values(excerpt: dict[str, Any]):
    log = BytesLog("log", excerpt["log"].encode())
    found = scan(Origin(file="log"), log, signatures=(), formats=formats()).series
    for metric, step, value in excerpt["values"]:
        points = [
            (at, of_metric)
            for each in found
            if each.metric == metric
            for at, of_metric in zip(each.steps.tolist(), each.values.tolist(), strict=True)
        ]
        assert any(
            of_metric == pytest.approx(float(value), rel=1e-9) and step in (None, at)
            for at, of_metric in points
        ), (metric, step, value, points)
