"""The emulator answers as a real API server would: rights and quotas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from kubernetes_asyncio import client
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulated.client import (
    Api,
    connect,
    pod,
    refused,
)
from tests.kubernetes.emulator import Cluster

pytestmark = pytest.mark.emulator


class TestQuota:
    async def test_what_exceeds_it_is_refused_in_the_real_words(
        self, cluster: Cluster, api: Api
    ) -> None:
        spec = client.V1ResourceQuotaSpec(hard={"pods": "2", "requests.cpu": "3"})
        body = client.V1ResourceQuota(metadata=client.V1ObjectMeta(name="q"), spec=spec)
        await api.core.create_namespaced_resource_quota("default", body)
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a"))
        assert refused(error)["message"] == (
            'pods "a" is forbidden: failed quota: q: must specify requests.cpu for: main'
        )
        two = {"resources": {"requests": {"cpu": "2"}}}
        await api.core.create_namespaced_pod("default", pod("a", container=two))
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("b", container=two))
        assert refused(error)["message"] == (
            'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=2, '
            "used: requests.cpu=2, limited: requests.cpu=3"
        )


ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: trainer, namespace: default}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, create]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], verbs: [get], resourceNames: [mine]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: trainer, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: trainer}
subjects:
- {kind: ServiceAccount, name: airflow, namespace: default}
"""


class TestRights:
    @pytest.fixture
    async def limited(self, cluster: Cluster) -> AsyncIterator[Api]:
        cluster.control.bind(list(yaml.safe_load_all(ROLE)))
        cluster.control.add_user("system:serviceaccount:default:airflow", token="t")
        connection, found = await connect(cluster, "t")
        async with connection:
            yield found

    async def test_only_what_a_role_grants(self, limited: Api) -> None:
        await limited.core.create_namespaced_pod("default", pod("a"))
        who = 'User "system:serviceaccount:default:airflow" cannot'
        with pytest.raises(ApiException) as error:
            await limited.core.delete_namespaced_pod("a", "default")
        assert refused(error)["message"] == (
            f'pods "a" is forbidden: {who} delete resource "pods" in API group "" in the namespace '
            '"default"'
        )
        with pytest.raises(ApiException) as error:
            await limited.core.list_namespaced_pod("kube-system")
        assert refused(error)["message"] == (
            f'pods is forbidden: {who} list resource "pods" in API group "" in the namespace '
            '"kube-system"'
        )
        with pytest.raises(ApiException) as error:
            await limited.core.list_node()
        assert "at the cluster scope" in refused(error)["message"]
        with pytest.raises(ApiException) as error:
            await limited.core.read_namespaced_config_map("other", "default")
        assert error.value.status == 403
        with pytest.raises(ApiException) as error:
            await limited.core.read_namespaced_config_map("mine", "default")
        assert error.value.status == 404

    @pytest.mark.parametrize(
        ("attributes", "allowed"),
        [
            ({"verb": "create", "resource": "pods", "namespace": "default"}, True),
            (
                {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "default"},
                True,
            ),
            ({"verb": "delete", "resource": "pods", "namespace": "default"}, False),
            ({"verb": "create", "resource": "pods", "namespace": "other"}, False),
            (
                {"verb": "create", "resource": "jobs", "group": "batch", "namespace": "default"},
                False,
            ),
        ],
    )
    async def test_reviews_say_the_same(
        self, limited: Api, attributes: dict[str, Any], allowed: bool
    ) -> None:
        spec = client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(**attributes)
        )
        answer = await limited.auth.create_self_subject_access_review(
            client.V1SelfSubjectAccessReview(spec=spec)
        )
        assert answer.status.allowed is allowed
