"""Presets: every version stays, whoever saves at the same moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_training.state.store import Store


def test_versions_count_by_user_and_name_and_none_is_overwritten(store: Store):
    for user, name, document in (
        ("ann", "a", "1"),
        ("ann", "a", "2"),
        ("ann", "a", "2"),
        ("ann", "a", "1"),
        ("bob", "a", "b"),
        ("ann", "other", "o\0"),
    ):
        store.presets.save(user, name, document, description="")
    newest = {(each.user, each.name): each.version for each in store.presets.newest()}
    assert newest == {("ann", "a"): 3, ("bob", "a"): 1, ("ann", "other"): 1}
    assert [store.presets.document("ann", "a", number) for number in (1, 2, 3, 4)] == [
        "1",
        "2",
        "1",
        None,
    ]
    assert [each.name for each in store.presets.newest("bob")] == ["a"]
    assert store.presets.document("ann", "other", 1) == "o\N{REPLACEMENT CHARACTER}"


@pytest.mark.e2e
def test_who_save_at_once_each_get_a_version(store: Store):
    with ThreadPoolExecutor(8) as pool:
        saved = pool.map(
            lambda number: store.presets.save("cara", "many", f"{number}", description=""),
            range(24),
        )
        versions = sorted(each.version for each in saved)
    assert versions == list(range(1, 25))
    kept = {store.presets.document("cara", "many", version) for version in versions}
    assert kept == {f"{number}" for number in range(24)}
