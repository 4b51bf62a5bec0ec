"""Nodes and a sharing machine that know each other through a storage only."""

from __future__ import annotations

import os
import uuid

import pytest

from airflow_training.checkpoints.store import open_store
from airflow_training.remote_data.chunks import CHUNK_BYTES, digest_of_chunk
from airflow_training.remote_data.errors import DataNotShared, SourceAway, SourceChanged
from airflow_training.remote_data.mailbox import LetterBox, Mailbox, MailboxSource
from airflow_training.remote_data.roots import share


@pytest.fixture
def laptop(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"a" * (CHUNK_BYTES + 5))
    return share([tmp_path])


@pytest.fixture
def store():
    return open_store(f"memory://mailbox-{uuid.uuid4().hex}")


def node(shared, store):
    return MailboxSource(shared.manifest, store, answer_seconds=0.0)


def first_file(shared):
    root = shared.manifest.roots[0]
    return root, root.files[0]


def test_a_question_waits_in_the_storage_until_the_laptop_is_back(laptop, store):
    source, mailbox = node(laptop, store), Mailbox(laptop, store)
    with pytest.raises(SourceAway):
        source.digests(*first_file(laptop))
    assert mailbox.poll() == 1
    chunks = source.digests(*first_file(laptop))
    assert chunks == [digest_of_chunk(b"a" * CHUNK_BYTES), digest_of_chunk(b"a" * 5)]
    assert source.chunk(*first_file(laptop), 1) == b"a" * 5


def test_a_file_travels_once_however_many_nodes_ask(laptop, store):
    nodes, mailbox = [node(laptop, store) for _ in range(8)], Mailbox(laptop, store)
    for each in nodes:
        with pytest.raises(SourceAway):
            each.digests(*first_file(laptop))
    assert mailbox.poll() == 1
    for each in nodes:
        assert each.chunk(*first_file(laptop), 1) == b"a" * 5
    assert mailbox.poll() == 0
    assert mailbox.sent_bytes == CHUNK_BYTES + 5


def test_another_mailbox_goes_on_where_one_was_killed(laptop, store):
    with pytest.raises(SourceAway):
        node(laptop, store).digests(*first_file(laptop))
    killed = Mailbox(laptop, store)
    killed._answer(laptop.manifest.key_of(*first_file(laptop)))  # and then it was killed
    again = Mailbox(laptop, store)
    assert again.poll() == 1
    assert again.sent_bytes == 0
    assert node(laptop, store).chunk(*first_file(laptop), 1) == b"a" * 5


def test_a_chunk_that_was_damaged_in_the_storage_comes_again(laptop, store):
    source, mailbox = node(laptop, store), Mailbox(laptop, store)
    with pytest.raises(SourceAway):
        source.digests(*first_file(laptop))
    mailbox.poll()
    digest = digest_of_chunk(b"a" * 5)
    store.delete(f"chunks/{digest[:2]}/{digest}")
    store.create(f"chunks/{digest[:2]}/{digest}", b"aaaab")
    with pytest.raises(SourceAway):
        source.chunk(*first_file(laptop), 1)
    assert mailbox.poll() == 1
    assert source.chunk(*first_file(laptop), 1) == b"a" * 5


def test_a_source_that_changed_is_told_to_the_node(laptop, store, tmp_path):
    os.utime(tmp_path / "a.bin", ns=(1, 1))
    with pytest.raises(SourceAway):
        node(laptop, store).digests(*first_file(laptop))
    Mailbox(laptop, store).poll()
    with pytest.raises(SourceChanged, match=r"a\.bin"):
        node(laptop, store).digests(*first_file(laptop))


def test_a_request_for_what_was_not_shown_is_refused(laptop, store):
    store.create(f"mailboxes/{laptop.manifest.source}/requests/{'0' * 64}.0.json", b"{}")
    Mailbox(laptop, store).poll()
    (answer,) = store.list(f"mailboxes/{laptop.manifest.source}/answers/")
    assert DataNotShared.reason.encode() in store.read(answer[0])


def test_what_somebody_else_leaves_in_a_mailbox_asks_for_nothing_and_counts_nothing(laptop, store):
    letters = LetterBox(store, laptop.manifest.source)
    folder = f"mailboxes/{laptop.manifest.source}"
    for name in ("requests/.nfs0001", "requests/../../etc/passwd", "requests/a.0.json"):
        store.create(f"{folder}/{name}", b"{}")
    key = laptop.manifest.key_of(*first_file(laptop))
    store.create(f"{folder}/requests/{key}.0.json", b"{}")
    assert letters.requests() == [f"{key}.0.json"]
    letters.keep_counts({"files": 2, "note": "no number"})
    store.create(f"{folder}/counts/half.json", b'{"files": ')
    store.create(f"{folder}/counts/list.json", b"[1]")
    letters.keep_counts({"files": 3})
    assert letters.counts() == {"files": 5}
