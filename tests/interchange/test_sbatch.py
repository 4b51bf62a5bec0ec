"""Batch scripts of Slurm: which line trains, how many instances that is, and what each is told."""

from __future__ import annotations

import pytest

from airflow_training.interchange.importing import import_text
from tests.interchange.reading import fates, mistakes, only, ours, refused

TORCHRUN = """\
#!/bin/bash
#SBATCH --job-name=Digits_2
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH -c 8
#SBATCH --mem=64G
#SBATCH -p gpu -A vision   # where
#SBATCH --time=1-02:00:00
#SBATCH --mail-type=END

# where the others are
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
module load cuda/12
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node=4 \\
    --rdzv_backend c10d --rdzv_endpoint "$head:29500" \\
    train.py --lr 0.1 2>&1 | tee train.log
"""


def script(*lines: str, head: str = "") -> str:
    return "\n".join(["#!/bin/bash", *head.splitlines(), *lines, ""])


def test_srun_of_torchrun_is_an_instance_for_each_node():
    spec = ours(TORCHRUN)
    assert spec["framework"] == "pytorch"
    assert spec["parameters"] == {"nprocPerNode": 4}
    (role,) = spec["roles"]
    assert role["replicas"] == 2
    assert role["resources"]["limits"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}
    assert spec["command"][3:] == ["bash", "torchrun", "train.py", "--lr", "0.1"]
    assert spec["command"][2] == 'module load cuda/12\nexec "$@"'
    assert spec["env"] == [{"name": "OMP_NUM_THREADS", "value": "8"}]
    assert refused(TORCHRUN) == {}


def test_what_slurm_decides_about_the_allocation_is_said_to_it():
    spec = ours(TORCHRUN)
    assert spec["runtime"]["name"] == "slurm"
    assert spec["runtime"]["options"] == {
        "partition": "gpu",
        "account": "vision",
        "extra": ["--mail-type=END", "--nodes=2", "--ntasks-per-node=1"],
    }
    assert spec["schedulingPolicy"] == {"gang": "slurm"}
    assert spec["activeDeadlineSeconds"] == 93600
    assert "name: digits-2" in only(TORCHRUN).text


def test_comments_stand_where_their_line_has_gone():
    assert "# where the others are" not in only(TORCHRUN).text
    commented = script("# seconds\nexport WAIT=5", "srun python train.py", head="#SBATCH -n 2")
    assert "  # seconds\n  env:\n" in only(commented).text


def test_a_program_that_fails_is_not_tried_again_and_a_lost_node_begins_anew():
    spec = ours(TORCHRUN)
    assert spec["roles"][0]["restartPolicy"] == "Never"
    assert [rule["action"] for rule in spec["failurePolicy"]["rules"]] == [
        "FailJob",
        "RestartJobAndIgnoreMaxRestarts",
    ]
    never = TORCHRUN.replace("#SBATCH --mail", "#SBATCH --no-requeue\n#SBATCH --mail")
    assert "failurePolicy" not in ours(never)


def test_tasks_of_a_node_share_what_the_node_has():
    text = script(
        "srun python train.py",
        head="#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n#SBATCH --mem=10G",
    )
    (role,) = ours(text)["roles"]
    assert role["replicas"] == 8
    assert role["resources"]["limits"] == {"memory": "2560Mi", "nvidia.com/gpu": "1"}
    shared = text.replace("gpus-per-node=4", "gpus-per-node=2")
    assert set(refused(shared).values()) == {4}


def test_each_task_is_told_its_number():
    env = ours(script("srun python train.py", head="#SBATCH -n 4"))["env"]
    assert {"name": "SLURM_PROCID", "value": "$(TRAINING_INDEX)"} in env
    assert {"name": "SLURM_NTASKS", "value": "4"} in env


def test_processes_that_find_rank_0_as_pytorch_does_are_of_its_framework():
    text = script(
        "export MASTER_ADDR=$(scontrol show hostnames | head -n1)",
        "export MASTER_PORT=29500",
        "srun python train.py",
        head="#SBATCH -n 4",
    )
    spec = ours(text)
    assert (spec["framework"], spec["roles"][0]["replicas"]) == ("pytorch", 4)
    assert refused(text) == {}


def test_a_command_in_variables_is_taken_apart_as_a_shell_would():
    text = script(
        "head_node=$(hostname)",
        "GPUS=4",
        'export RUN="accelerate launch --num_processes $((SLURM_NNODES * GPUS)) --num_machines $SLURM_NNODES'
        ' --main_process_ip $head_node"',
        'ARGS="--lr ${LR:-0.1}"',
        "srun $RUN train.py $ARGS",
        head="#SBATCH -N 2",
    )
    spec = ours(text)
    assert spec["parameters"] == {"nprocPerNode": 4}
    assert spec["command"] == [
        *("accelerate", "launch", "--num_processes", "8", "--num_machines", "2"),
        *("--machine_rank", "$(PET_NODE_RANK)", "--main_process_ip", "$(MASTER_ADDR)"),
        *("--main_process_port", "$(MASTER_PORT)", "train.py", "--lr", "0.1"),
    ]
    assert refused(text) == {}


def test_the_command_of_a_shell_is_the_command():
    text = script("srun bash -c 'torchrun --nproc-per-node 2 train.py'", head="#SBATCH -N 2")
    assert ours(text)["parameters"] == {"nprocPerNode": 2}


def test_steps_one_after_another_wait_for_each_other():
    steps = ("srun -n 1 python prepare.py", "srun python a.py &", "srun -n 1 python b.py &", "wait")
    spec = ours(script("set -e", *steps, head="#SBATCH -n 4"))
    assert [(role["replicas"], role["command"][1]) for role in spec["roles"]] == [
        (1, "prepare.py"),
        (4, "a.py"),
        (1, "b.py"),
    ]
    waits = [[each["role"] for each in role.get("dependsOn", [])] for role in spec["roles"]]
    assert waits == [[], ["step-0"], ["step-0"]]
    assert refused(script("set -e", *steps, head="#SBATCH -n 4")) == {}


def test_a_script_that_goes_on_after_a_failure_is_refused():
    text = script("srun python a.py", "srun python b.py", head="#SBATCH -n 1")
    assert [each.value for each in only(text).report.of("refused")] == [
        "whatever became of the step before"
    ]


def test_an_array_is_instances_that_do_not_end_each_other():
    text = script("python train.py --seed $SLURM_ARRAY_TASK_ID", head="#SBATCH --array=0-9")
    spec = ours(text)
    assert spec["command"] == ["python", "train.py", "--seed", "$(TRAINING_INDEX)"]
    assert (spec["roles"][0]["replicas"], spec["roles"][0]["minFailed"]) == (10, "100%")
    assert "schedulingPolicy" not in spec
    for array in ("0-9%2", "1-9", "0-9:3"):
        assert set(refused(text.replace("0-9", array, 1)).values()) >= {2}


def test_mpirun_in_a_batch_script_is_a_launcher_and_a_worker_for_each_node():
    text = script("mpirun python train.py", head="#SBATCH -N 2\n#SBATCH --ntasks-per-node=4")
    spec = ours(text)
    assert spec["framework"] == "mpi"
    assert spec["parameters"] == {"slotsPerWorker": 4}
    assert [(r["name"], r.get("replicas", 1)) for r in spec["roles"]] == [
        ("launcher", 1),
        ("worker", 2),
    ]


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ("mkdir -p out", ""),
        ("if [ -d out ]; then\n  rm -r out\nfi", ""),
        ("for i in 1 2; do\n  echo $i\ndone", ""),
        ("cp -r data /tmp", ""),
        ("trap 'scontrol requeue $SLURM_JOB_ID' USR1", ""),
        ("nvidia-smi > gpus.txt", ""),
        ("cd $SLURM_SUBMIT_DIR", ""),
        ("source $HERE/activate", "HERE=$(pwd)"),
    ],
)
def test_what_only_the_first_node_did_is_refused_with_its_line(line, head):
    text = script(*filter(None, [head]), line, "srun python train.py")
    at = 3 if head else 2
    assert at in refused(text).values()


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --dependency=afterok:1",
        "#SBATCH --mem=0",
        "#SBATCH --gpus=a100:2",
        "#SBATCH --signal=USR1@60",
        "#SBATCH --nodes=2-4",
        "#SBATCH -D .",
        "#SBATCH hetjob",
        "#SBATCH --export=HOME",
        "#SBATCH --container-image=x",
    ],
)
def test_what_no_allocation_of_ours_has_is_refused_with_its_line(line):
    assert set(refused(script("srun python train.py", head=line)).values()) == {2}


@pytest.mark.parametrize(
    "options",
    ["--mpi=pmix", "-w node1", "--multi-prog", "--het-group=0", "--export=HOME", "--time=1"],
)
def test_what_no_role_can_ask_for_is_refused(options):
    assert set(refused(script(f"srun {options} python train.py")).values()) == {2}


def test_a_word_that_only_the_script_knows_is_left_and_refused():
    text = script('srun python train.py --data "$SCRATCH/data" $@', head="#SBATCH -n 2")
    assert ours(text)["command"] == ["python", "train.py", "--data", "$SCRATCH/data", "$@"]
    assert set(refused(text).values()) == {3}


def test_directives_below_the_first_command_count_for_nothing():
    text = script("export A=1", "#SBATCH -n 9", "srun python train.py", head="#SBATCH -n 2")
    assert ours(text)["roles"][0]["replicas"] == 2
    assert fates(text)["sbatch[1][1]"].fate == "dropped"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["#SBATCH --nodes=many", "srun python a.py"], 2),
        (["#SBATCH --shiny=1", "srun python a.py"], 2),
        (["#SBATCH --time=soon", "srun python a.py"], 2),
        (["#SBATCH --mem=much", "srun python a.py"], 2),
        (["#SBATCH -n", "srun python a.py"], 2),
        (["#SBATCH --job-name='a", "srun python a.py"], 2),
        (["echo 'a", "srun python a.py"], 2),
        (["if true; then", "srun python a.py"], 2),
        (["echo nothing"], 2),
        (["srun -n 4"], 2),
        (["srun --shiny python a.py"], 2),
        (["srun torchrun --nnodes=0 a.py"], 2),
        (["srun torchrun --nproc-per-node=two a.py"], 2),
        (["srun torchrun --nproc-per-node=2"], 2),
        (["torchrun --nnodes=3:1 a.py"], 2),
        (["accelerate launch --num_machines 2 --num_processes 3 a.py"], 2),
        (["mpirun -np 8 -H a,b python a.py"], 2),
        (["deepspeed --num_gpus none a.py"], 2),
    ],
)
def test_a_broken_script_is_told_with_its_line(lines, line):
    (imported,) = import_text("\n".join(["#!/bin/bash", *lines]))
    assert [each.line for each in imported.problems][:1] == [line]
    assert imported.text == ""
    assert mistakes("\n".join(["#!/bin/bash", *lines]))


def test_a_step_waits_for_what_the_script_has_waited_for():
    steps = (
        "srun python a.py &",
        "srun python b.py",
        "srun python c.py",
        "wait",
        "srun python d.py",
    )
    roles = ours(script("set -e", *steps, head="#SBATCH -n 1"))["roles"]
    assert [[each["role"] for each in role.get("dependsOn", [])] for role in roles] == [
        [],
        [],
        ["step-1"],
        ["step-0", "step-1", "step-2"],
    ]


def test_what_hides_a_failure_is_told():
    def hidden(*lines: str) -> bool:
        report = only(script(*lines, head="#SBATCH -n 1")).report
        return "the exit code of the last line" in [each.value for each in report.fields]

    assert hidden("srun python a.py", "echo done")
    assert not hidden("srun python a.py")
    assert not hidden("set -e", "srun python a.py", "echo done")


def test_tasks_that_would_go_on_after_a_failure_are_told():
    text = script("srun python a.py", head="#SBATCH -n 2")
    assert fates(text)['script[0]["--kill-on-bad-exit"]'].default
    assert 'script[0]["--kill-on-bad-exit"]' not in fates(text.replace("srun", "srun -K"))


def test_the_id_of_the_job_is_that_of_the_run_in_words_and_in_the_shell():
    text = script(
        "OUT=/scratch/$SLURM_JOB_ID", "source $OUT/env.sh", "srun python a.py --out $OUT", head="#SBATCH -n 2"
    )  # fmt: skip
    command = ours(text)["command"]
    assert command[2] == 'OUT="/scratch/${TRAINING_RUN_ID}"\nsource $OUT/env.sh\nexec "$@"'
    assert command[-1] == "/scratch/$(TRAINING_RUN_ID)"
    assert set(refused(script("cd /scratch/$SLURM_JOB_ID", "srun python a.py")).values()) == {2}


NODES = "#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4"


@pytest.mark.parametrize(
    "line",
    ["srun --gpus-per-task=1", "srun -n 8 --gpus-per-task=1", "srun --gres=gpu:4", "srun --gpus=8"],
)
def test_a_step_asks_for_gpus_within_its_allocation(line: str):
    (role,) = ours(script(f"{line} python train.py", head=NODES))["roles"]
    assert role["replicas"] == 8
    assert role["resources"]["limits"] == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize("line", ["srun --gres=gpu:2", "srun -n 16", "srun --ntasks-per-node=8"])
def test_tasks_of_a_step_that_share_gpus_are_refused(line: str):
    assert refused(script(f"{line} python train.py", head=NODES))


def test_memory_of_gpus_that_nobody_asks_for_is_refused():
    assert refused(script("srun python train.py", head="#SBATCH --mem-per-gpu=10G"))


def test_each_step_is_told_how_many_tasks_it_has():
    one, many = ours(
        script("set -e", "srun -n 2 python a.py", "srun -n 8 python b.py", head=NODES)
    )["roles"]
    assert {"name": "SLURM_NTASKS", "value": "2"} in one["env"]
    assert {"name": "SLURM_NTASKS", "value": "8"} in many["env"]
    assert {"name": "SLURM_PROCID", "value": "$(TRAINING_INDEX)"} in many["env"]


def test_tasks_that_find_rank_0_are_told_their_numbers_too():
    text = script(
        "export MASTER_ADDR=$(hostname)",
        "srun bash -c 'RANK=$SLURM_PROCID python train.py'",
        head="#SBATCH -n 4",
    )
    assert {"name": "SLURM_PROCID", "value": "$(TRAINING_INDEX)"} in ours(text)["env"]


def test_a_word_of_the_command_makes_no_step_a_display():
    text = script("set -e", "srun python a.py", "srun -n 1 python train.py --amp true")
    assert len(ours(text)["roles"]) == 2


def test_exec_is_no_part_of_the_command():
    assert ours(script("exec srun -n 2 python train.py"))["command"] == ["python", "train.py"]


@pytest.mark.parametrize(
    "line",
    [
        "env X=1 srun python b.py",
        "cat data | srun python b.py",
        "srun python b.py || true",
        "srun --export=ALL,X=$HOME python b.py",
        "srun python b.py <<< text",
    ],
)
def test_what_would_do_something_else_here_is_refused(line: str):
    assert refused(script("set -e", "srun python a.py", line))


def test_what_a_step_exports_or_enters_is_its_own():
    text = script("set -e", "srun --export=ALL,A=1 python a.py", "srun python b.py")
    spec = ours(text)
    one, other = spec["roles"]
    assert one["env"] == [{"name": "A", "value": "1"}]
    assert "env" not in other
    assert "env" not in spec
    assert refused(text.replace("--export=ALL,A=1", "--chdir=/data"))


def test_a_word_with_a_variable_is_told_as_the_script_has_it():
    found = fates(
        script(
            "N=$SLURM_NNODES",
            'srun python train.py --world $SLURM_NTASKS --rank "$SLURM_PROCID" --nodes=${N:-1} --lr 0.1',
        )
    )
    told = [found[f"script[1][{place}]"] for place in (4, 6, 7, 9)]
    assert [each.value for each in told] == [
        "$SLURM_NTASKS",
        "$SLURM_PROCID",
        "--nodes=${N:-1}",
        "0.1",
    ]
    assert [each.fate for each in told] == ["translated"] * 3 + ["kept"]
