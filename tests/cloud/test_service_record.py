"""Where a service of this machine is found that outlives its client."""

from __future__ import annotations

import contextlib

from airflow_training.cloud.service_record import (
    ServiceRecord,
    find_service,
    is_published,
    publish_service,
)
from airflow_training.cloud.targets import cloud_folder


def test_a_service_whose_folder_was_moved_away_ends_and_leaves_the_next_one_its_record(
    airflow_home,
):
    first, second = (ServiceRecord(pid=number, port=number, key="k") for number in (1, 2))
    with contextlib.ExitStack() as old, contextlib.ExitStack() as new:
        assert old.enter_context(publish_service("c", first))
        cloud_folder().rename(airflow_home / "moved")
        assert new.enter_context(publish_service("c", second))
        assert not is_published("c", first)
        old.close()
        assert find_service("c") == second
    assert find_service("c") is None
