"""Ranks that have the same GPU are refused on each of them, before NCCL says a bus number."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import HashStore

from airflow_training.errors import InputError
from airflow_training.execution.mesh import _check_devices

pytestmark = pytest.mark.e2e


def refusals(devices: Sequence[str]) -> list[str]:
    store = HashStore()

    def check(rank: int) -> str:
        try:
            _check_devices(store, rank, len(devices), devices[rank])
        except InputError as error:
            return error.problems[0].message
        return ""

    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(check, range(len(devices))))


def test_each_rank_names_those_that_share_a_gpu():
    found = refusals(["one", "two", "one"])
    assert found == ["ranks 0, 2 have the same GPU, GPU-one"] * 3


def test_ranks_with_gpus_of_their_own_go_on():
    assert refusals(["one", "two"]) == ["", ""]
