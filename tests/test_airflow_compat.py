"""The table of private parts says what is there in the Airflow that is installed."""

from __future__ import annotations

from importlib import import_module

import pytest

from airflow_training import airflow_compat
from airflow_training.airflow_compat import OLDEST, PARTS


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_where_the_table_says(name):
    module = import_module(PARTS[name].module)
    # a global that only a running task has is declared by its annotation
    assert hasattr(module, name) or name in module.__annotations__
    since = tuple(map(int, PARTS[name].since.split(".")))
    assert since <= OLDEST, "it would be missing in the oldest Airflow that is allowed"


def test_every_part_is_exported_and_no_other_name_is_looked_up():
    assert set(PARTS) <= set(airflow_compat.__all__)
    with pytest.raises(AttributeError):
        _ = airflow_compat.NotAPart
