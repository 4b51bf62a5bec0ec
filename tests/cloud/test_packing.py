"""Packs: what is sent, and that a body is read the same however it is cut."""

from __future__ import annotations

import random

import pytest

from airflow_training.cloud.packing import (
    PackBytes,
    PackHeader,
    PackReader,
    header_line,
    plan_packs,
)
from airflow_training.cloud.protocol import MissingContent
from airflow_training.errors import InputError


def test_small_contents_share_a_pack_and_a_large_one_does_not_hold_them_up():
    missing = [MissingContent(sha256=name) for name in "abcd"]
    packs = plan_packs(missing, {"a": 10, "b": 20, "c": 9 << 20, "d": 5})
    assert [[each.sha256 for each in pack.headers] for pack in packs] == [["a", "b"], ["c"], ["d"]]
    assert [pack.size for pack in packs] == [30, 9 << 20, 5]


def test_what_the_service_has_is_not_sent_again():
    [pack] = plan_packs([MissingContent(sha256="a", have=7)], {"a": 10})
    assert (pack.headers[0].offset, pack.size) == (7, 3)


def test_nothing_missing_is_no_pack():
    assert plan_packs([], {}) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_pack_is_read_the_same_however_it_is_cut(seed):
    dice = random.Random(seed)
    contents = {f"{n:064x}": dice.randbytes(dice.choice((0, 1, 100, 3000))) for n in range(6)}
    body = b"".join(
        header_line(PackHeader(sha256=name, size=len(data))) + data
        for name, data in contents.items()
    )
    reader, found, name = PackReader(), {}, ""
    while body:
        cut = dice.randint(1, 500)
        for each in reader.feed(body[:cut]):
            if isinstance(each, PackHeader):
                name = each.sha256
                found[name] = b""
            else:
                found[name] += each.data
                assert each.last == (found[name] == contents[name])
        body = body[cut:]
    assert found == contents
    assert reader.complete


@pytest.mark.parametrize(
    "body",
    [
        b"no json\n",
        b'{"sha256": "a"}\n',
        b'{"sha256": "a", "size": 1, "offset": 2}\n',
        b'{"sha256": "a", "size": -1, "offset": 0}\n',
        b"x" * 5000,
    ],
)
def test_what_is_no_pack_is_refused(body):
    with pytest.raises(InputError, match="pack"):
        list(PackReader().feed(body))


def test_a_body_that_ends_in_the_middle_is_not_complete():
    reader = PackReader()
    pieces = [*reader.feed(header_line(PackHeader(sha256="a", size=3)) + b"xy")]
    assert pieces[-1] == PackBytes(data=b"xy", last=False)
    assert not reader.complete
