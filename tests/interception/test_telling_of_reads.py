"""What is read that is there is told to who fetches, at little cost, and never waited for."""

from __future__ import annotations

import json
import socket

from airflow_training.interception.asking import READS, tell_read


def listen(address: str, kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(address)
    return made


def test_it_is_told_by_a_datagram(tmp_path):
    address = str(tmp_path / "s")
    with listen(address + READS, socket.SOCK_DGRAM) as reads:
        tell_read(address, "/data/a\udcff")
        assert json.loads(reads.recv(1 << 16)) == {"read": "/data/a\udcff"}


def test_what_takes_no_datagrams_is_told_by_a_connection(tmp_path):
    address = str(tmp_path / "s")
    with listen(address, socket.SOCK_STREAM) as server:
        server.listen()
        tell_read(address, "/data/a")
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as lines:
            assert json.loads(lines.readline()) == {"read": "/data/a"}


def test_where_more_wait_than_fit_and_where_nobody_listens_nothing_is_waited_for(tmp_path):
    address = str(tmp_path / "s")
    tell_read(address, "/data/a")
    with listen(address + READS, socket.SOCK_DGRAM):
        for _ in range(1000):
            tell_read(address, "/data/a")
