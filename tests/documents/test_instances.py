"""An instance is known by its role and its number, and called by both."""

from __future__ import annotations

from airflow_training.documents.instances import InstanceKey


def test_an_instance_is_called_by_its_role_and_its_number():
    assert f"{InstanceKey('worker', 1)}" == "worker-1"


def test_instances_are_sorted_by_their_number():
    keys = [InstanceKey("worker", 10), InstanceKey("worker", 9), InstanceKey("master", 0)]
    assert [str(key) for key in sorted(keys)] == ["master-0", "worker-9", "worker-10"]
