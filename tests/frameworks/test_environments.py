"""What each built-in framework puts into the environment and files of a job, on both runtimes."""

from __future__ import annotations

import json
import subprocess

import pytest

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from tests.frameworks.samples import (
    a_document,
    a_job,
    a_resolved_job,
    codes,
    container_of,
    environment_of,
    rendering_of,
    resolve_job,
)

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
MASTER = "digits-master-0.digits-master.default.svc"
CHIEF = "digits-chief-0.digits-chief.default.svc"


def worker(index: int) -> str:
    return f"digits-worker-{index}.digits-worker.default.svc"


PYTORCH = {
    "MASTER_ADDR": MASTER,
    "MASTER_PORT": "23456",
    "RANK": "2",
    "WORLD_SIZE": "3",
    "PET_NPROC_PER_NODE": "1",
    "PET_MASTER_ADDR": MASTER,
    "PET_MASTER_PORT": "23456",
    "PET_NNODES": "3",
    "PET_NODE_RANK": "2",
    **UNBUFFERED,
}
XGBOOST = {
    "MASTER_ADDR": MASTER,
    "MASTER_PORT": "9999",
    "RANK": "2",
    "WORLD_SIZE": "3",
    "WORKER_ADDRS": f"{worker(0)},{worker(1)}",
    "WORKER_PORT": "9999",
    "DMLC_TRACKER_URI": MASTER,
    "DMLC_TRACKER_PORT": "9999",
    "DMLC_NUM_WORKER": "3",
    "DMLC_TASK_ID": "2",
    **UNBUFFERED,
}
LIGHTGBM = {
    "MASTER_ADDR": MASTER,
    "MASTER_PORT": "12400",
    "RANK": "2",
    "WORLD_SIZE": "3",
    "WORKER_ADDRS": f"{worker(0)},{worker(1)}",
    "WORKER_PORT": "12400",
    "LIGHTGBM_LOCAL_LISTEN_PORT": "12400",
    "LIGHTGBM_MACHINE_LIST_FILE": "/etc/lightgbm/mlist.txt",
    "LIGHTGBM_MACHINES": f"{MASTER}:12400,{worker(0)}:12400,{worker(1)}:12400",
    **UNBUFFERED,
}
PADDLE = {
    "PADDLE_JOB_ID": "digits",
    "PADDLE_NNODES": "3",
    "PADDLE_RANK": "2",
    "PADDLE_MASTER": f"{MASTER}:36543",
    "PADDLE_TRAINER_NUM": "1",
    **UNBUFFERED,
}
JAX = {
    "COORDINATOR_ADDRESS": worker(0),
    "COORDINATOR_PORT": "6666",
    "NUM_PROCESSES": "3",
    "PROCESS_ID": "1",
    **UNBUFFERED,
}
RAY = {
    "RAY_ADDRESS": "digits-head-0.digits-head.default.svc:6379",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "20",
    **UNBUFFERED,
}
OPEN_MPI_LAUNCHER = {
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
    "OMPI_MCA_plm_rsh_agent": "/etc/mpi/ssh.sh",
    "PRTE_MCA_plm_ssh_agent": "/etc/mpi/ssh.sh",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mca_base_env_list": "TRAINING_OUTPUT_DIR;TRAINING_PROGRESS_FILE",
}
OPEN_MPI_LOCAL_LAUNCHER = {
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "$(TRAINING_INSTANCE_DIR)/mpi/hostfile",
    "PRTE_MCA_prte_default_hostfile": "$(TRAINING_INSTANCE_DIR)/mpi/hostfile",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mca_base_env_list": "TRAINING_OUTPUT_DIR;TRAINING_PROGRESS_FILE",
    "OMPI_MCA_plm_rsh_agent": "$(TRAINING_REMOTE_SHELL)",
    "PRTE_MCA_plm_ssh_agent": "$(TRAINING_REMOTE_SHELL)",
    "OMPI_MCA_plm": "rsh",
    "PRTE_MCA_plm": "ssh",
}


@pytest.mark.parametrize(
    ("framework", "roles", "who", "expected"),
    [
        pytest.param("pytorch", {"master": 1, "worker": 2}, ("worker", 1), PYTORCH, id="pytorch"),
        pytest.param("xgboost", {"master": 1, "worker": 2}, ("worker", 1), XGBOOST, id="xgboost"),
        pytest.param("lightgbm", {"master": 1, "worker": 2}, ("worker", 1), LIGHTGBM, id="lightgbm"),
        pytest.param("paddle", {"master": 1, "worker": 2}, ("worker", 1), PADDLE, id="paddle"),
        pytest.param("jax", {"worker": 3}, ("worker", 1), JAX, id="jax"),
        pytest.param("mpi", {"launcher": 1, "worker": 2}, ("launcher", 0), OPEN_MPI_LAUNCHER, id="mpi"),
        pytest.param("ray", {"head": 1, "worker": 2}, ("worker", 1), RAY, id="ray"),
        pytest.param("custom", {"a": 1, "b": 2}, ("b", 1), UNBUFFERED, id="custom"),
    ],
)  # fmt: skip
def test_environment_on_kubernetes_is_what_kubeflow_injects(framework, roles, who, expected):
    assert environment_of(a_resolved_job(framework, roles), *who) == expected


@pytest.mark.parametrize(
    ("framework", "roles", "who", "expected"),
    [
        pytest.param(
            "pytorch",
            {"master": 1, "worker": 2},
            ("worker", 1),
            PYTORCH
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "40000"}
            | {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "40000"},
            id="pytorch",
        ),
        pytest.param(
            "xgboost",
            {"master": 1, "worker": 2},
            ("worker", 1),
            XGBOOST
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "40000"}
            | {"WORKER_ADDRS": "127.0.0.1,127.0.0.1", "WORKER_PORT": "40001"}
            | {"DMLC_TRACKER_URI": "127.0.0.1", "DMLC_TRACKER_PORT": "40000"},
            id="xgboost",
        ),
        pytest.param(
            "lightgbm",
            {"master": 1, "worker": 2},
            ("worker", 1),
            LIGHTGBM
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "40000"}
            | {"WORKER_ADDRS": "127.0.0.1,127.0.0.1", "WORKER_PORT": "40001"}
            | {
                "LIGHTGBM_LOCAL_LISTEN_PORT": "40002",
                "LIGHTGBM_MACHINE_LIST_FILE": "$(TRAINING_INSTANCE_DIR)/lightgbm/mlist.txt",
                "LIGHTGBM_MACHINES": "127.0.0.1:40000,127.0.0.1:40001,127.0.0.1:40002",
            },
            id="lightgbm",
        ),
        pytest.param(
            "paddle",
            {"master": 1, "worker": 2},
            ("worker", 1),
            PADDLE | {"PADDLE_MASTER": "127.0.0.1:40000"},
            id="paddle",
        ),
        pytest.param(
            "jax",
            {"worker": 3},
            ("worker", 1),
            JAX | {"COORDINATOR_ADDRESS": "127.0.0.1", "COORDINATOR_PORT": "40000"},
            id="jax",
        ),
        pytest.param(
            "mpi",
            {"launcher": 1, "worker": 2},
            ("launcher", 0),
            OPEN_MPI_LOCAL_LAUNCHER,
            id="mpi",
        ),
        pytest.param(
            "ray",
            {"head": 1, "worker": 2},
            ("worker", 1),
            RAY | {"RAY_ADDRESS": "127.0.0.1:40000"},
            id="ray",
        ),
        pytest.param("custom", {"a": 1, "b": 2}, ("b", 1), UNBUFFERED, id="custom"),
    ],
)
def test_environment_on_this_machine_names_loopback_ports(framework, roles, who, expected):
    assert environment_of(a_resolved_job(framework, roles, runtime="local"), *who) == expected


@pytest.mark.parametrize(
    ("runtime", "cluster"),
    [
        pytest.param(
            "kubernetes",
            {
                "chief": [f"{CHIEF}:2222"],
                "worker": [f"{worker(0)}:2222", f"{worker(1)}:2222"],
                "ps": ["digits-ps-0.digits-ps.default.svc:2222"],
            },
            id="kubernetes",
        ),
        pytest.param(
            "local",
            {
                "chief": ["127.0.0.1:40000"],
                "worker": ["127.0.0.1:40001", "127.0.0.1:40002"],
                "ps": ["127.0.0.1:40003"],
            },
            id="local",
        ),
    ],
)
def test_tf_config_lists_the_cluster_without_its_evaluator(runtime, cluster):
    roles = {"ps": 1, "worker": 2, "chief": 1, "evaluator": 1}
    job = a_resolved_job("tensorflow", roles, runtime=runtime)
    for role, index in (("worker", 1), ("evaluator", 0)):
        config = json.loads(environment_of(job, role, index)["TF_CONFIG"])
        assert config == {
            "cluster": cluster,
            "task": {"type": role, "index": index},
            "environment": "cloud",
        }


def test_a_lone_tensorflow_worker_gets_no_cluster():
    job = a_resolved_job("tensorflow", {"worker": 1})
    assert environment_of(job, "worker") == UNBUFFERED


@pytest.mark.parametrize(
    ("implementation", "runtime", "expected"),
    [
        pytest.param(
            "Intel",
            "kubernetes",
            {
                "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
                "I_MPI_HYDRA_BOOTSTRAP": "ssh",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/ssh.sh",
            },
            id="intel-in-a-cluster",
        ),
        pytest.param(
            "Intel",
            "local",
            {
                "I_MPI_HYDRA_HOST_FILE": "$(TRAINING_INSTANCE_DIR)/mpi/hostfile",
                "I_MPI_HYDRA_BOOTSTRAP": "rsh",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC": "$(TRAINING_REMOTE_SHELL)",
            },
            id="intel-here",
        ),
        pytest.param(
            "MPICH",
            "kubernetes",
            {
                "HYDRA_CONFIG_FILE": "/etc/mpi/hydra.conf",
                "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
                "HYDRA_LAUNCHER": "ssh",
                "HYDRA_LAUNCHER_EXEC": "/etc/mpi/ssh.sh",
            },
            id="mpich-in-a-cluster",
        ),
        pytest.param(
            "MPICH",
            "local",
            {
                "HYDRA_CONFIG_FILE": "$(TRAINING_INSTANCE_DIR)/mpi/hydra.conf",
                "HYDRA_HOST_FILE": "$(TRAINING_INSTANCE_DIR)/mpi/hostfile",
                "HYDRA_LAUNCHER": "rsh",
                "HYDRA_LAUNCHER_EXEC": "$(TRAINING_REMOTE_SHELL)",
            },
            id="mpich-here",
        ),
    ],
)
def test_each_mpi_gets_its_own_variables(implementation, runtime, expected):
    job = a_resolved_job(
        "mpi",
        {"launcher": 1, "worker": 2},
        runtime=runtime,
        parameters={"implementation": implementation},
    )
    assert environment_of(job, "launcher") == {"K_MPI_JOB_ROLE": "launcher", **expected}
    assert environment_of(job, "worker") == {"K_MPI_JOB_ROLE": "worker"}


@pytest.mark.parametrize(
    ("implementation", "runtime", "files"),
    [
        pytest.param(
            "OpenMPI",
            "kubernetes",
            {"/etc/mpi/hostfile": f"{worker(0)} slots=2\n{worker(1)} slots=2\n"},
            id="open-mpi-in-a-cluster",
        ),
        pytest.param(
            "OpenMPI",
            "local",
            {"mpi/hostfile": "digits-worker-0 slots=2\ndigits-worker-1 slots=2\n"},
            id="open-mpi-here",
        ),
        pytest.param(
            "MPICH",
            "kubernetes",
            {"/etc/mpi/hostfile": f"{worker(0)}:2\n{worker(1)}:2\n"},
            id="mpich-in-a-cluster",
        ),
        pytest.param(
            "Intel",
            "local",
            {"mpi/hostfile": "digits-worker-0:2\ndigits-worker-1:2\n"},
            id="intel-here",
        ),
    ],
)
def test_the_hostfile_lists_workers_with_their_slots(implementation, runtime, files):
    job = a_resolved_job(
        "mpi",
        {"launcher": 1, "worker": 2},
        runtime=runtime,
        parameters={"implementation": implementation, "slotsPerWorker": 2},
    )
    (path,) = files
    assert rendering_of(job, "launcher").files().files[path] == files[path]
    assert path not in rendering_of(job, "worker").files().files


@pytest.mark.e2e
def test_in_a_cluster_the_launcher_can_ask_for_the_hosts_and_everybody_has_ssh():
    job = a_resolved_job("mpi", {"launcher": 1, "worker": 2}, parameters={"slotsPerWorker": 2})
    files = rendering_of(job, "launcher").files()
    script = files.files["/etc/mpi/discover_hosts.sh"]
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{worker(0)}:2", f"{worker(1)}:2"]
    ours = {"/etc/mpi/discover_hosts.sh", "/etc/mpi/output.sh", "/etc/mpi/ssh.sh"}
    assert files.executables == ours
    theirs = rendering_of(job, "worker").files()
    assert set(theirs.files) == theirs.executables == {"/etc/mpi/ssh.sh", "/etc/mpi/sshd.sh"}


@pytest.mark.parametrize(
    ("runtime", "who", "told"),
    [
        ("kubernetes", "launcher", "/etc/mpi/output.sh"),
        ("kubernetes", "worker", None),
        ("local", "launcher", None),
    ],
)
def test_the_launcher_is_told_how_to_fetch_the_output_of_rank_0(runtime, who, told):
    job = a_resolved_job("mpi", {"launcher": 1, "worker": 2}, runtime=runtime)
    assert rendering_of(job, who).environment().get("TRAINING_OUTPUT_COMMAND") == told
    if told:
        assert worker(0) in rendering_of(job, who).files().files[told]


def test_here_nothing_of_ssh_is_written():
    job = a_resolved_job("mpi", {"launcher": 1, "worker": 2}, runtime="local")
    assert list(rendering_of(job, "launcher").files().files) == ["mpi/hostfile"]
    assert rendering_of(job, "worker").files().files == {}


def test_lightgbm_finds_all_machines_in_a_file():
    job = a_resolved_job("lightgbm", {"master": 1, "worker": 2}, runtime="local")
    assert rendering_of(job, "worker", 1).files().files == {
        "lightgbm/mlist.txt": "127.0.0.1 40000\n127.0.0.1 40001\n127.0.0.1 40002\n"
    }


def test_torchrun_counts_processes_and_shares_threads():
    job = a_resolved_job(
        "pytorch",
        {"master": 1, "worker": 2},
        parameters={"nprocPerNode": 4, "threadsPerInstance": 10},
    )
    env = environment_of(job, "worker", 0)
    assert env["PET_NPROC_PER_NODE"] == "4"
    assert env["PET_NNODES"] == "3"
    assert env["WORLD_SIZE"] == "12"
    assert env["OMP_NUM_THREADS"] == "2"


def test_elastic_pytorch_meets_at_a_rendezvous_instead_of_static_ranks():
    job = a_resolved_job(
        "pytorch",
        {"master": 1, "worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}},
    )
    env = environment_of(job, "worker", 0)
    assert env["PET_NNODES"] == "2:5"
    assert env["PET_RDZV_BACKEND"] == "c10d"
    assert env["PET_RDZV_ENDPOINT"] == f"{MASTER}:23456"
    assert env["PET_RDZV_ID"] == "digits-0", "agents of an attempt before meet nobody"
    assert env["PET_RDZV_CONF"] == "last_call_timeout=30"
    assert not {"PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK"} & set(env)
    assert "PET_LOCAL_ADDR" not in env, "host names are in the order of ranks"
    assert job.elastic
    assert job.restart.scope == "Job"


def test_rank_0_of_an_elastic_group_on_this_machine_is_the_instance_whose_output_counts():
    """`torchrun` numbers its group by address."""
    role = {"replicas": 3, "minReplicas": 1, "maxReplicas": 3}
    job = a_resolved_job("pytorch", {"worker": role}, runtime="local")
    first, *others = (environment_of(job, "worker", i)["PET_LOCAL_ADDR"] for i in range(3))
    assert all(first < other for other in others)


def test_without_a_master_worker_0_leads():
    job = a_resolved_job("pytorch", {"worker": 3})
    env = environment_of(job, "worker", 2)
    assert (env["MASTER_ADDR"], env["RANK"], env["WORLD_SIZE"]) == (worker(0), "2", "3")
    assert [role.chief for role in job.roles] == [True]


def test_scaling_a_static_role_makes_ranks_dense_again():
    job = a_resolved_job("pytorch", {"master": 1, "worker": 3})
    env = environment_of(job, "worker", 0, replicas={"worker": 1})
    assert (env["RANK"], env["WORLD_SIZE"], env["PET_NNODES"]) == ("1", "2", "2")


@pytest.mark.parametrize("runtime", ["kubernetes", "local"])
def test_the_command_of_a_head_of_ray_is_started_with_its_cluster(runtime):
    job = a_resolved_job("ray", {"head": 1, "worker": 1, "big": 1}, runtime=runtime)
    folder = "/etc/ray" if runtime == "kubernetes" else "$(TRAINING_INSTANCE_DIR)/ray"
    start = ["python", f"{folder}/start.py"]
    assert container_of(job, "head")["command"] == [*start, "python", "train.py"]
    for role in ("worker", "big"):
        assert container_of(job, role)["command"] == start
        assert [each.role for each in job.role(role).depends_on] == ["head"]
        (path,) = rendering_of(job, role).files().files
        assert path == ("/etc/ray/start.py" if runtime == "kubernetes" else "ray/start.py")


def options_of_ray(job: ResolvedJob, role: str) -> str:
    """Return the program that starts the node of a role."""
    files = rendering_of(job, role).files().files
    text = next(text for path, text in files.items() if path.endswith("start.py"))
    compile(text, "start.py", "exec")
    return text


def test_a_node_of_ray_has_the_hardware_that_its_instance_asks_for():
    limits = {"limits": {"cpu": "2500m", "nvidia.com/gpu": 4}}
    job = a_resolved_job("ray", {"head": 1, "worker": {"replicas": 1, "resources": limits}})
    assert "--num-cpus=3" in options_of_ray(job, "worker")
    assert "--num-gpus=4" in options_of_ray(job, "worker")
    assert "--num-cpus" not in options_of_ray(job, "head"), "Ray counts them itself"


def test_the_head_of_ray_waits_for_as_many_workers_as_are_wanted():
    for wanted, expected in (({}, 3), ({"minWorkers": 2}, 2), ({"minWorkers": 9}, 3)):
        roles = {"head": 1, "worker": 2, "big": 1}
        files = rendering_of(a_resolved_job("ray", roles, parameters=wanted), "head").files().files
        assert f"WANTED = {expected}\n" in files["/etc/ray/joined.py"]


def test_where_others_use_the_machine_ray_takes_free_ports_and_a_folder_of_its_own():
    own = ("--temp-dir", "--min-worker-port=0", "--dashboard-agent-listen-port=0")
    for runtime, expected in (("local", True), ("kubernetes", False)):
        text = options_of_ray(a_resolved_job("ray", {"head": 1}, runtime=runtime), "head")
        assert [each in text for each in own] == [expected] * 3


def test_the_dashboard_of_ray_takes_jobs_where_somebody_wants_it():
    job = a_resolved_job("ray", {"head": 1}, runtime="local", parameters={"dashboard": True})
    assert "--include-dashboard=true" in options_of_ray(job, "head")
    assert environment_of(job, "head")["RAY_API_SERVER_ADDRESS"] == "http://127.0.0.1:40001"


def test_a_head_of_ray_needs_a_command():
    job = a_job("ray", {"head": 1})
    document = a_document("ray", {"head": 1, "worker": 1})
    del document["spec"]["command"]
    _, problems = resolve_job(TrainingJob.model_validate(document, by_alias=True))
    assert codes(problems) == [("missing", "spec.command")]
    assert resolve_job(job)[1] == []


@pytest.mark.parametrize(
    "framework", ["pytorch", "tensorflow", "mpi", "jax", "paddle", "ray", "custom"]
)
def test_update_interval_reaches_the_script(framework):
    roles = {"mpi": {"launcher": 1}, "ray": {"head": 1}}.get(framework, {}) | {"worker": 2}
    job = a_resolved_job(framework, roles, parameters={"updateInterval": 8})
    assert environment_of(job, "worker", 1)["TRAINING_UPDATE_INTERVAL"] == "8"
