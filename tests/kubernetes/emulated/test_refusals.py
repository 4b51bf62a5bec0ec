"""The emulator answers as a real API server would: discovery, and what it refuses."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
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


class TestDiscovery:
    async def test_says_what_it_is(self, api: Api) -> None:
        assert (await api.version.get_code()).git_version == "v1.36.0"
        resources = await api.core.get_api_resources()
        names = {one.name for one in resources.resources}
        assert {"pods", "pods/status", "pods/log", "pods/eviction", "configmaps"} <= names

    async def test_has_only_what_is_installed(self, api: Api) -> None:
        code, body, _ = await api.raw("GET", "/apis/kueue.x-k8s.io/v1beta1")
        assert (code, body["reason"]) == (404, "NotFound")
        with pytest.raises(ApiException) as error:
            await api.custom.list_namespaced_custom_object(
                "scheduling.volcano.sh", "v1beta1", "default", "podgroups"
            )
        assert refused(error)["message"] == "the server could not find the requested resource"

    async def test_both_versions_of_a_custom_resource_show_the_same_objects(self) -> None:
        with Cluster(installed=["kueue"]) as cluster:
            connection, api = await connect(cluster)
            async with connection:
                body = {
                    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
                    "metadata": {"name": "team"}, "spec": {"clusterQueue": "all"},
                }  # fmt: skip
                await api.custom.create_namespaced_custom_object(
                    "kueue.x-k8s.io", "v1beta1", "default", "localqueues", body
                )
                found = await api.custom.get_namespaced_custom_object(
                    "kueue.x-k8s.io", "v1beta2", "default", "localqueues", "team"
                )
        assert found["apiVersion"] == "kueue.x-k8s.io/v1beta2"
        assert found["spec"] == {"clusterQueue": "all"}


class TestRefusals:
    async def test_missing_object(self, api: Api) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_pod("none", "default")
        body = refused(error)
        assert body["message"] == 'pods "none" not found'
        assert body["details"] == {"name": "none", "kind": "pods"}

    async def test_missing_namespace(self, api: Api) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("none", pod("a"))
        assert refused(error)["message"] == 'namespaces "none" not found'

    async def test_a_second_object_of_the_same_name(self, api: Api) -> None:
        await api.core.create_namespaced_pod("default", pod("a"))
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a"))
        body = refused(error)
        assert (body["code"], body["reason"]) == (409, "AlreadyExists")
        assert body["message"] == 'pods "a" already exists'

    @pytest.mark.parametrize(
        ("change", "field", "reason"),
        [
            ({"metadata": {"name": "Upper"}}, "metadata.name", "FieldValueInvalid"),
            ({"metadata": {"labels": {"a": "b c"}}}, "metadata.labels", "FieldValueInvalid"),
            ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "FieldValueNotSupported"),
            ({"containers": []}, "spec.containers", "FieldValueRequired"),
            ({"container": {"image": ""}}, "spec.containers[0].image", "FieldValueRequired"),
            ({"hostname": "a.b"}, "spec.hostname", "FieldValueInvalid"),
            ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "FieldValueInvalid"),
            (
                {"container": {"volumeMounts": [{"name": "x", "mountPath": "/x"}]}},
                "spec.containers[0].volumeMounts[0].name", "FieldValueNotFound",
            ),
            (
                {"container": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}},
                "spec.containers[0].resources.requests", "FieldValueInvalid",
            ),
        ],
    )  # fmt: skip
    async def test_invalid_pods(
        self, api: Api, change: dict[str, Any], field: str, reason: str
    ) -> None:
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod("default", pod("a", **change))
        body = refused(error)
        assert (body["code"], body["reason"]) == (422, "Invalid")
        assert [(c["field"], c["reason"]) for c in body["details"]["causes"]] == [(field, reason)]
        assert body["details"]["kind"] == "Pod"
        assert body["message"].startswith('Pod "')
        assert field in body["message"]

    async def test_wrong_types_are_bad_requests(self, api: Api) -> None:
        wrong = pod("a", container={"env": [{"name": "A", "value": 1}]})
        code, body, _ = await api.raw("POST", "/api/v1/namespaces/default/pods", wrong)
        assert (code, body["reason"]) == (400, "BadRequest")
        assert "cannot unmarshal number" in body["message"]
        bad = pod("a", container={"resources": {"limits": {"cpu": "many"}}})
        code, body, _ = await api.raw("POST", "/api/v1/namespaces/default/pods", bad)
        assert code == 400
        assert "quantities must match" in body["message"]

    async def test_unknown_fields_are_dropped_with_a_warning_or_refused(self, api: Api) -> None:
        path = "/api/v1/namespaces/default/pods"
        wrong = pod("a", imagePull="x")
        code, body, _ = await api.raw("POST", f"{path}?fieldValidation=Strict", wrong)
        assert code == 400
        assert body["message"] == (
            'Pod in version "v1" cannot be handled as a Pod: '
            'strict decoding error: unknown field "spec.imagePull"'
        )
        code, body, headers = await api.raw("POST", path, wrong)
        assert code == 201
        assert "imagePull" not in body["spec"]
        assert headers["Warning"] == '299 - "unknown field \\"spec.imagePull\\""'

    @pytest.mark.parametrize(
        ("method", "path", "headers", "code", "reason"),
        [
            ("POST", "/api/v1/pods", {}, 405, "MethodNotAllowed"),
            ("POST", "/api/v1/namespaces/default/pods/a", {}, 405, "MethodNotAllowed"),
            ("DELETE", "/api/v1/namespaces", {}, 405, "MethodNotAllowed"),
            ("GET", "/api/v1/namespaces/default/things", {}, 404, "NotFound"),
            (
                "POST", "/api/v1/namespaces/default/pods", {"Content_Type": "text/plain"}, 415,
                "UnsupportedMediaType",
            ),
            (
                "PATCH", "/api/v1/namespaces/default/pods/a", {"Content_Type": "application/json"},
                415, "UnsupportedMediaType",
            ),
            ("GET", "/api/v1/pods", {"Accept": "text/html"}, 406, "NotAcceptable"),
            ("GET", "/api/v1/pods", {"Authorization": "Bearer nobody"}, 401, "Unauthorized"),
            ("GET", "/api/v1/pods?labelSelector=a%20b%20c", {}, 400, "BadRequest"),
            ("GET", "/api/v1/pods?fieldSelector=spec.image%3Dx", {}, 400, "BadRequest"),
            ("GET", "/api/v1/pods?resourceVersion=99999999", {}, 504, "Timeout"),
        ],
    )  # fmt: skip
    async def test_requests_that_make_no_sense(
        self, api: Api, method: str, path: str, headers: dict[str, str], code: int, reason: str
    ) -> None:
        body: Any = {} if method in ("POST", "PATCH") else None
        found, status, _ = await api.raw(method, path, body, **headers)
        assert (found, status["reason"], status["code"]) == (code, reason, code)
        assert status["kind"] == "Status"

    @pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # it is meant
    async def test_too_large_config_maps(self, api: Api) -> None:
        body = client.V1ConfigMap(
            metadata=client.V1ObjectMeta(name="big"), data={"a": "x" * (1024 * 1024 + 1)}
        )
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_config_map("default", body)
        assert "Too long: may not be more than 1048576 bytes" in refused(error)["message"]


@pytest.mark.parametrize(
    ("security", "refused"),
    [
        pytest.param({}, True, id="nothing-said"),
        pytest.param(
            {
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            False,
            id="restricted",
        ),
    ],
)
def test_a_namespace_may_enforce_pod_security(security: dict[str, Any], refused: bool):
    with Cluster() as cluster:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.control.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": labels}}
        )
        container = {"name": "main", "image": "busybox", "securityContext": security}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [container]},
        }
        expected = pytest.raises(Exception, match='violates PodSecurity "restricted:latest"')
        with expected if refused else contextlib.nullcontext():
            cluster.control.create(pod, namespace="n")
