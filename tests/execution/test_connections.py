"""Connections of a group that is left are shut, and no other ones."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_training.execution import mesh
from airflow_training.execution.connections import GroupConnections
from airflow_training.execution.rank_group import ElasticGroup

pytestmark = pytest.mark.e2e

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def connected(server: socket.socket, stack: ExitStack) -> Pair:
    mine = stack.enter_context(socket.create_connection(server.getsockname()))
    theirs, _ = server.accept()
    return mine, stack.enter_context(theirs)


def is_open(pair: Pair) -> bool:
    try:
        pair[0].sendall(b"x")
    except OSError:
        return False
    return pair[1].recv(1) == b"x"


def test_what_was_opened_while_groups_were_made_is_shut(listening):
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as store:
        before = connected(listening, stack)
        connections = GroupConnections(store_port=store.getsockname()[1])
        group, meeting = connected(listening, stack), connected(store, stack)
        connections.note()
        after = connected(listening, stack)
        connections.shut()
        assert not is_open(group)
        assert all(map(is_open, (before, meeting, after)))


def test_a_group_that_was_half_made_is_shut_too(listening):
    with ExitStack() as stack:
        connections = GroupConnections(store_port=1)
        group = connected(listening, stack)
        connections.shut()
        assert not is_open(group)


def test_what_is_opened_while_others_are_waited_for_is_not_of_the_group(
    listening, tmp_path: Path, monkeypatch
):
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": "0", "WORLD_SIZE": "2"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    group = ElasticGroup(tmp_path / "plan.json")
    opened: list[Pair] = []
    with ExitStack() as stack:

        def open_one(*_: object, **__: object) -> None:
            opened.append(connected(listening, stack))

        def form(_: str, *, meet: Callable[[], None]) -> None:
            meet()
            open_one()

        monkeypatch.setattr(group._rendezvous, "meet", open_one)
        monkeypatch.setattr(mesh, "form_group", form)
        group.form(given_up=lambda: False)
        group.formed()
        group.leave()
        assert list(map(is_open, opened)) == [True, False]
