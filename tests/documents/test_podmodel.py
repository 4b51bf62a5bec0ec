"""Pod templates are checked at any depth, against a table that is the Kubernetes client's."""

from __future__ import annotations

import importlib.metadata

import pytest

from airflow_training.documents.podmodel import generate
from airflow_training.documents.podmodel.check import check_complete, check_layer, table
from tests.documents.documents import edited, found


def test_the_table_is_what_the_installed_client_says():
    pytest.importorskip("kubernetes")
    fresh = generate.build()
    assert fresh == table(), (
        "run python -m airflow_training.documents.podmodel.generate with kubernetes "
        + importlib.metadata.version("kubernetes")
    )


GOOD = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "{{ anything }}"}},
    "spec": {
        "serviceAccountName": "trainer",
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 30}],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {
                                "matchExpressions": [
                                    {"key": "a", "operator": "In", "values": ["b"]}
                                ]
                            },
                        },
                    }
                ]
            }
        },
        "initContainers": [{"name": "fetch", "image": "busybox"}],
        "containers": [
            {
                "name": "pytorch",
                "image": "busybox",
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}, "runAsUser": 1000},
                "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5},
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {
                        "name": "B",
                        "valueFrom": {
                            "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}
                        },
                    },
                ],
                "resources": {"limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": "1"}},
            }
        ],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            {
                "name": "scratch",
                "ephemeral": {
                    "volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
                },
            },
        ],
    },
}


def test_a_rich_template_is_right_in_every_way():
    assert check_layer(GOOD, ("template",)) == []
    assert check_complete(GOOD, ("template",)) == []


@pytest.mark.parametrize(
    ("template", "code", "field", "hint"),
    [
        ({"specs": {}}, "bad_pod_template", "t.specs", "did you mean 'spec'?"),
        ({"spec": []}, "bad_pod_template", "t.spec", ""),
        (
            {"spec": {"nodeSelecter": {}}}, "bad_pod_template", "t.spec.nodeSelecter",
            "did you mean 'nodeSelector'?",
        ),
        ({"spec": {"nodeSelector": {"a": 1}}}, "bad_pod_template", "t.spec.nodeSelector.a", 'write it in quotes: "1"'),
        ({"spec": {"nodeSelector": {"a.b/c": True}}}, "bad_pod_template", 't.spec.nodeSelector["a.b/c"]', 'write it in quotes: "true"'),
        ({"spec": {"hostNetwork": "true"}}, "bad_pod_template", "t.spec.hostNetwork", ""),
        ({"spec": {"terminationGracePeriodSeconds": 1.5}}, "bad_pod_template", "t.spec.terminationGracePeriodSeconds", ""),
        ({"spec": {"tolerations": {}}}, "bad_pod_template", "t.spec.tolerations", ""),
        ({"spec": {"tolerations": ["a"]}}, "bad_pod_template", "t.spec.tolerations[0]", ""),
        (
            {"spec": {"tolerations": [{"effct": "NoSchedule"}]}}, "bad_pod_template",
            "t.spec.tolerations[0].effct", "did you mean 'effect'?",
        ),
        ({"spec": {"containers": [{"image": "a"}]}}, "bad_pod_template", "t.spec.containers[0].name", ""),
        ({"spec": {"containers": [None]}}, "bad_pod_template", "t.spec.containers[0]", ""),
        (
            {"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"pth": "/"}}}]}},
            "bad_pod_template", "t.spec.containers[0].livenessProbe.httpGet.pth", "did you mean 'path'?",
        ),
        (
            {"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": True}}}]}},
            "bad_pod_template", "t.spec.containers[0].livenessProbe.httpGet.port", "",
        ),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "duplicate",
            "t.spec.containers[1].name", "",
        ),
        (
            {"spec": {"overhead": {"cpu": "1x"}}}, "bad_quantity", "t.spec.overhead.cpu", "",
        ),
        (
            {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "half"}}}]}},
            "bad_quantity", "t.spec.containers[0].resources.requests.cpu", "",
        ),
        (
            {"spec": {"securityContext": {"sysctls": [{"name": "a"}]}}}, "bad_pod_template",
            "t.spec.securityContext.sysctls[0].value", "",
        ),
        ({"metadata": {"$patch": "merge"}}, "bad_pod_template", "t.metadata.$patch", ""),
    ],
)  # fmt: skip
def test_a_mistake_at_any_depth_has_its_exact_path(template, code, field, hint):
    (problem,) = check_layer(template, ("t",))
    assert (problem.code, problem.field, problem.hint) == (code, field, hint)


def test_a_layer_may_delete_and_direct():
    layer = {
        "metadata": {"labels": None},
        "spec": {
            "nodeSelector": {"$patch": "replace", "a": "b"},
            "containers": [
                {"$patch": "replace"},
                {"name": "a", "image": None, "$retainKeys": ["name"]},
            ],
        },
    }
    assert check_layer(layer, ()) == []


def test_a_complete_template_lacks_nothing():
    problems = check_complete({"spec": {"volumes": [{"emptyDir": {}}]}}, ("t",))
    assert [problem.field for problem in problems] == [
        "t.spec.volumes[0].name",
        "t.spec.containers",
    ]


SECRET = {"secretKeyRef": {"name": "s"}}


@pytest.mark.parametrize(
    ("path", "value", "fields"),
    [
        ("spec.env", [{"name": "A", "valueFrom": SECRET}], ["spec.env[0].valueFrom.secretKeyRef.key"]),
        ("spec.roles.1.env", [{"name": "A", "valueFrom": SECRET}], ["spec.roles[1].env[0].valueFrom.secretKeyRef.key"]),
        ("spec.volumeMounts", [{"mountPath": "/a"}], ["spec.volumeMounts[0].name"]),
        (
            "spec.roles.1.template",
            {"spec": {"containers": [{"name": "x", "volumeMounts": [{"mountPath": "/a"}]}]}},
            ["spec.roles[1].template.spec.containers[0].volumeMounts[0].name"],
        ),
        (
            "spec.roles.1.template",
            {"spec": {"volumes": [{"name": "a", "persistentVolumeClaim": {}}]}},
            ["spec.roles[1].template.spec.volumes[0].persistentVolumeClaim.claimName"],
        ),
    ],
)  # fmt: skip
def test_what_no_layer_gives_is_missing_once_in_the_layer_that_needs_it(path, value, fields):
    assert found(edited(path, value)) == [("bad_pod_template", field) for field in fields]


def test_a_layer_may_complete_another():
    base = edited(
        "spec.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    )
    assert (
        found(
            edited(
                "spec.roles.1.env",
                [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "l"}}}],
                base=base,
            )
        )
        == []
    )
