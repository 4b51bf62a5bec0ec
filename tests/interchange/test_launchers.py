"""Command lines of launchers: how many instances, how many processes in each, and who names rank 0."""

from __future__ import annotations

import base64
import json
import shlex
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.interchange.importing import ImportedDocument, import_command


def imported(line: str) -> ImportedDocument:
    found = import_command(shlex.split(line))
    assert found is not None
    assert list(found.problems) == []
    (checked,) = check_text(found.text)
    assert list(checked.problems) == []
    return found


def spec_of(line: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(imported(line).text)["spec"]
    return found


def refused(line: str) -> list[str]:
    return [str(each.value) for each in imported(line).report.of("refused")]


@pytest.mark.parametrize(
    "program", ["torchrun", "/opt/bin/torchrun", "python -m torch.distributed.run"]
)
def test_torchrun_leaves_ranks_and_rendezvous_to_the_framework(program):
    line = (
        f"{program} --nnodes=2 --nproc_per_node 4 --node_rank 1 --master_addr a --master-port 1 --rdzv-id x"
        " --monitor-interval 2 -m train --lr 0.1"
    )
    spec = spec_of(line)
    assert spec["command"] == [
        *program.split(), "--monitor-interval", "2", "-m", "train", "--lr", "0.1"
    ]  # fmt: skip
    assert (spec["roles"][0]["replicas"], spec["parameters"]) == (2, {"nprocPerNode": 4})
    assert refused(line) == []


def test_restarts_of_torchrun_are_the_runs():
    spec = spec_of("torchrun --nnodes 2 --max-restarts 3 train.py")
    assert spec["restart"]["maxRestarts"] == 3
    assert spec["restart"]["scope"] == "Job"
    assert spec["roles"][0]["restartPolicy"] == "OnFailure"
    assert spec_of("torchrun train.py")["roles"][0]["restartPolicy"] == "Never"


def test_an_elastic_line_is_an_elastic_role():
    spec = spec_of(
        "torchrun --nnodes 1:4 --rdzv-backend etcd-v2 --rdzv-conf last_call_timeout=60 a.py"
    )
    (role,) = spec["roles"]
    assert (role["minReplicas"], role["replicas"], role["maxReplicas"]) == (1, 4, 4)
    assert spec["parameters"] == {"rendezvousBackend": "etcd-v2", "lastCallSeconds": 60}


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("torchrun --nproc-per-node auto a.py", ["--nproc-per-node", "auto"]),
        ("torchrun --nnodes 2 --standalone a.py", ["--standalone"]),
        ("torchrun --rdzv-conf timeout=9 a.py", ["--rdzv-conf", "timeout=9"]),
        ("accelerate launch a.py", ["not given"]),
        ("accelerate launch --config_file c.yaml a.py", ["not given"]),
        ("accelerate launch --num_processes 2 --gpu_ids 2,3 a.py", ["--gpu_ids", "2,3"]),
        ("deepspeed a.py", ["not given"]),
        ("deepspeed --num_gpus 2 --include a:0 a.py", ["--include", "a:0"]),
        ("deepspeed --num_gpus 2 --hostfile hosts a.py", ["--hostfile", "hosts"]),
        ("mpirun -np 2 --hostfile hosts a.py", ["--hostfile", "hosts"]),
        ("mpirun -np 2 -mca plm_rsh_agent rsh a.py", ["-mca", "plm_rsh_agent", "rsh"]),
    ],
)
def test_what_would_be_looked_up_where_it_runs_is_refused(line, lost):
    assert refused(line) == lost


def test_accelerate_counts_processes_of_all_machines():
    spec = spec_of(
        "accelerate launch --multi_gpu --num_machines 2 --num_processes 8 --machine_rank 0 a.py"
    )
    assert spec["parameters"] == {"nprocPerNode": 4}
    assert "$(PET_NODE_RANK)" in spec["command"]
    alone = spec_of("accelerate launch --num_processes 2 --mixed_precision bf16 a.py --x")
    assert alone["command"] == [
        *(
            "accelerate",
            "launch",
            "--num_processes",
            "2",
            "--mixed_precision",
            "bf16",
            "a.py",
            "--x",
        )
    ]


def test_deepspeed_is_what_it_would_start_on_each_host():
    spec = spec_of(
        "deepspeed --num_nodes 2 --num_gpus 2 --master_port 1 --module train --deepspeed c.json"
    )
    command = spec["command"]
    assert command[:4] == ["python", "-u", "-m", "deepspeed.launcher.launch"]
    world = json.loads(base64.urlsafe_b64decode(command[4].removeprefix("--world_info=")))
    assert world == {"worker-0": [0, 1], "worker-1": [0, 1]}
    assert command[-4:] == ["--module", "train", "--deepspeed", "c.json"]
    assert (spec["roles"][0]["replicas"], spec["parameters"]) == (2, {"nprocPerNode": 2})


@pytest.mark.parametrize(
    ("line", "workers", "slots"),
    [
        ("mpirun -np 4 python a.py", 1, 4),
        ("mpirun -np 4 -H a,b,c,d python a.py", 4, None),
        ("mpirun -np 4 --host a:2,b:2 python a.py", 2, 2),
        ("mpirun -H a,a,b,b python a.py", 2, 2),
        ("mpiexec -n 8 -ppn 4 -hosts a,b python a.py", 2, 4),
    ],
)
def test_hosts_of_mpirun_are_workers_with_slots(line, workers, slots):
    spec = spec_of(line)
    assert spec["framework"] == "mpi"
    assert spec["roles"][1] == {"name": "worker", "replicas": workers, "restartPolicy": "Never"}
    assert spec.get("parameters") == ({"slotsPerWorker": slots} if slots else None)


def test_words_that_mean_something_here_mean_what_they_meant():
    spec = spec_of("torchrun a.py '{{x}}' '$(HOME)' '$$'")
    assert spec["command"][2:] == ["{{ '{{' }}x}}", "$$(HOME)", "$$$$"]


def test_another_program_is_no_command_line_of_a_launcher():
    assert import_command(["python", "train.py"]) is None
    assert import_command(["accelerate", "config"]) is None
