"""What an agent is ordered: one record, its JSON, and versions that are not understood."""

from __future__ import annotations

import json

import pytest

from airflow_training.agent.order import VERSION, Order, OrderError

ORDER = Order(
    uid="u", role="worker", index=3, command=["sh", "-c", "true"], ports={"first": 2222},
    readiness={"timeout_seconds": 60.0}, output_uri="s3://b/c", in_place_seconds=30.0,
)  # fmt: skip


@pytest.mark.parametrize("order", [Order(), ORDER])
def test_an_order_survives_both_its_ways(order):
    as_file = json.loads(json.dumps(order.document()))
    assert vars(Order.of_document(as_file)) == {**vars(order), "command": list(order.command)}
    assert Order.of_text(order.text()).document() == order.document()


def test_agents_that_know_no_containers_understand_an_order_without_one():
    """In an allocation that began before an upgrade, the agent of then is started."""
    assert "container" not in Order(uid="u").document()
    contained = Order(uid="u", container=["apptainer", "exec"]).document()
    assert Order.of_document(contained).container == ["apptainer", "exec"]


def test_a_short_order_says_its_version_and_what_it_wants():
    assert json.loads(Order(watch="out").text()) == {"version": VERSION, "watch": "out"}


@pytest.mark.parametrize("version", [VERSION + 1, -1, "1", None])
def test_a_version_that_is_not_known_is_refused_with_both_numbers(version):
    with pytest.raises(OrderError) as refused:
        Order.of_document({"version": version, "uid": "u"})
    assert repr(version) in str(refused.value)
    assert str(VERSION) in str(refused.value)


def test_a_field_that_is_not_known_is_refused():
    with pytest.raises(OrderError, match="no field 'wacth'"):
        Order.of_document({"version": VERSION, "wacth": "out"})
    with pytest.raises(TypeError, match="no field 'wacth'"):
        Order(wacth="out")  # type: ignore[call-arg]  # that is the point


def test_orders_from_before_there_were_versions_are_understood():
    """Their fields have the names of now; four of them nobody ever read."""
    old = {"uid": "u", "run": "r", "controller": "c", "name": "n", "gpus": [], "grace_seconds": 5.0}
    order = Order.of_document(old)
    assert (order.version, order.uid, order.grace_seconds) == (0, "u", 5.0)


def test_who_only_looks_at_an_attempt_reads_what_it_knows_of_a_later_order():
    later = {"version": VERSION + 1, "uid": "u", "role": "worker", "colour": "red"}
    order = Order.seen(later)
    assert (order.version, order.uid, order.role) == (VERSION + 1, "u", "worker")
