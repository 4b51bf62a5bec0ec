"""The pod of an attempt: what the user wrote stays, what makes it an instance is added."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.agent.order import ORDER_VARIABLE, Order, replace
from airflow_training.agent.pod_attempts import prepare_next_attempt
from airflow_training.control.memory import with_its_memory
from airflow_training.control.model import InstanceEntry, RaisedMemory
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedDependency, ResolvedSpot, RunRef
from airflow_training.documents.resolved_blocks import ResolvedCode
from airflow_training.errors import InputError
from airflow_training.runtimes.kubernetes import inject, names
from airflow_training.runtimes.kubernetes.capabilities import CODE_DIR_IN_POD, OUTPUT_DIR_IN_POD
from airflow_training.runtimes.kubernetes.facts import RunFacts, facts_of
from airflow_training.runtimes.kubernetes.objects import files_document, ssh_secret_document
from airflow_training.runtimes.kubernetes.observing import CANNOT_START_SECONDS
from airflow_training.runtimes.kubernetes.pod_attempts import AgentReport, restart_marks
from airflow_training.runtimes.kubernetes.pod_files import file_data
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.pods import (
    PodOptions,
    life_seconds,
    needs_agent,
    pod_of,
)
from airflow_training.runtimes.kubernetes.services import service_documents
from airflow_training.runtimes.port import InstanceSpec
from tests.frameworks.samples import a_resolved_job
from tests.kubernetes.emulator.environment import expand
from tests.kubernetes.samples import (
    OPTIONS,
    RUN,
    a_container,
    a_job,
    a_pod,
    a_role,
    an_attempt,
    an_instance,
    main_container,
)
from tests.kubernetes.strict import complaints


def env_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in main_container(pod)["env"]}


def test_a_pod_is_found_again_by_what_it_carries():
    pod = a_pod()
    assert PodView.of(pod).ref == dataclasses.replace(an_instance(a_job()).ref, uid="")
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == (
        "digits-01234-worker-0",
        "team",
    )
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "digits-01234",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    labels = pod["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-name"] == "digits"
    assert labels["jobset.sigs.k8s.io/replicatedjob-name"] == "worker"


def test_a_pod_needs_no_rights_and_is_started_once():
    spec = a_pod()["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert (spec["hostname"], spec["subdomain"]) == ("digits-01234-worker-0", "digits-01234-worker")
    asked = a_job(a_role(spec={"automountServiceAccountToken": True, "serviceAccountName": "me"}))
    assert a_pod(asked)["spec"]["automountServiceAccountToken"] is True


def test_what_the_user_wrote_stays():
    job = a_job(
        a_role(
            metadata={"labels": {"team": "a"}, "annotations": {"note": "b"}},
            spec={
                "restartPolicy": "OnFailure",
                "schedulerName": "mine",
                "nodeSelector": {"gpu": "a100"},
                "containers": [a_container(), a_container("sidecar")],
                "initContainers": [a_container("fetch")],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
            },
            main=a_container(),
        ),
        gang="volcano",
        labels={"team": "weaker", "project": "p"},
        annotations={"owner": "x"},
    )
    pod = a_pod(job)
    spec = pod["spec"]
    assert pod["metadata"]["labels"].items() >= {"team": "a", "project": "p"}.items()
    assert pod["metadata"]["annotations"].items() >= {"note": "b", "owner": "x"}.items()
    assert spec["schedulerName"] == "mine"
    assert spec["nodeSelector"] == {"gpu": "a100"}
    assert [each["name"] for each in spec["containers"]] == ["main", "sidecar"]
    assert [each["name"] for each in spec["initContainers"]] == ["fetch"]
    assert spec["initContainers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert spec["volumes"][0] == {"name": "scratch", "emptyDir": {}}
    assert spec["restartPolicy"] == "Never"


def test_labels_of_the_user_never_take_the_place_of_ours():
    job = a_job(a_role(metadata={"labels": {names.RUN: "another", names.CONTROLLER: "b"}}))
    assert PodView.of(a_pod(job)).ref.run.uid == RUN.uid


@pytest.mark.parametrize(
    ("job_seconds", "pod_seconds", "expected"),
    [
        (None, None, None),
        (0.2, None, 1),
        (59.1, None, 60),
        (None, 30, 30),
        (20, 30, 20),
        (40, 30, 30),
    ],
)
def test_every_pod_ends_by_itself(job_seconds, pod_seconds, expected):
    spec = {} if pod_seconds is None else {"activeDeadlineSeconds": pod_seconds}
    pod = a_pod(a_job(a_role(spec=spec)), deadline_seconds=job_seconds)
    assert pod["spec"].get("activeDeadlineSeconds") == expected


@pytest.mark.parametrize(
    ("deadline", "most", "life"),
    [
        (None, None, None),
        (None, 100, 100),
        (1000, None, 1000 + CANNOT_START_SECONDS),
        (20, None, 40),
        (1000, 1100, 1100),
    ],
)
def test_a_pod_lives_longer_by_what_its_image_may_take(deadline, most, life):
    assert life_seconds(deadline, most=most) == life


def test_the_grace_is_the_pods_own_or_the_jobs():
    assert a_pod(a_job(grace_seconds=12.5))["spec"]["terminationGracePeriodSeconds"] == 13
    own = a_job(a_role(spec={"terminationGracePeriodSeconds": 90}))
    assert a_pod(own)["spec"]["terminationGracePeriodSeconds"] == 90


def test_no_pod_is_deleted_by_force_whoever_deletes_it():
    assert a_pod(a_job(grace_seconds=0))["spec"]["terminationGracePeriodSeconds"] == 1


def test_output_and_progress_have_a_place_that_anybody_may_write():
    pod = a_pod()
    mounts = {m["mountPath"]: m["name"] for m in main_container(pod)["volumeMounts"]}
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    for path in ("/training", OUTPUT_DIR_IN_POD):
        assert volumes[mounts[path]] == {"name": mounts[path], "emptyDir": {}}
    assert env_of(pod)["TRAINING_OUTPUT_DIR"] == OUTPUT_DIR_IN_POD
    assert env_of(pod)["TRAINING_PROGRESS_FILE"] == "/training/progress.jsonl"


def test_a_volume_of_the_users_may_take_the_output():
    mount = {"name": "disk", "mountPath": f"{OUTPUT_DIR_IN_POD}/"}
    claim = {"name": "disk", "persistentVolumeClaim": {"claimName": "c"}}
    pod = a_pod(a_job(a_role(main=a_container(volumeMounts=[mount]), spec={"volumes": [claim]})))
    assert complaints(pod) == []
    assert mount in main_container(pod)["volumeMounts"]


def test_files_come_from_a_config_map_of_their_content():
    spec = an_instance(
        a_job(),
        files={"/etc/mpi/hostfile": "a\n", "run.sh": "#!/bin/sh\n"},
        executables=frozenset({"run.sh"}),
    )
    pod = pod_of(spec, facts_of(RUN, a_job()), "u", options=OPTIONS)
    document = files_document(RUN, pod["metadata"]["name"], file_data(spec), record_uid="u")
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "airflow-training-files"]
    assert volume["configMap"]["name"] == document["metadata"]["name"]
    modes = {each["path"]: each["mode"] for each in volume["configMap"]["items"]}
    found = {
        mount["mountPath"]: (document["data"][mount["subPath"]], modes[mount["subPath"]])
        for mount in main_container(pod)["volumeMounts"]
        if mount["name"] == "airflow-training-files"
    }
    assert found == {
        "/etc/mpi/hostfile": ("a\n", 0o444),
        "/training/run.sh": ("#!/bin/sh\n", 0o555),
    }
    other = files_document(RUN, pod["metadata"]["name"], {"file-0": "b"}, record_uid="u")
    assert other["metadata"]["name"] != document["metadata"]["name"]


def test_a_file_that_may_be_replaced_is_written_by_the_agent_where_anybody_may_write():
    files = {"plan/plan.json": "1", "plan/other.json": "2"}
    pod = a_pod(files=files, replaced=frozenset({"plan/plan.json"}))
    main = main_container(pod)
    assert main["command"][-2:] == ["python", "train.py"]
    assert main["command"][0] == "python3", "the agent is in front"
    places = {each["mountPath"]: each["name"] for each in main["volumeMounts"]}
    assert "/training/plan/plan.json" not in places
    assert places["/training/plan/other.json"] == "airflow-training-files"
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes[places["/training/plan"]]["emptyDir"] == {}
    told = pod["metadata"]["annotations"][names.FILES]
    assert json.loads(told) == {"/training/plan/plan.json": "1"}
    items = volumes[places[inject.ORDERS_FILE.rpartition("/")[0]]]["downwardAPI"]["items"]
    assert {each["fieldRef"]["fieldPath"] for each in items} >= {
        f"metadata.annotations['{names.FILES}']"
    }
    order = Order.of_text(env_of(pod)[ORDER_VARIABLE].replace("$$", "$"))
    assert order.orders_file == inject.ORDERS_FILE


def test_a_pod_whose_plan_was_mounted_by_an_earlier_version_cannot_get_another():
    files = {"plan/plan.json": "1"}
    assert not PodView.of(a_pod(files=files)).replaces_files
    assert PodView.of(a_pod(files=files, replaced=frozenset(files))).replaces_files


def test_the_next_attempt_in_a_pod_finds_the_files_of_its_own():
    files = {"plan/plan.json": "1"}
    changing: dict[str, Any] = {"files": files, "replaced": frozenset(files)}
    first = PodView.of(a_pod(**changing))
    second = an_instance(a_job(), **{**changing, "files": {"plan/plan.json": "2"}}, attempt=1)
    document = pod_of(second, facts_of(RUN, a_job()), "uid-1", options=OPTIONS)
    marks = restart_marks(first, AgentReport(number=0), document, second.ref)
    assert json.loads(marks["annotations"][names.FILES]) == {"/training/plan/plan.json": "2"}


def test_a_port_that_others_wait_for_is_probed():
    ps = a_role("ps", ports={"main": 2222})
    waits = (ResolvedDependency(role="ps", status="PortOpen"),)
    job = a_job(ps, a_role("worker", depends_on=waits, ports={"main": 1}))
    probe = main_container(a_pod(job, "ps"))["startupProbe"]
    assert probe["tcpSocket"] == {"port": 2222}
    assert probe["periodSeconds"] == 1
    assert "startupProbe" not in main_container(a_pod(job, "worker"))
    own = {"exec": {"command": ["true"]}}
    ps = a_role("ps", ports={"main": 2222}, main=a_container(startupProbe=own))
    job = a_job(ps, a_role("worker", depends_on=waits))
    assert main_container(a_pod(job, "ps"))["startupProbe"] == own


def test_attempts_that_share_a_pod_share_its_ports_and_its_agent_knows_them():
    options = dataclasses.replace(OPTIONS, callback_url="https://airflow/training/")
    alone = an_instance(a_job())
    for spec, ports in (
        (alone, {}),
        (dataclasses.replace(alone, in_place_seconds=60.0), {"main": 2345}),
    ):
        pod = pod_of(spec, facts_of(RUN, a_job()), "u", options=options)
        order = Order.of_text(expand(env_of(pod)[ORDER_VARIABLE], {}))
        assert order.ports == ports


@pytest.mark.parametrize(
    ("gang", "kept", "awaits"),
    [
        pytest.param("none", 0.0, "true", id="a-next-attempt"),
        pytest.param("kueue", 600.0, "look", id="only-a-look-inside"),
        pytest.param("kueue", 0.0, None, id="nothing"),
    ],
)
def test_an_agent_waits_for_what_may_come_to_its_pod(gang, kept, awaits):
    options = dataclasses.replace(OPTIONS, callback_url="https://airflow/training/")
    job = a_job(gang=gang)
    spec = dataclasses.replace(an_instance(job), in_place_seconds=60.0, keep_seconds=kept)
    pod = pod_of(spec, facts_of(RUN, job), "u", options=options)
    assert pod["metadata"]["annotations"].get("airflow-training/in-place") == awaits


def test_a_pod_that_may_stay_lives_longer_and_its_agent_ends_the_training_in_time():
    options = dataclasses.replace(OPTIONS, callback_url="https://airflow/training/")
    job = dataclasses.replace(a_job(), active_deadline_seconds=100.0)
    life = life_seconds(100.0, most=None, keep_seconds=600.0)
    spec = dataclasses.replace(
        an_instance(job), in_place_seconds=60.0, keep_seconds=600.0, deadline_seconds=life
    )
    pod = pod_of(spec, facts_of(RUN, job), "u", options=options)
    order = Order.of_text(expand(env_of(pod)[ORDER_VARIABLE], {}))
    assert (pod["spec"]["activeDeadlineSeconds"], order.deadline_seconds) == (800, 200.0)


@pytest.mark.parametrize("told", [True, False])
def test_the_next_attempt_in_a_pod_has_only_what_is_left_of_the_jobs_time(told: bool):
    """An order of an older controller does not tell."""
    options = dataclasses.replace(OPTIONS, callback_url="https://airflow/training/")
    job = dataclasses.replace(a_job(), active_deadline_seconds=1000.0)

    def made(seconds: float, **numbers: Any) -> tuple[InstanceSpec, dict[str, Any]]:
        life = life_seconds(seconds, most=None, keep_seconds=600.0)
        spec = an_instance(job, **numbers)
        spec = dataclasses.replace(
            spec, in_place_seconds=60.0, keep_seconds=600.0, deadline_seconds=life
        )
        return spec, pod_of(spec, facts_of(RUN, job), "u", options=options)

    _, first = made(1000.0)
    spec, second = made(100.0, attempt=1)
    marks = restart_marks(PodView.of(first), AgentReport(number=0), second, spec.ref)
    order = json.loads(marks["annotations"]["airflow-training/order"])
    if not told:
        order.pop("deadline_seconds", None)
    before = Order.of_text(expand(env_of(first)[ORDER_VARIABLE], {}))
    following = prepare_next_attempt({**order, "env": {}}, after=replace(before, output_dir=""))
    longest = 1000.0 + min(1000.0, CANNOT_START_SECONDS)
    assert before.deadline_seconds == longest
    assert following.deadline_seconds == (200.0 if told else longest)
    assert ORDER_VARIABLE not in order["env"]


def test_kueue_pods_are_named_by_attempt_and_keep_their_host_name():
    job = a_job(gang="kueue")
    pod = a_pod(job, epoch=1, job_attempt=2, attempt=3)
    assert pod["metadata"]["name"] == "digits-01234-worker-0-1-2-3"
    assert pod["spec"]["hostname"] == "digits-01234-worker-0"
    assert facts_of(RUN, job).numbered


def test_spread_and_priority_are_given_on():
    job = a_job(
        scheduling={
            "priority_class_name": "high",
            "spread": {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"},
        }
    )
    spec = a_pod(job)["spec"]
    assert spec["priorityClassName"] == "high"
    assert spec["topologySpreadConstraints"] == [
        {
            "topologyKey": "zone",
            "maxSkew": 2,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {names.RUN: RUN.uid}},
        }
    ]


def _placed(gang: str = "none", **affinity: object) -> dict[str, Any]:
    job = a_job(a_role(spec={"affinity": affinity}), gang=gang)
    spec: dict[str, Any] = a_pod(job, avoid_nodes=("n1", "n2"))["spec"]
    return spec


def test_a_pod_prefers_any_other_node_than_those_to_keep_away_from():
    own = {"weight": 1, "preference": {"matchExpressions": []}}
    chosen = "preferredDuringSchedulingIgnoredDuringExecution"
    spec = _placed(nodeAffinity={chosen: [own]}, podAffinity={"x": 1})
    mine, *away = spec["affinity"]["nodeAffinity"][chosen]
    assert mine == own
    assert spec["affinity"]["podAffinity"] == {"x": 1}
    assert [each["preference"]["matchFields"][0]["values"] for each in away] == [["n1"], ["n2"]]
    assert {each["preference"]["matchFields"][0]["operator"] for each in away} == {"NotIn"}


def test_pods_of_a_kueue_group_stay_alike():
    assert _placed("kueue", podAffinity={"x": 1})["affinity"] == {"podAffinity": {"x": 1}}


def test_an_mpi_instance_finds_the_keys_of_its_run():
    job = dataclasses.replace(
        a_resolved_job("mpi", {"launcher": 1, "worker": 2}, runtime="kubernetes"), name="digits"
    )
    facts = facts_of(RUN, job)
    secret = ssh_secret_document(RUN, record_uid="u")
    assert facts.ssh
    for role in ("launcher", "worker"):
        pod = a_pod(job, role, facts=facts)
        assert complaints(pod) == [] or all("no image" in each for each in complaints(pod))
        (volume,) = [v for v in pod["spec"]["volumes"] if "secret" in v]
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        mounts = {m["mountPath"]: m["name"] for m in main_container(pod, "mpi")["volumeMounts"]}
        assert mounts["/etc/mpi/ssh"] == volume["name"]
    assert set(secret["data"]) == {"id", "id.pub", "host", "authorized_keys", "known_hosts"}
    assert not facts_of(RUN, a_job()).ssh


def test_a_headless_service_for_each_role_with_instances():
    job = a_job(a_role(ports={"main": 2345, "same": 2345, "other": 1}), a_role("none", 0))
    (service,) = service_documents(RUN, facts_of(RUN, job), record_uid="u")
    spec = service["spec"]
    assert service["metadata"]["name"] == "digits-01234-worker"
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert [port["port"] for port in spec["ports"]] == [2345, 1]
    labels = a_pod(job)["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    (bare,) = service_documents(RUN, facts_of(RUN, a_job(a_role())), record_uid="u")
    assert "ports" not in bare["spec"]


@pytest.mark.parametrize("gang", ["none", "volcano", "coscheduling", "kueue"])
def test_the_record_can_be_read_back(gang):
    job = a_job(
        a_role("ps", 2, ports={"main": 1}),
        a_role("worker", 3, depends_on=(ResolvedDependency(role="ps", status="PortOpen"),)),
        gang=gang,
        labels={"snake_case/keyName": "Value"},
        scheduling={"spread": {"topologyKey": "a"}, "queue": "q", "startup": "perWave"},
        ttl_seconds_after_finished=3.5,
    )
    facts = dataclasses.replace(facts_of(RUN, job), removed=3, removed_at=4.5)
    assert RunFacts.from_document(facts.document(RUN)) == facts


def test_the_end_of_a_run_is_the_first_time_that_it_is_removed_since_it_was_opened():
    facts = dataclasses.replace(facts_of(RUN, a_job(a_role())), generation=2)
    ended = facts.bury(2, now=10.0)
    assert (ended.removed, ended.removed_at) == (2, 10.0)
    assert ended.bury(5, now=20.0) == dataclasses.replace(ended, removed=5)
    opened = dataclasses.replace(ended, generation=6)
    assert opened.bury(6, now=30.0).removed_at == 30.0


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"uid": 1, "what": 2}'])
def test_a_record_that_is_none_is_said_to_be_none(text):
    with pytest.raises(ValueError, match=r"record|JSON|Expecting"):
        RunFacts.from_json(text)


@pytest.mark.parametrize(
    ("controller", "good"),
    [
        ("a", True),
        ("site-1.b_C", True),
        ("", False),
        ("-a", False),
        ("a" * 64, False),
        ("a/b", False),
    ],
)
def test_a_deployment_id_has_to_be_a_label(controller, good):
    assert (names.controller_problem(controller) == "") is good


def test_the_longest_names_still_fit():
    run = RunRef(uid="0" * 20, job="j" * 53, namespace="n", controller="c")
    ref = dataclasses.replace(an_attempt(), run=run, key=InstanceKey("r", 0))
    assert len(names.group_name(run, 9)) <= 63
    assert names.pod_name(ref, numbered=True).endswith("-1-2-5")


def test_the_output_needs_a_command_that_we_can_start():
    job = a_job(
        a_role(main={"name": "main", "image": "i"}), output_uri="s3://out", output_role="worker"
    )
    with pytest.raises(InputError, match="has to name it"):
        a_pod(job)


NAME = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0{}"), max_size=20)
PATH = st.from_regex(r"/?[a-z]{1,6}(/[a-z]{1,6}){0,2}", fullmatch=True)


@given(
    role=NAME,
    files=st.dictionaries(PATH, TEXT, max_size=3),
    live=st.dictionaries(PATH.map(lambda p: f"live/{p.strip('/')}"), TEXT, max_size=2),
    held=st.booleans(),
    output=st.booleans(),
    gang=st.sampled_from(["none", "volcano", "coscheduling", "kueue"]),
    ports=st.dictionaries(
        st.from_regex(r"[a-z]{1,15}", fullmatch=True), st.integers(1, 65535), max_size=3
    ),
    deadline=st.none() | st.floats(0, 1e6),
    callback=st.sampled_from(["", "http://airflow/training/"]),
    env=st.dictionaries(st.from_regex(r"[A-Z]{1,6}", fullmatch=True), TEXT, max_size=3),
    replicas=st.sampled_from([1, 2, 500]),
)
def test_a_strict_api_server_takes_every_pod(
    role, files, live, held, output, gang, ports, deadline, callback, env, replicas
):
    variables = [{"name": name, "value": value} for name, value in env.items()]
    job = a_job(
        a_role(role, replicas, ports=ports, main=a_container(env=variables)),
        gang=gang,
        output_uri="s3://bucket/$(x)" if output else "",
        output_role=role,
        scheduling={"queue": "q"},
    )
    absolute = {path if path.startswith("/") else f"/training/{path}" for path in files}
    files = {p: t for p, t in files.items() if p.startswith("/") or f"/{p}" not in absolute}
    spec = an_instance(
        job,
        role,
        held=held,
        deadline_seconds=deadline,
        files=files,
        live_files=live if held else {},
    )
    options = PodOptions(agent_image="agent:1", agent_config_map="map", callback_url=callback)
    pod = pod_of(spec, facts_of(RUN, job), "u", options=options)
    assert complaints(pod) == []
    mounted = any("agent" in v["name"] for v in pod["spec"].get("volumes", ()))
    assert mounted == needs_agent(spec, options)
    assert pod == pod_of(spec, facts_of(RUN, job), "u", options=options)


def test_a_pod_asks_for_the_memory_that_its_instance_was_given():
    limits = {"memory": "8Gi", "nvidia.com/gpu": 1}
    main = {"name": "main", "image": "i", "resources": {"limits": limits}}
    job = a_job(a_role(main=main))
    entry = InstanceEntry(
        key=InstanceKey("worker", 1), memory=RaisedMemory(12 << 30, since_attempt=1)
    )
    pod = a_pod(with_its_memory(job, entry), index=1, facts=facts_of(RUN, job))
    assert main_container(pod)["resources"] == {"limits": {**limits, "memory": "12Gi"}}


def test_code_is_laid_out_by_the_agent_and_the_command_starts_in_it():
    code = ResolvedCode(uri="s3://bucket", digest=f"sha256:{'0' * 64}", packages=("a==1",))
    spec = dataclasses.replace(
        an_instance(a_job()), code=code, working_dir="project/src", command=("python", "t.py")
    )
    pod = pod_of(spec, facts_of(RUN, a_job()), "u", options=OPTIONS)
    main = main_container(pod)
    assert complaints(pod) == []
    assert "workingDir" not in main
    assert main["command"][-3:] == ["--", "python", "t.py"]
    order = Order.of_text(str(env_of(pod)[ORDER_VARIABLE]))
    assert (order.code_dir, order.working_dir) == (
        CODE_DIR_IN_POD,
        f"{CODE_DIR_IN_POD}/project/src",
    )
    assert order.code == {
        "uri": "s3://bucket", "digest": "0" * 64, "packages": ["a==1"], "python": "python3",
    }  # fmt: skip


def test_a_pod_may_not_be_placed_on_an_excluded_node():
    """Terms of the template stay, and each of them leaves the nodes out."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    theirs = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    job = a_job(
        a_role(
            spec={"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [theirs, theirs]}}}}
        )
    )
    never = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("n1", "n2")
    ]
    spec = a_pod(job, excluded_nodes=("n1", "n2"), avoid_nodes=("n3",))["spec"]
    terms = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert terms == [{**theirs, "matchFields": never}] * 2
    assert "preferredDuringSchedulingIgnoredDuringExecution" in spec["affinity"]["nodeAffinity"]
    alone = a_pod(excluded_nodes=("n1", "n2"))["spec"]["affinity"]["nodeAffinity"]
    assert alone == {required: {"nodeSelectorTerms": [{"matchFields": never}]}}
    assert "affinity" not in a_pod(a_job(gang="kueue"), excluded_nodes=("n1",))["spec"], "alike"


def test_the_last_instances_of_a_role_are_on_spot_and_the_others_are_not():
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spot = ResolvedSpot(from_index=1, label="karpenter.sh/capacity-type", value="spot")
    job = a_job(a_role(spot=spot, spec={"tolerations": [{"key": "gpu", "operator": "Exists"}]}))

    def asked(index: int) -> tuple[Any, Any]:
        spec = a_pod(job, index=index, excluded_nodes=("n1",))["spec"]
        (term,) = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == ["n1"]
        return term["matchExpressions"], spec["tolerations"]

    label = {"key": "karpenter.sh/capacity-type", "values": ["spot"]}
    theirs = {"key": "gpu", "operator": "Exists"}
    taint = {"key": "karpenter.sh/capacity-type", "operator": "Equal", "value": "spot"}
    assert asked(0) == ([{**label, "operator": "NotIn"}], [theirs])
    assert asked(1) == ([{**label, "operator": "In"}], [theirs, taint])
