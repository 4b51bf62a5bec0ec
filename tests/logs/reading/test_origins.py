"""File names say who wrote them."""

from __future__ import annotations

import pytest

from airflow_training.logs.reading.origins import origin_of


@pytest.mark.parametrize(
    ("name", "role", "index", "rank"),
    [
        ("rank3.log", "", 0, 3),
        ("logs/rank_12.txt", "", 0, 12),
        ("s3://bucket/run/train_3.log.gz", "", 0, 3),
        ("job.out.5", "", 0, 5),
        ("worker-3", "worker", 3, 3),
        ("digits-worker-11.log", "worker", 11, 11),
        ("train.log", "", 0, None),
        ("log_20260131.txt", "", 0, None),
        ("llama-7", "", 0, None),
        ("none/attempt_0/3/stderr.log", "", 0, 3),
    ],
)
def test_names(name, role, index, rank):
    origin = origin_of(name)
    assert (origin.file, origin.role, origin.index, origin.rank) == (name, role, index, rank)
