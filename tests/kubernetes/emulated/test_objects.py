"""The emulator answers as a real API server would: objects, lists and their deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes_asyncio import client
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulated.client import (
    MERGE,
    Api,
    phase_is,
    pod,
    refused,
)
from tests.kubernetes.emulator import Cluster
from tests.waiting import until

pytestmark = pytest.mark.emulator


class TestObjects:
    async def test_defaults(self, api: Api) -> None:
        made = await api.core.create_namespaced_pod(
            "default", pod("a", container={"image": "x", "resources": {"limits": {"cpu": "1"}}})
        )
        assert made.spec.dns_policy == "ClusterFirst"
        assert made.spec.service_account_name == "default"
        assert made.spec.termination_grace_period_seconds == 30
        assert made.spec.containers[0].image_pull_policy == "Always"
        assert made.spec.containers[0].resources.requests == {"cpu": "1"}
        assert [one.toleration_seconds for one in made.spec.tolerations] == [300, 300]
        assert made.status.phase == "Pending"
        assert (made.metadata.uid, made.metadata.creation_timestamp) != (None, None)

    async def test_generated_names_differ(self, api: Api) -> None:
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="x-"))
        names = {
            (await api.core.create_namespaced_config_map("default", body)).metadata.name
            for _ in range(3)
        }
        assert len(names) == 3

    async def test_versions_rise_and_stale_writes_conflict(self, api: Api) -> None:
        made = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="c"), data={"a": "1"})
        first = await api.core.create_namespaced_config_map("default", made)
        same = await api.core.replace_namespaced_config_map("c", "default", first)
        assert same.metadata.resource_version == first.metadata.resource_version
        first.data = {"a": "2"}
        second = await api.core.replace_namespaced_config_map("c", "default", first)
        assert int(second.metadata.resource_version) > int(first.metadata.resource_version)
        first.data = {"a": "3"}
        with pytest.raises(ApiException) as error:
            await api.core.replace_namespaced_config_map("c", "default", first)
        body = refused(error)
        assert (body["code"], body["reason"]) == (409, "Conflict")
        assert "the object has been modified" in body["message"]

    async def test_pods_hardly_change(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        with pytest.raises(ApiException) as error:
            await api.core.patch_namespaced_pod(
                "a", "default", {"spec": {"nodeName": "other"}}, _content_type=MERGE
            )
        assert "pod updates may not change fields other than" in refused(error)["message"]
        patch = {"metadata": {"labels": {"new": "1"}}, "spec": {"activeDeadlineSeconds": 9}}
        changed = await api.core.patch_namespaced_pod("a", "default", patch, _content_type=MERGE)
        assert changed.metadata.labels == {"new": "1"}
        with pytest.raises(ApiException) as error:
            await api.core.patch_namespaced_pod(
                "a", "default", {"spec": {"activeDeadlineSeconds": 10}}, _content_type=MERGE
            )
        assert error.value.status == 422

    async def test_merge_patch(self, api: Api) -> None:
        path = "/api/v1/namespaces/default/configmaps/c"
        await api.raw(
            "POST", "/api/v1/namespaces/default/configmaps",
            {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}},
        )  # fmt: skip
        merged = await api.raw(
            "PATCH", path, {"data": {"a": None, "c": "3"}},
            Content_Type="application/merge-patch+json",
        )  # fmt: skip
        assert merged[1]["data"] == {"b": "2", "c": "3"}

    async def test_server_side_apply(self, api: Api) -> None:
        path = "/api/v1/namespaces/default/configmaps/c"
        kind = {"Content_Type": "application/apply-patch+yaml"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
        for value, expected in (("1", 201), ("2", 200)):
            applied = {**body, "data": {"a": value}}
            code, found, _ = await api.raw(
                "PATCH", f"{path}?fieldManager=one&force=true", applied, **kind
            )
            assert (code, found["data"]) == (expected, {"a": value})
        assert (await api.raw("PATCH", path, body, **kind))[0] == 400  # no field manager

    async def test_status_is_written_apart(self, api: Api) -> None:
        made = await api.core.create_namespaced_pod(
            "default", pod("a", nodeSelector={"no": "where"})
        )
        body = {"status": {"message": "hello"}, "metadata": {"labels": {"x": "y"}}}
        changed = await api.core.patch_namespaced_pod_status(
            "a", "default", body, _content_type=MERGE
        )
        assert (changed.status.message, changed.metadata.labels) == ("hello", None)
        kept = await api.core.patch_namespaced_pod(
            "a", "default", {"status": {"message": "no"}}, _content_type=MERGE
        )
        assert kept.status.message == "hello"
        assert made.metadata.uid == kept.metadata.uid

    async def test_dry_run_leaves_nothing(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"), dry_run="All")
        assert (await api.core.list_namespaced_pod("default")).items == []

    async def test_priority_classes(self, api: Api) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a", priorityClassName="high"))
        assert (
            refused(error)["message"]
            == 'pods "a" is forbidden: no PriorityClass with name high was found'
        )
        body = client.V1PriorityClass(metadata=client.V1ObjectMeta(name="high"), value=7)
        await api.scheduling.create_priority_class(body)
        made = await api.core.create_namespaced_pod("default", pod("a", priorityClassName="high"))
        assert made.spec.priority == 7


class TestLists:
    @pytest.fixture
    async def names(self, cluster: Cluster, api: Api) -> Callable[..., Any]:
        for name, labels in (
            ("a", {"tier": "x", "n": "1"}), ("b", {"tier": "y"}), ("c", {}), ("d", {"tier": "x"}),
        ):  # fmt: skip
            await api.core.create_namespaced_pod("default", pod(name, metadata={"labels": labels}))

        async def listed(**options: Any) -> list[str]:
            found = await api.core.list_namespaced_pod("default", **options)
            return [one.metadata.name for one in found.items]

        return listed

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("tier=x", ["a", "d"]),
            ("tier!=x", ["b", "c"]),
            ("tier", ["a", "b", "d"]),
            ("!tier", ["c"]),
            ("tier in (x,y),!n", ["b", "d"]),
            ("tier notin (x)", ["b", "c"]),
            ("tier==y", ["b"]),
        ],
    )
    async def test_label_selectors(
        self, names: Callable[..., Any], selector: str, expected: list[str]
    ) -> None:
        assert await names(label_selector=selector) == expected

    async def test_field_selectors(self, cluster: Cluster, names: Callable[..., Any]) -> None:
        cluster.control.finish("b", exit_code=1)
        assert await names(field_selector="metadata.name=a") == ["a"]
        assert await names(field_selector="status.phase=Failed") == ["b"]
        node = cluster.control.get("pods", "c")["spec"]["nodeName"]
        assert "c" in await names(field_selector=f"spec.nodeName={node}")

    async def test_pages_are_one_snapshot(self, cluster: Cluster, api: Api, names: Any) -> None:
        first = await api.core.list_namespaced_pod("default", limit=2)
        assert (len(first.items), first.metadata.remaining_item_count) == (2, 2)
        await api.core.delete_namespaced_pod("d", "default", grace_period_seconds=0)
        rest = await api.core.list_namespaced_pod(
            "default", limit=2, _continue=first.metadata._continue
        )
        assert [one.metadata.name for one in rest.items] == ["c", "d"]
        assert rest.metadata.resource_version == first.metadata.resource_version
        cluster.control.compact()
        await api.core.create_namespaced_pod("default", pod("e"))
        cluster.control.compact()
        with pytest.raises(ApiException) as error:
            await api.core.list_namespaced_pod("default", _continue=first.metadata._continue)
        assert (error.value.status, refused(error)["reason"]) == (410, "Expired")


class TestDeletion:
    async def test_a_running_pod_is_terminating_until_its_node_confirms(
        self, cluster: Cluster, api: Api
    ) -> None:
        cluster.control.behave("default/a", stop_seconds=0.3)
        await api.core.create_namespaced_pod("default", pod("a"))
        await until(phase_is(cluster, "a", "Running"))
        gone = await api.core.delete_namespaced_pod("a", "default")
        assert gone.metadata.deletion_grace_period_seconds == 30
        assert (await api.core.read_namespaced_pod("a", "default")).metadata.deletion_timestamp
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a"))
        assert error.value.status == 409
        await until(lambda: cluster.control.get("pods", "a") is None)

    async def test_pending_and_ended_pods_go_at_once(self, cluster: Cluster, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("p", nodeSelector={"no": "where"}))
        await api.core.create_namespaced_pod("default", pod("e", ["true"]))
        await until(phase_is(cluster, "e", "Succeeded"))
        for name in ("p", "e"):
            await api.core.delete_namespaced_pod(name, "default")
        assert (await api.core.list_namespaced_pod("default")).items == []

    async def test_preconditions(self, api: Api) -> None:
        made = await api.core.create_namespaced_pod("default", pod("a"))
        options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
        with pytest.raises(ApiException) as error:
            await api.core.delete_namespaced_pod("a", "default", body=options)
        assert (error.value.status, refused(error)["reason"]) == (409, "Conflict")
        options.preconditions = client.V1Preconditions(uid=made.metadata.uid)
        await api.core.delete_namespaced_pod("a", "default", body=options)

    async def test_finalizers_keep_objects(self, api: Api) -> None:
        meta = client.V1ObjectMeta(name="c", finalizers=["a.b/c"])
        await api.core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=meta))
        await api.core.delete_namespaced_config_map("c", "default")
        kept = await api.core.read_namespaced_config_map("c", "default")
        assert kept.metadata.deletion_timestamp is not None
        with pytest.raises(ApiException) as error:
            await api.core.patch_namespaced_config_map(
                "c", "default", {"metadata": {"finalizers": ["a.b/d"]}}, _content_type=MERGE
            )
        assert "no new finalizers can be added" in refused(error)["message"]
        await api.core.patch_namespaced_config_map(
            "c", "default", {"metadata": {"finalizers": None}}, _content_type=MERGE
        )
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_config_map("c", "default")
        assert error.value.status == 404

    async def test_dependents_follow_their_owner_even_late_ones(
        self, cluster: Cluster, api: Api
    ) -> None:
        owner = await api.core.create_namespaced_config_map(
            "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="o"))
        )
        ref = {
            "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": owner.metadata.uid,
        }  # fmt: skip
        owned: dict[str, Any] = {"metadata": {"ownerReferences": [ref]}}
        await api.core.create_namespaced_pod("default", pod("a", **owned))
        await api.core.delete_namespaced_config_map("o", "default")
        await until(lambda: cluster.control.get("pods", "a") is None)
        await api.core.create_namespaced_pod("default", pod("late", **owned))
        await until(lambda: cluster.control.get("pods", "late") is None)

    async def test_orphans_stay(self, cluster: Cluster, api: Api) -> None:
        owner = await api.core.create_namespaced_config_map(
            "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="o"))
        )
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": owner.metadata.uid}
        await api.core.create_namespaced_pod(
            "default", pod("a", metadata={"ownerReferences": [ref]})
        )
        await api.core.delete_namespaced_config_map("o", "default", propagation_policy="Orphan")
        await until(lambda: cluster.control.get("configmaps", "o") is None)
        left = await api.core.read_namespaced_pod("a", "default")
        assert left.metadata.owner_references is None

    async def test_collections(self, api: Api) -> None:
        for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
            await api.core.create_namespaced_pod(
                "default", pod(name, metadata={"labels": {"k": label}}, nodeSelector={"no": "x"})
            )
        await api.core.delete_collection_namespaced_pod("default", label_selector="k=x")
        left = await api.core.list_namespaced_pod("default")
        assert [one.metadata.name for one in left.items] == ["c"]

    async def test_a_namespace_empties_before_it_goes(self, cluster: Cluster, api: Api) -> None:
        cluster.control.create_namespace("team")
        cluster.control.behave("team/a", stop_seconds=0.3)
        await api.core.create_namespaced_pod("team", pod("a"))
        await until(
            lambda: cluster.control.get("pods", "a", namespace="team")["status"].get("podIP")
        )
        await api.core.delete_namespace("team")
        assert (await api.core.read_namespace("team")).status.phase == "Terminating"
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("team", pod("b"))
        body = refused(error)
        assert body["message"] == (
            'pods "b" is forbidden: unable to create new content in namespace team because it is '
            "being terminated"
        )
        assert body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        await until(lambda: cluster.control.get("namespaces", "team") is None)
