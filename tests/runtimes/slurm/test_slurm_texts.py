"""What Slurm prints, and what is said to it: no cluster is needed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pydantic import ValidationError

from airflow_training.admission.check import check_text
from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.agent.order import Order
from airflow_training.builtin_runtimes import load_adapter
from airflow_training.documents.problems import problems_of
from airflow_training.errors import InputError
from airflow_training.runtimes.folders.attempt_state import AgentLiveness, AttemptState
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.allocation_program import (
    counts_of,
    host_name,
    hosts_of,
    move_from_lost,
    named_instances,
    place_order,
)
from airflow_training.runtimes.slurm.nodes import expand_nodes, parse_nodes, parse_topology
from airflow_training.runtimes.slurm.options import SlurmOptions
from airflow_training.runtimes.slurm.queue_view import (
    QueuedJob,
    end_reason,
    parse_queue,
    read_job_id,
    read_refusal,
    wait_reason,
)
from airflow_training.runtimes.slurm.queue_watch import jobs_of
from airflow_training.runtimes.slurm.requests import (
    AllocationComponent,
    AllocationRequest,
    gang_request,
    job_script,
    log_pattern,
    single_requests,
    submit_command,
)
from airflow_training.runtimes.slurm.shell import shell_words

QUEUE = """\
5|CANCELLED|1795718798|1795718798||wrap|PartitionConfig
10_0|RUNNING|1795718799|1827254799|n1|arr|None
10_1|COMPLETING|1795718799|1795718807|n1|arr|None
11+0|RUNNING|1795718799|1795718803|n1|h1|None
11+1|NODE_FAIL|1795718799|1795718803|n3|h1|None
14|PENDING|1827254799|N/A||big|Resources
15|FAILED|1795718799|1795718800|n3|fail|NonZeroExitCode
"""
"""As Slurm 22.05 prints it."""
NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUEfctv=4 CPUTot=4 CPULoad=8.51 AvailableFeatures=ib,a100 ActiveFeatures=ib,a100 Gres=gpu:a100:4(S:0-1) GresUsed=gpu:a100:1(IDX:0) NodeAddr=10.0.0.7 NodeHostName=vm Port=17001 Version=22.05.8 OS=Linux 6.18 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=4000 AllocMem=1000 FreeMem=12912 State=MIXED ThreadsPerCore=1 Partitions=main,short  BootTime=2026-11-26T18:32:48
NodeName=n2 Arch=x86_64 CPUAlloc=0 CPUTot=4 Gres=(null) NodeAddr=n2 RealMemory=4000 AllocMem=0 State=IDLE+DRAIN Partitions=main
NodeName=n3 Arch=x86_64 CPUAlloc=0 CPUTot=8 ActiveFeatures=(null) Gres=(null) NodeAddr=n3 RealMemory=8000 AllocMem=0 State=IDLE Partitions=main
"""


def job(state: str, reason: str = "", **more: object) -> QueuedJob:
    return QueuedJob(id="7", name="x", state=state, reason=reason, **more)  # type: ignore[arg-type]


def test_the_queue_is_read_with_elements_and_components():
    jobs = parse_queue(QUEUE)
    assert (jobs["14"].state, jobs["14"].reason, jobs["14"].starts_at) == (
        "PENDING",
        "Resources",
        1827254799.0,
    )
    assert [each.id for each in jobs_of(jobs, "11")] == ["11+0", "11+1"]
    assert [each.id for each in jobs_of(jobs, "10_1")] == ["10_1"]
    assert jobs_of(jobs, "1") == []
    assert {each.id for each in jobs.values() if each.over} == {"5", "11+1", "15"}
    odd = parse_queue(
        "7|RUNNING|N/A|N/A|n1|a|b|None\n8|PENDING|N/A|N/A||x|held | by an administrator\n"
    )
    assert {each.id: each.state for each in odd.values()} == {"7": "RUNNING", "8": "PENDING"}
    assert parse_queue("slurm_load_jobs error: Unable to contact slurm controller") == {}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Resources", "Unschedulable"),
        ("Priority", "Unschedulable"),
        ("QOSMaxCpuPerUserLimit", "Unschedulable"),
        ("AssocGrpGRES", "Unschedulable"),
        ("QOSMaxNodePerJobLimit", "NeverFits"),
        ("QOSMaxWallDurationPerJobLimit", "NeverFits"),
        ("AssocMaxCpuPerJobLimit", "NeverFits"),
        ("PartitionTimeLimit", "NeverFits"),
        ("PartitionNodeLimit", "NeverFits"),
        ("BadConstraints", "NeverFits"),
        ("SomethingNew", "Unschedulable"),
    ],
)
def test_what_waits_may_never_fit(reason, said):
    found, message = wait_reason(job("PENDING", reason))
    assert found == said
    assert reason in message


@pytest.mark.parametrize(
    ("state", "asked", "reason"),
    [
        ("TIMEOUT", False, "SlurmTimeLimit"),
        ("PREEMPTED", True, "SlurmPreempted"),
        ("NODE_FAIL", False, "SlurmNodeFail"),
        ("OUT_OF_MEMORY", False, "OOMKilled"),
        ("CANCELLED", True, "SlurmCancelled"),
        ("FAILED", False, "SlurmJobLost"),
        ("FAILED", True, "Terminated"),
    ],
)
def test_an_end_has_the_reason_of_its_state(state, asked, reason):
    found = end_reason([job("COMPLETED"), job(state)], asked_to_end=asked)[0]
    assert found == reason
    reasons = load_adapter("slurm").capabilities.reasons
    assert found in reasons


def test_what_nobody_knows_of_is_lost():
    assert end_reason([], asked_to_end=False)[0] == "SlurmJobLost"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "impossible", "CannotBeCreated"),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", "away", "SlurmAway"),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", "away", "SlurmAway"),
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed", "refused", "SlurmSubmitLimit"),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "refused", "SlurmSubmitLimit"),
        ("sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "impossible", "CannotBeCreated"),
        ("sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)", "refused", "SlurmPartitionUnavailable"),
        ("sbatch: error: Batch job submission failed: Communication connection failure", "away", "SlurmAway"),
        ("sbatch: error: Munge encode failed: Failed to access /run/munge/munge.socket.2", "away", "SlurmAway"),
    ],
)  # fmt: skip
def test_a_refusal_of_sbatch_is_final_or_not(text, kind, reason):
    answer = read_refusal(text)
    assert (answer.kind, answer.reason) == (kind, reason)
    assert "sbatch: error" not in answer.message


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("12\n", "12"),
        ("12;cluster\n", "12"),
        ("Welcome to 1 of our 3 clusters\n 12\n", "12"),
        ("Usage: sbatch [OPTIONS...]\n", ""),
        ("", ""),
    ],
)
def test_what_sbatch_prints_has_the_job_id_on_a_line_of_its_own(text, job):
    assert read_job_id(text) == job


def test_nodes_that_take_jobs_are_told_with_what_is_free():
    nodes = parse_nodes(NODES, switches={"n1": "s0"})
    assert [each.name for each in nodes] == ["n1", "n3"]
    first = nodes[0]
    assert (first.cpus, first.free_cpus, first.gpus, first.free_gpus) == (4.0, 3.0, 4, 3)
    assert (first.memory_bytes, first.free_memory_bytes) == (4000 << 20, 3000 << 20)
    assert first.labels == {
        "slurm/features": "ib,a100",
        "slurm/partitions": "main,short",
        "slurm/switch": "s0",
        "nvidia.com/gpu.product": "a100",
    }
    assert [each.name for each in parse_nodes(NODES, partition="short")] == ["n1"]


def test_a_topology_names_the_switch_of_each_node():
    text = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=top Level=1 Nodes=n[1-2] Switches=s0\n"
    assert parse_topology(text) == {"n1": "s0", "n2": "s0"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3,07]", ["n1", "n2", "n3", "n07"]),
        ("a[09-10]-ib,b", ["a09-ib", "a10-ib", "b"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_lists_of_nodes_are_expanded(text, names):
    assert list(expand_nodes(text)) == names


def test_tasks_of_nodes_are_counted():
    assert counts_of("2(x3),1") == [2, 2, 2, 1]


def test_names_become_nodes_once_they_are_known():
    name = host_name("worker", 1, "run-7")
    order = {
        "env": {"MASTER_ADDR": name, "PEERS": f"{name}:1,worker-10.run-7.slurm:2", "PATH": "/bin"},
        "command": ["x", f"--at={name}:5"],
        "files": {"hosts": {"content": f"{name} slots=1\n", "executable": False}},
        "index": 3,
    }
    assert named_instances(order, "run-7") == {"worker-1", "worker-10"}
    placed = place_order(
        order,
        run="run-7",
        hosts={"worker-1": "n4"},
        env={"SLURM_JOB_ID": "9", "PATH": "no", "CUDA_VISIBLE_DEVICES": "2"},
    )
    assert placed["env"]["MASTER_ADDR"] == "n4"
    assert placed["env"]["PEERS"] == "n4:1,worker-10.run-7.slurm:2"
    assert (placed["env"]["SLURM_JOB_ID"], placed["env"]["CUDA_VISIBLE_DEVICES"]) == ("9", "2")
    assert placed["command"] == ["x", "--at=n4:5"]
    assert placed["files"]["hosts"]["content"] == "n4 slots=1\n"
    assert order["command"] == ["x", f"--at={name}:5"]


def _began(run: Path, allocation: str, members: dict[str, str], *, at: float) -> None:
    (run / "allocations" / allocation).mkdir(parents=True)
    document = {"at": at, "members": {name: {"address": node} for name, node in members.items()}}
    write_json(run / "allocations" / allocation / "started.json", document)


def _attempt(run: Path, name: str, uid: str, allocation: str, *, placed: str = "") -> None:
    control = run / name / "current" / ".agent"
    control.mkdir(parents=True, exist_ok=True)
    write_json(control / "spec.json", {"uid": uid})
    write_json(control / "placement.json", {"uid": placed or uid, "allocation": allocation})


def test_the_node_of_an_instance_is_that_of_its_newest_attempt(tmp_path):
    _began(tmp_path, "1/0", {"a-0": "n1", "b-0": "n2", "c-0": "n3"}, at=900.0)
    _attempt(tmp_path, "a-0", "x", "1/0")
    _attempt(tmp_path, "b-0", "y", "1/0")
    named = ["a-0", "b-0", "c-0", "d-0"]
    assert hosts_of(tmp_path, read_json, named) == {"a-0": "n1", "b-0": "n2", "c-0": "n3"}
    # a new attempt waits in the queue, another is not placed yet: where their older ones were says nothing
    _attempt(tmp_path, "a-0", "z", "2/0")
    _attempt(tmp_path, "b-0", "w", "1/0", placed="y")
    assert hosts_of(tmp_path, read_json, named) == {"c-0": "n3"}
    # on a node whose clock is behind
    _began(tmp_path, "2/0", {"a-0": "n9", "c-0": "n8"}, at=100.0)
    assert hosts_of(tmp_path, read_json, named) == {"a-0": "n9", "c-0": "n8"}


def test_what_roles_ask_for_becomes_components():
    small = AllocationComponent.of_resources({"cpu": "500m", "memory": "1Gi"})
    large = AllocationComponent.of_resources({"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"})
    assert (small.cpus, small.memory_mb_per_cpu, small.gpus) == (1, 1024, 0)
    assert (large.cpus, large.memory_mb_per_cpu, large.gpus) == (4, 2048, 2)
    request = gang_request(
        {"master": (small, 1), "worker": (large, 2), "eval": (small, 1)}, AllocationOptions()
    )
    assert request.components == (small, large)
    assert request.elements == ((("master-0", "eval-0"), ("worker-0", "worker-1")),)
    words = submit_command(
        request,
        AllocationOptions(partition="gpu", time="1:00:00", exclusive=True, extra=("--nice=5",)),
        name="x",
        comment="y",
        output="z",
        deadline_seconds=60,
    )
    first, second = words[: words.index(":")], words[words.index(":") + 1 :]
    assert "--ntasks=2" in first
    for part in (first, second):
        assert {"--partition=gpu", "--time=1:00:00", "--exclusive", "--nice=5"} <= set(part)
    assert {"--ntasks=2", "--cpus-per-task=4", "--gpus-per-task=2", "--mem-per-cpu=2048M"} <= set(
        second
    )
    assert "--no-requeue" in first


def test_no_component_is_placed_on_an_excluded_node():
    small, large = AllocationComponent(), AllocationComponent(cpus=2)
    request = gang_request({"master": (small, 1), "worker": (large, 2)}, AllocationOptions())
    request = dataclasses.replace(request, excluded=("n1", "n2"))
    assert AllocationRequest.from_document(request.document()) == request
    older = {key: value for key, value in request.document().items() if key != "excluded"}
    assert AllocationRequest.from_document(older).excluded == ()
    words = submit_command(
        request, AllocationOptions(), name="x", comment="y", output="z", deadline_seconds=None
    )
    assert words.count("--exclude=n1,n2") == 2


def test_spare_nodes_are_asked_for_beside_those_that_are_needed():
    options = AllocationOptions(spare_nodes=2, instances_per_node=4)
    request = gang_request({"worker": (AllocationComponent(), 9)}, options)
    assert AllocationRequest.from_document(request.document()) == request
    words = submit_command(
        request, options, name="x", comment="y", output="z", deadline_seconds=None
    )
    wanted = {"--nodes=5", "--ntasks-per-node=4", "--ntasks=20", "--no-kill"}
    assert wanted <= set(words)
    differ = {"a": (AllocationComponent(), 1), "b": (AllocationComponent(cpus=2), 1)}
    assert gang_request(differ, options).spare_nodes == 0


def test_what_ran_on_a_lost_node_moves_to_free_places():
    def at(**nodes: str) -> dict[str, dict[str, object]]:
        return {
            name: {"component": 0, "node": node, "address": f"{node}.x"}
            for name, node in nodes.items()
        }

    before = at(a="n1", b="n1", c="n2", d="n2", e="n3")
    left = {name: f"{name}.x" for name in ("n1", "n3", "n4")}
    assert move_from_lost(before, left, 2) == (at(a="n1", b="n1", c="n3", d="n4", e="n3"), [])
    del left["n4"]
    assert move_from_lost(before, left, 2)[1] == ["d"]
    assert move_from_lost(before, {**left, "n2": "n2.x"}, 2) == (before, [])
    moved, homeless = move_from_lost(before, left, 2, {"c"})
    assert (moved["d"]["node"], homeless) == ("n3", []), "who has completed needs no place"


def test_instances_without_company_are_elements_of_an_array():
    small, large = AllocationComponent(), AllocationComponent(cpus=2)
    found = single_requests({"a-0": small, "b-0": large, "a-1": small}, longest_array=100)
    assert [each.elements for each in found] == [((("a-0",),), (("a-1",),)), ((("b-0",),),)]
    words = submit_command(
        found[0], AllocationOptions(), name="x", comment="y", output="z", deadline_seconds=100
    )
    assert {"--array=0-1", "--ntasks=1", "--time=4", "--signal=TERM@60"} <= set(words)
    script = job_script(["py", "a b"], folder="/x y", array=True)
    assert script == "#!/bin/sh\nexec py 'a b' '/x y'/$SLURM_ARRAY_TASK_ID\n"


def test_many_instances_are_several_arrays():
    names = [f"a-{index}" for index in range(230)]
    found = single_requests(dict.fromkeys(names, AllocationComponent()), longest_array=100)
    assert [len(each.elements) for each in found] == [100, 100, 30]
    assert [name for each in found for ((name,),) in each.elements] == names


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("/a b/'c'", "/a b/'c'/job-%j.log"),
        ("/100%u", "/100%%u/job-%j.log"),
        ("/back\\slash%u", "/back\\\\slash%u/job.log"),
    ],
)
def test_folders_of_any_name_are_said_as_sbatch_reads_them(folder, pattern):
    assert log_pattern(folder) == pattern


@pytest.mark.parametrize(
    ("gang", "cpus", "told"),
    [("none", ("1", "1"), "gang"), ("slurm", ("1", "2"), "resources"), ("slurm", ("1", "1"), "")],
)
def test_spare_nodes_are_of_one_allocation_of_one_kind(gang, cpus, told):
    text = f"""
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{name: digits}}
spec:
  framework: pytorch
  command: [python, train.py]
  runtime: {{name: slurm, options: {{spareNodes: 1}}}}
  schedulingPolicy: {{gang: {gang}}}
  roles:
    - {{name: master, resources: {{limits: {{cpu: "{cpus[0]}"}}}}}}
    - {{name: worker, resources: {{limits: {{cpu: "{cpus[1]}"}}}}}}
"""
    (checked,) = check_text(text)
    problems = [each for each in checked.problems if each.field.endswith("spareNodes")]
    assert bool(problems) == bool(told)
    assert all(told in f"{each.message} {each.hint}" for each in problems)


def test_options_are_read_as_they_were_checked():
    written = {
        "signalSeconds": 5,
        "idleSeconds": 7,
        "extra": ["--nice=5"],
        "partition": "gpu",
        "containerRuntime": "apptainer",
        "binds": ["/data"],
    }
    SlurmOptions.model_validate(written)
    read = AllocationOptions.from_document(written)
    assert read == AllocationOptions(
        signal_seconds=5,
        idle_seconds=7,
        extra=("--nice=5",),
        partition="gpu",
        container_runtime="apptainer",
        binds=("/data",),
    )
    names = {each.metadata.get("name", each.name) for each in dataclasses.fields(read)}
    assert names == {each.alias or name for name, each in SlurmOptions.model_fields.items()}
    defaults = SlurmOptions()
    for name in SlurmOptions.model_fields:
        if name not in ("extra", "binds"):
            assert getattr(AllocationOptions(), name) == getattr(defaults, name)


@pytest.mark.parametrize(
    "options",
    [
        {"partition": "a b"},
        {"time": "soon"},
        {"time": "1:2:3:4"},
        {"signalSeconds": -1},
        {"extra": ["-n4"]},
        {"containerRuntime": "podman"},
        {"containerRuntime": "apptainer", "binds": ["data"]},
        {"binds": ["/data"]},
        {"extra": ["--wrap=rm"]},
        {"extra": ["--job-name=x"]},
        {"extra": ["--requ"]},
        {"extra": ["--clusters=other"]},
        {"extra": ["--help"]},
        {"python": "python3"},
        {"exclusive": "no"},
        {"signalSeconds": "60"},
        {"nodes": 3},
        {"spareNodes": -1},
        {"instancesPerNode": 2},
        {"spareNodes": 1, "extra": ["--nodes=3"]},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValidationError):
        SlurmOptions.model_validate(options)


@pytest.mark.parametrize("time", ["30", "1:30:00", "2-12:00", "7-0", "90:00"])
def test_times_are_as_sbatch_takes_them(time):
    assert SlurmOptions(time=time).time == time


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("time", "2h", "must be minutes, hours:minutes:seconds or days-hours:minutes"),
        ("partition", "a b", "must be one or more names, separated by commas"),
        ("account", "a;b", "must be one name, without blanks and commas"),
        ("python", "python3", "must be a path from the root"),
        ("extra", ["nice=5"], "'nice=5' is no option of sbatch: write it as --name=value"),
    ],
)
def test_an_option_that_slurm_does_not_take_is_told_in_our_words(option, value, told):
    with pytest.raises(ValidationError) as refused:
        SlurmOptions.model_validate({option: value})
    (problem,) = problems_of(refused.value, model=SlurmOptions)
    assert problem.message.startswith(told)


def living(folder: AttemptFolder, life: AgentLiveness) -> AttemptState:
    order = Order.seen({"uid": "u", "role": "worker", "index": 0})
    return AttemptState(life=life, order=order, state={}, end={}, deletion={})


def test_a_shell_is_a_step_beside_that_of_the_instance(tmp_path, monkeypatch):
    folder = AttemptFolder(tmp_path)
    machine = {"name": "n2", "job": "7", "group": "1", "agent": ["python3", "agent.pyz"]}
    write_json(folder.control / "machine.json", machine)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/srun")
    found = folder, living(folder, AgentLiveness.STAYING)
    words = shell_words(found, "worker-0", ["ls", "a b"], terminal=True)
    assert words[0] == "srun"
    assert {"--jobid=7", "--overlap", "--nodelist=n2", "--het-group=1", "--pty"} <= set(words)
    assert words[-5:] == ["python3", "agent.pyz", "shell", str(tmp_path), "ls 'a b'"]
    assert "--pty" not in shell_words(found, "worker-0", [], terminal=False)


def test_a_shell_is_refused_where_nobody_could_open_it(tmp_path, monkeypatch):
    folder = AttemptFolder(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)

    def refusal(life: AgentLiveness | None) -> str:
        found = (folder, living(folder, life)) if life else None
        with pytest.raises(InputError) as caught:
            shell_words(found, "worker-0", [], terminal=False)
        return str(caught.value)

    assert "there is no instance worker-0" in refusal(None)
    assert f"its files are in {tmp_path}" in refusal(AgentLiveness.LOST)
    assert "started by a version" in refusal(AgentLiveness.ALIVE)
    machine = {"name": "n2", "job": "7", "group": "", "agent": ["python3", "agent.pyz"]}
    write_json(folder.control / "machine.json", machine)
    assert "no command srun" in refusal(AgentLiveness.ALIVE)
