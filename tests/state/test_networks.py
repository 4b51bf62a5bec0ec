"""Saved networks: versions that nobody changes, each of a user, read by all."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from airflow_training.errors import InputError
from airflow_training.networks.digest import network_digest
from airflow_training.networks.reading import document_of
from airflow_training.state.store import Store
from tests.state.samples import START, Clock
from tests.waiting import PATIENCE

NETWORK = """\
# a dense one
apiVersion: airflow-training/v1
kind: Network
metadata: {name: NAME, description: "two numbers to OUT"}
spec:
  layers:
    - {name: x, type: Input, params: {shape: [2]}}
    - {name: out, type: Linear, params: {out_features: OUT}}
"""


def a_network(name: str = "dense", *, out: int = 3) -> str:
    return NETWORK.replace("NAME", name).replace("OUT", str(out))


def test_versions_count_and_none_is_overwritten(store: Store, clock: Clock):
    first = store.networks.save(a_network(), user="ann")
    clock.advance(60)
    second = store.networks.save(a_network(out=4), user="ann")
    assert [(each.title, each.created) for each in (first, second)] == [
        ("dense@1", START),
        ("dense@2", START + 60),
    ]
    assert store.networks.find("dense") == second
    assert store.networks.find("dense", 1) == first
    assert store.networks.find("dense", 1).document == a_network()
    assert first.description == "two numbers to 3"


def test_the_same_content_is_the_same_version(store: Store):
    first = store.networks.save(a_network(), user="ann")
    again = a_network().replace("# a dense one\n", "").replace("{shape: [2]}", "{ 'shape': [ 2 ] }")
    assert store.networks.save(again, user="ann") == first
    store.networks.save(a_network(out=4), user="ann")
    back = store.networks.save(a_network(), user="ann")
    assert (back.version, back.digest) == (3, first.digest)
    assert first.digest == network_digest(document_of(a_network()))


def test_a_name_belongs_to_who_saved_it_first_and_all_read_it(store: Store):
    store.networks.save(a_network(), user="ann")
    with pytest.raises(InputError) as caught:
        store.networks.save(a_network(out=9), user="ben")
    (problem,) = caught.value.problems
    assert (problem.code, problem.field) == ("not_owner", "metadata.name")
    assert "a network of ann" in problem.message
    store.networks.save(a_network("bens"), user="ben")
    assert [(each.title, each.user) for each in store.networks.newest()] == [
        ("bens@1", "ben"),
        ("dense@1", "ann"),
    ]


def test_what_lists_tell(store: Store):
    for out in (3, 4, 5):
        store.networks.save(a_network(out=out), user="ann")
    store.networks.save(a_network("other"), user="ann")
    assert [each.title for each in store.networks.newest()] == ["dense@3", "other@1"]
    assert [each.version for each in store.networks.versions("dense")] == [3, 2, 1]
    assert len(store.networks.versions()) == 4
    assert store.networks.versions("none") == []


def test_what_is_not_there_is_told_with_what_is(store: Store):
    store.networks.save(a_network(), user="ann")
    with pytest.raises(InputError, match="did you mean 'dense'") as caught:
        store.networks.find("dens")
    assert caught.value.problems[0].field == "name"
    with pytest.raises(InputError, match="has no such version") as caught:
        store.networks.find("dense", 2)
    assert (caught.value.problems[0].field, [*caught.value.problems[0].allowed]) == ("version", [1])


def test_a_broken_network_is_not_saved(store: Store):
    with pytest.raises(InputError) as caught:
        store.networks.save(a_network(out=0).replace("shape", "shapes"), user="ann")
    assert [(each.line, each.field) for each in caught.value.problems] == [
        (7, "spec.layers[0].params.shapes"),
        (7, "spec.layers[0].params.shape"),
        (8, "spec.layers[1].params.out_features"),
    ]
    with pytest.raises(InputError, match="at most"):
        store.networks.save(a_network() + "#" * 1024 * 1024, user="ann")
    assert store.networks.newest() == []


@pytest.mark.e2e
def test_many_who_save_at_once_get_a_version_each(open_another: Callable[[], Store]):
    stores = [open_another() for _ in range(8)]
    start = threading.Barrier(len(stores))

    def save(store: Store, out: int) -> None:
        start.wait(PATIENCE)
        store.networks.save(a_network(out=out), user="ann")

    threads = [
        threading.Thread(target=save, args=(store, out)) for out, store in enumerate(stores, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    found = stores[0].networks.versions("dense")
    assert [each.version for each in found] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert len({each.digest for each in found}) == 8


def test_lists_leave_documents_where_they_are(store: Store):
    store.networks.save(a_network(), user="ann")
    assert [each.document for each in (*store.networks.newest(), *store.networks.versions())] == [
        "",
        "",
    ]


def test_a_description_has_an_end(store: Store):
    with pytest.raises(InputError, match="4000"):
        store.networks.save(a_network().replace("two numbers", "n" * 70_000), user="ann")


def test_names_and_versions_that_no_database_compares_with_are_not_there(store: Store):
    store.networks.save(a_network(), user="ann")
    for name, version in (("a\0", None), ("\ud800", 1), ("dense", 2**31), ("dense", 2**80)):
        with pytest.raises(InputError):
            store.networks.find(name, version)
    assert store.networks.versions("\0") == []
