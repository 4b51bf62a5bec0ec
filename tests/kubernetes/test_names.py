"""Each kind of object has rules of its own for names: ours obey them all, and a user's are checked."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.frameworks.naming import instance_name, service_name
from airflow_training.runtimes.kubernetes import names, objects
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.gangs import pod_group_documents
from airflow_training.runtimes.kubernetes.pod_files import file_data
from airflow_training.runtimes.kubernetes.pods import PodOptions, pod_of
from airflow_training.runtimes.kubernetes.services import service_documents
from airflow_training.runtimes.kubernetes.written_names import OWN_VOLUMES, refused_names
from airflow_training.runtimes.rendering import expected_addresses, render_instance
from tests.examples import examples
from tests.kubernetes.emulator import kinds
from tests.kubernetes.emulator.validation import metadata_causes, object_causes
from tests.kubernetes.samples import a_job, a_role

UID = "abcdefghijklmnopqrst"
OPTIONS = PodOptions(agent_config_map="agent", callback_url="https://airflow/training")
LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_1123 = re.compile(LABEL)

labels = st.from_regex(LABEL, fullmatch=True)
hashes = st.binary(min_size=13, max_size=13).map(
    lambda b: base64.b32encode(b).decode().lower()[:20]
)


def document(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "framework": "custom",
        "image": "busybox",
        "command": ["true"],
        "roles": [{"name": "worker", "replicas": 2}],
        **changes,
    }
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "job"},
        "spec": spec,
    }


def checked(written: dict[str, Any], runtime: str = "kubernetes") -> AdmissionResponse:
    (answer,) = check_text(yaml.safe_dump(written), runtime=runtime, run_uid=UID)
    return answer


def run_of(job: ResolvedJob, uid: str = UID) -> RunRef:
    return RunRef(uid=uid, job=job.name, namespace=job.namespace, controller="site-1")


def objects_of(job: ResolvedJob, uid: str = UID) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield (kind, document) of everything that a run can have on a cluster."""
    run, facts = run_of(job, uid), facts_of(run_of(job, uid), job)
    yield kinds.CONFIGMAPS, facts.document(run)
    yield kinds.CONFIGMAPS, objects.agent_document(run, {"agent.pyz": b"program"}, record_uid="u")
    yield kinds.SECRETS, objects.callback_secret_document(run, "t", record_uid="u")
    yield kinds.SECRETS, objects.ssh_secret_document(run, record_uid="u")
    for made in service_documents(run, facts, record_uid="u"):
        yield kinds.SERVICES, made
    addresses = expected_addresses(job, run.prefix)
    for role in job.roles:
        for index in {0, role.replicas - 1}:
            spec = render_instance(
                job, run, addresses, role=role.name, index=index, held=index == 0
            )
            spec = replace(spec, files={"a.txt": "x", **spec.files})
            pod = pod_of(spec, facts, "u", options=OPTIONS)
            name = pod["metadata"]["name"]
            yield kinds.PODS, pod
            yield (
                kinds.CONFIGMAPS,
                objects.files_document(run, name, file_data(spec), record_uid="u"),
            )
            for answer in objects.answer_documents(
                run, name, "5" * 36, "[]", shard_bytes=1, record_uid="u"
            ):
                yield kinds.CONFIGMAPS, answer


def complaints(job: ResolvedJob, uid: str = UID) -> list[str]:
    """Return what a server says of the objects of a run."""
    found = [
        str(cause) for kind, made in objects_of(job, uid) for cause in object_causes(kind, made)
    ]
    run, facts = run_of(job, uid), facts_of(run_of(job, uid), job)
    groups = pod_group_documents(facts.gang, run, record_uid="u")
    return found + [
        str(cause) for group in groups for cause in metadata_causes(kinds.PODS, group["metadata"])
    ]


@settings(max_examples=examples(200), deadline=None)
@example(job="7b-sft", roles=["0"], uid=UID, gang="none", startup="auto")
@example(job="7" * 54, roles=["a", "b"], uid=UID, gang="kueue", startup="perWave")
@given(
    job=labels,
    roles=st.lists(labels, min_size=1, max_size=3, unique=True),
    uid=hashes,
    gang=st.sampled_from(("none", "volcano", "coscheduling", "kueue")),
    startup=st.sampled_from(("auto", "perWave")),
)
def test_what_validate_accepts_has_names_that_every_server_takes(job, roles, uid, gang, startup):
    written = document(
        roles=[
            {"name": name, "replicas": 2, "dependsOn": [{"role": before}] if before else []}
            for before, name in zip(["", *roles], roles, strict=False)
        ],
        schedulingPolicy={"gang": gang, "startup": startup},
    )
    written["metadata"]["name"] = job
    resolved = checked(written).resolved
    assume(resolved is not None)
    assert resolved is not None
    assert complaints(resolved, uid) == []
    made = [(kind, each["metadata"]["name"]) for kind, each in objects_of(resolved, uid)]
    assert len(set(made)) == len(made)
    services = {name for kind, name in made if kind is kinds.SERVICES}
    assert all(DNS_1035.fullmatch(name) for name in services)
    pods = [each for kind, each in objects_of(resolved, uid) if kind is kinds.PODS]
    hosts = {
        address.host
        for of_role in expected_addresses(resolved, run_of(resolved, uid).prefix).values()
        for address in of_role
    }
    for pod in pods:
        host, subdomain = pod["spec"]["hostname"], pod["spec"]["subdomain"]
        assert DNS_1123.fullmatch(host)
        assert subdomain in services
        full = f"{host}.{subdomain}.default.svc"
        assert full in hosts
        assert len(f"{full}.cluster.local") <= 253


@settings(max_examples=examples(300), deadline=None)
@example(prefix="7b-abcde", others="s-7b-fghij", role="a", other="a", index=0)
@given(
    prefix=st.builds("{}-{:.5}".format, labels, hashes),
    others=st.builds("{}-{:.5}".format, labels, hashes),
    role=labels,
    other=labels,
    index=st.integers(0, 10**6),
)
def test_long_names_are_cut_and_stay_different(prefix, others, role, other, index):
    assume((prefix, role) != (others, other))
    for name in (service_name(prefix, role), instance_name(prefix, role, index)):
        assert DNS_1123.fullmatch(name)
    assert DNS_1035.fullmatch(service_name(prefix, role))
    assert service_name(prefix, role) != service_name(others, other)
    assert instance_name(prefix, role, index) != instance_name(others, other, index)
    assert instance_name(prefix, role, index) != instance_name(prefix, role, index + 1)


@pytest.mark.parametrize(
    ("prefix", "role", "service", "instance"),
    [
        pytest.param("sft-abcde", "worker", "sft-abcde-worker", "sft-abcde-worker-7", id="valid"),
        pytest.param(
            "7b-sft-abcde", "worker", "s-7b-sft-abcde-worker", "7b-sft-abcde-worker-7", id="digit"
        ),
        pytest.param(
            "j" * 50 + "-abcde",
            "w",
            "j" * 50 + "-abcde-w",
            "j" * 50 + "-abcde-w-7",
            id="long-valid",
        ),
    ],
)
def test_a_name_that_was_valid_stays_what_it_was(prefix, role, service, instance):
    assert service_name(prefix, role) == service
    assert instance_name(prefix, role, 7) == instance


def test_a_role_that_is_scaled_beyond_its_longest_name_has_names_that_fit():
    last = instance_name("j" * 40 + "-abcde", "w" * 15, 1000)
    assert len(last) <= 63
    assert last.endswith("-1000")


def test_the_group_of_a_late_wave_fits_into_a_label():
    run = RunRef(uid=UID, job="j" * 52, namespace="n", controller="c")
    assert len(names.group_name(run, 1000)) <= 63
    assert names.group_name(run, 1000) != names.group_name(run, 1001)


def test_peers_are_told_the_address_that_the_service_has():
    written = document(
        framework="pytorch",
        roles=[{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 1}],
    )
    written["metadata"]["name"] = "7b-sft"
    answer = checked(written)
    assert [*answer.problems, *answer.warnings] == []
    job = answer.resolved
    assert job is not None
    addresses = expected_addresses(job, run_of(job).prefix)
    spec = render_instance(job, run_of(job), addresses, role="worker", index=0)
    assert spec.env["MASTER_ADDR"] == "7b-sft-abcde-master-0.s-7b-sft-abcde-master.default.svc"


def test_the_names_of_our_volumes_are_all_reserved():
    found = {
        volume["name"]
        for gang in ("none", "kueue")
        for kind, made in objects_of(_held_job(gang))
        if kind is kinds.PODS
        for volume in made["spec"]["volumes"]
    }
    assert found <= OWN_VOLUMES
    seldom = {f"airflow-training-{what}" for what in ("live", "order", "ssh")}
    assert OWN_VOLUMES - found <= seldom


def _held_job(gang: str) -> ResolvedJob:
    written = document(
        roles=[{"name": "worker", "replicas": 900}], schedulingPolicy={"gang": gang},
        checkpoint={"uri": "s3://b/c"},
    )  # fmt: skip
    job = checked(written).resolved
    assert job is not None
    return job


def in_pod(**spec: Any) -> dict[str, Any]:
    return document(roles=[{"name": "worker", "replicas": 2, "template": {"spec": spec}}])


def of_pod(**metadata: Any) -> dict[str, Any]:
    return document(roles=[{"name": "worker", "replicas": 2, "template": {"metadata": metadata}}])


def of_job(**metadata: Any) -> dict[str, Any]:
    made = document()
    made["metadata"] |= metadata
    return made


POD = "spec.roles[0].template.spec"
REFUSED = [
    (in_pod(containers=[{"name": "Side_1", "image": "x"}]), "bad_name", f"{POD}.containers[0].name"),
    (in_pod(containers=[{"name": "s" * 64, "image": "x"}]), "name_too_long",
     f"{POD}.containers[0].name"),
    (in_pod(initContainers=[{"name": "7.b", "image": "x"}]), "bad_name",
     f"{POD}.initContainers[0].name"),
    (in_pod(containers=[{"name": "airflow-training", "image": "x"}]), "duplicate",
     f"{POD}.containers[0].name"),
    (document(volumes=[{"name": "Data", "emptyDir": {}}]), "bad_name", "spec.volumes[0].name"),
    (document(volumes=[{"name": "airflow-training-output", "emptyDir": {}}]), "duplicate",
     "spec.volumes[0].name"),
    (document(ports=[{"name": "tensorboard-server", "containerPort": 6006}]), "name_too_long",
     "spec.ports[0].name"),
    (document(ports=[{"name": "6006", "containerPort": 6006}]), "bad_name", "spec.ports[0].name"),
    (document(ports=[{"name": "a--b", "containerPort": 6006}]), "bad_name", "spec.ports[0].name"),
    (document(env=[{"name": "GRÖSSE", "value": "1"}]), "bad_name", "spec.env[0].name"),
    (document(resources={"limits": {"gpu": 1}}), "bad_name", "spec.resources.limits.gpu"),
    (document(schedulingPolicy={"gang": "kueue", "queue": "My Queue"}), "bad_name",
     "spec.schedulingPolicy.queue"),
    (document(schedulingPolicy={"gang": "kueue", "queue": "q" * 64}), "name_too_long",
     "spec.schedulingPolicy.queue"),
    (document(schedulingPolicy={"gang": "volcano", "queue": "My_Queue"}), "bad_name",
     "spec.schedulingPolicy.queue"),
    (document(schedulingPolicy={"priorityClassName": "High"}), "bad_name",
     "spec.schedulingPolicy.priorityClassName"),
    (document(schedulingPolicy={"spread": {"topologyKey": "a b"}}), "bad_name",
     "spec.schedulingPolicy.spread.topologyKey"),
    (in_pod(nodeSelector={"gpu": "H100 80GB"}), "bad_name", f"{POD}.nodeSelector.gpu"),
    (in_pod(serviceAccountName="Trainer"), "bad_name", f"{POD}.serviceAccountName"),
    (in_pod(tolerations=[{"key": "a b", "operator": "Exists"}]), "bad_name",
     f"{POD}.tolerations[0].key"),
    (of_job(labels={"a..b/c": "x"}), "bad_name", 'metadata.labels["a..b/c"]'),
    (of_job(annotations={"a b": "x"}), "bad_name", 'metadata.annotations["a b"]'),
    (of_pod(labels={"team": "a b"}), "bad_name", "spec.roles[0].template.metadata.labels.team"),
    (of_pod(annotations={"-a": "x"}), "bad_name",
     'spec.roles[0].template.metadata.annotations["-a"]'),
    (of_pod(finalizers=["mine"]), "bad_name", "spec.roles[0].template.metadata.finalizers[0]"),
    (of_pod(annotations={"airflow-training/unfit-nodes": "[]"}), "duplicate",
     'spec.roles[0].template.metadata.annotations["airflow-training/unfit-nodes"]'),
    (of_pod(labels={"airflow-training/kept": "true"}), "duplicate",
     'spec.roles[0].template.metadata.labels["airflow-training/kept"]'),
    (of_job(annotations={"airflow-training/kept-until": "x"}), "duplicate",
     'metadata.annotations["airflow-training/kept-until"]'),
    ({**in_pod(setHostnameAsFQDN=True), "metadata": {"name": "job", "namespace": "research-team"}},
     "name_too_long", f"{POD}.setHostnameAsFQDN"),
]  # fmt: skip
"""A name that the server refuses, the code, and where it stands."""


@pytest.mark.parametrize(
    ("written", "code", "field"), REFUSED, ids=[f"{code}-{field}" for _, code, field in REFUSED]
)
def test_a_name_that_a_cluster_refuses_is_an_error_there_and_a_warning_elsewhere(
    written, code, field
):
    on_cluster, here = checked(written), checked(written, runtime="local")
    assert [(each.code, each.field) for each in on_cluster.problems] == [(code, field)]
    assert here.problems == []
    told = [each for each in here.warnings if (each.code, each.field) == (code, field)]
    assert len(told) == 1
    assert "ubernetes" in told[0].message or code == "duplicate" or "fit" in told[0].message


@pytest.mark.parametrize(
    "written",
    [
        in_pod(containers=[{"name": "7-side", "image": "x"}]),
        in_pod(setHostnameAsFQDN=True),
        document(volumes=[{"name": "airflow-training-data", "emptyDir": {}}]),
        document(ports=[{"name": "http-2", "containerPort": 8080}]),
        document(resources={"limits": {"nvidia.com/gpu": 1, "hugepages-2Mi": "2Mi"}}),
        in_pod(tolerations=[{"operator": "Exists"}], nodeSelector={"example.com/gpu": ""}),
        of_job(labels={"team": ""}, annotations={"Example.com/Note": "free text"}),
        of_pod(annotations={"airflow-training/agent": "false"}),
        in_pod(nodeSelector={"airflow-training/pool": "h100"}),
        of_pod(labels={"app.kubernetes.io/part-of": "A_b.c"}, finalizers=["example.com/mine"]),
        document(schedulingPolicy={"gang": "kueue", "queue": "Team_1.q"}),
        document(env=[{"name": "a.b-C_1", "value": "1"}]),
    ],
)
def test_a_name_that_a_cluster_takes_is_not_spoken_of(written):
    answer = checked(written)
    assert [*answer.problems, *answer.warnings] == []
    assert answer.resolved is not None
    assert complaints(answer.resolved) == []


def test_a_variable_that_only_newer_servers_take_is_a_warning():
    answer = checked(document(env=[{"name": "7B", "value": "1"}]))
    assert answer.problems == []
    assert [(each.code, each.field) for each in answer.warnings] == [
        ("bad_name", "spec.env[0].name")
    ]


@pytest.mark.parametrize("runtime", ["local", "kubernetes"])
@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_a_variable_that_no_process_can_have_is_an_error_everywhere(name, runtime):
    answer = checked(document(env=[{"name": name, "value": "1"}]), runtime=runtime)
    assert [(each.code, each.field) for each in answer.problems] == [
        ("bad_name", "spec.env[0].name")
    ]


@pytest.mark.parametrize(
    "role",
    [
        a_role(spec={"volumes": [{"name": "Shared_Memory", "emptyDir": {}}]}),
        a_role(ports={"80": 80}),
    ],
    ids=["volume", "port"],
)
def test_a_name_that_only_the_framework_gives_is_its_fault(role):
    (problem,) = refused_names(a_job(role))
    assert (problem.code, problem.field) == ("bad_name", "spec.framework")
    assert "worker" in problem.message


def test_a_host_name_that_the_run_gives_itself_is_a_warning():
    answer = checked(in_pod(hostname="mine"))
    assert [(each.code, each.field) for each in answer.warnings] == [
        ("not_supported", f"{POD}.hostname")
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("memroy", "memory"), ("CPU", "cpu"), ("gpus", "nvidia.com/gpu"), ("gpu", "nvidia.com/gpu")],
)
def test_the_name_of_a_resource_that_is_mistyped_is_told(name, meant):
    found = checked(document(resources={"limits": {name: 1}}))
    assert f"did you mean '{meant}'?" in [problem.hint for problem in found.problems]
