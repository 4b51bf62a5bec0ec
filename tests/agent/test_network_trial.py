"""Instances that measure the way to each other, on this machine."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_training.agent.network_trial import measure_network
from tests.ports import free_port

WAIT_SECONDS = 30.0


def wanted(ports: list[int], index: int, *, wait_seconds: float = WAIT_SECONDS) -> dict[str, Any]:
    others = [(index + step) % len(ports) for step in (1, 2)[: len(ports) - 1]]
    return {
        "port": ports[index],
        "peers": [[f"w-{i}", "127.0.0.1", ports[i]] for i in others],
        "asked_by": len(others),
        "wait_seconds": wait_seconds,
    }


def test_each_of_three_measures_the_way_to_both_others():
    ports = [free_port() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda index: measure_network(wanted(ports, index)), range(3)))
    assert [[peer["name"] for peer in each["peers"]] for each in found] == [
        ["w-1", "w-2"], ["w-2", "w-0"], ["w-0", "w-1"],
    ]  # fmt: skip
    for peer in (peer for each in found for peer in each["peers"]):
        assert peer["latency"] > 0
        assert peer["bandwidth"] > 0


def test_who_is_not_there_in_time_is_not_measured():
    ports = [free_port() for _ in range(2)]
    assert measure_network(wanted(ports, 0, wait_seconds=0.5)) == {"peers": [{"name": "w-1"}]}


def test_what_is_none_of_ours_is_not_measured():
    """A training that runs already at the port of another instance, and one that asks here."""
    ports = [free_port() for _ in range(2)]
    with socket.create_server(("127.0.0.1", ports[1])) as other:

        def says_something_else() -> None:
            peer, _ = other.accept()
            peer.sendall(b"220 mail.example ESMTP, and more than ours would say\n")
            peer.close()

        threading.Thread(target=says_something_else, daemon=True).start()
        assert measure_network(wanted(ports, 0, wait_seconds=1.0)) == {"peers": [{"name": "w-1"}]}
