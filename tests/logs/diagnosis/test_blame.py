"""Which rank an answer names: the number in the name of a file is often that of a node."""

from __future__ import annotations

import pytest

from tests.logs.diagnosis.asking import ask

IMPORT = "ModuleNotFoundError: No module named 'xformers_ops'"
TRACEBACK = f'Traceback (most recent call last):\n  File "/app/t.py", line 3, in <module>\n    import x\n{IMPORT}\n'
STEPS = "step 10: loss 2.5\nstep 20: loss 2.4\n"
LOST = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error\n"


def report(rank: int, local: int, code: int = 1) -> str:
    """Return the end of a log of torchrun, whose node has several ranks."""
    return (
        f"E0102 03:04:05.000000 7 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code})"
        f" local_rank: {local} (pid: 70) of binary: /usr/bin/python\n"
        "t.py FAILED\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n"
        f"  time      : 2026-01-02_03:04:05\n  host      : n\n  rank      : {rank} (local_rank: {local})\n"
        f"  exitcode  : {code} (pid: 70)\n  error_file: <N/A>\n"
    )


def rank_of(logs: dict[str, str] | str) -> int | None:
    return ask(logs).causes[0].rank


@pytest.mark.parametrize(
    ("own", "local", "code"),
    [
        pytest.param(TRACEBACK, 2, 1, id="exception"),
        pytest.param(STEPS, 1, -9, id="killed"),
        pytest.param(f"{STEPS}Fatal Python error: Segmentation fault\n\n", 3, -11, id="crash"),
    ],
)
def test_the_launcher_of_a_node_knows_the_rank_in_the_job(own, local, code):
    logs = {"worker-0.log": STEPS + LOST, "worker-1.log": own + report(8 + local, local, code)}
    assert rank_of(logs) == 8 + local


def test_a_rank_that_a_line_names_itself_goes_before_what_a_launcher_says():
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    trace = '[rank6]: Traceback (most recent call last):\n[rank6]:   File "/app/t.py", line 3, in <module>\n[rank6]:     f()\n'
    log = f"{STEPS}{trace}[rank6]: {oom}{report(5, 1)}"
    assert rank_of({"worker-0.log": STEPS, "worker-1.log": log}) == 6


def test_a_spawned_process_is_named_above_its_traceback():
    log = (
        f"{STEPS}../aten/src/ATen/native/cuda/Loss.cu:250: f: block: [0,0,0], thread: [1,0,0] Assertion `t >= 0` failed.\n"
        "-- Process 3 terminated with the following error:\nTraceback (most recent call last):\n"
        '  File "/app/t.py", line 5, in train\n    loss.item()\nRuntimeError: CUDA error: device-side assert triggered\n'
    )
    assert rank_of({"worker-0.log": log}) == 3


def test_ray_tells_the_rank_of_its_processes_at_the_start():
    log = (
        "(TorchTrainer pid=9) - (node_id=ab, ip=10.0.0.1, pid=70) world_rank=0, local_rank=0, node_rank=0\n"
        "(TorchTrainer pid=9) - (node_id=cd, ip=10.0.0.2, pid=71) world_rank=1, local_rank=0, node_rank=1\n"
        f"{STEPS}ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.0.0.2) where the task (actor ID: 4, name=RayTrainWorker.__init__, pid=71) was running\n"
    )
    assert rank_of(log) == 1


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 60000 ms", id="barrier"
        ),
        pytest.param(
            "[E102 03:04:05.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)"
            " ran for 600060 milliseconds before timing out.\n\t - To our best knowledge, ranks [2] are the lagging ranks that"
            " caused this timeout.",
            id="desync",
        ),
        pytest.param(
            "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: start::0.\n# of tasks that reached the barrier: 3/4.\n"
            "The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:\n"
            "/job:jax_worker/replica:0/task:2",
            id="jax",
        ),
    ],
)  # fmt: skip
def test_who_waited_names_whom_it_waited_for(words):
    assert rank_of({"worker-0.log": f"{STEPS}{words}\n", "worker-1.log": STEPS}) == 2


def test_the_rank_that_has_begun_fewer_collectives_is_the_one_that_did_not_come():
    lines = [
        f"[rank{rank}]:[E102 03:04:05.1 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=90, OpType=ALLREDUCE) ran for 600039 milliseconds before timing out.\n"
        f"[rank{rank}]:[E102 03:04:05.2 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by"
        " watchdog at work sequence id: 90 PG status: last enqueued work: 92, last completed work: 89\n"
        for rank in (0, 1, 3)
    ]
    behind = (
        "[rank2]:[E102 03:04:05.9 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a"
        " collective timeout. Last enqueued NCCL work: 89, last completed NCCL work: 89.\n"
    )
    logs = {"worker-0.log": STEPS + "".join(lines), "worker-1.log": behind}
    assert rank_of(logs) == 2
    told = behind.replace("work: 89", "work: 92")
    assert rank_of({**logs, "worker-1.log": told}) != 2


@pytest.mark.parametrize(
    ("told", "rank"),
    [
        ("Process rank: {}, world size: 4, device: cuda:0\n", 0),
        ("distributed: GLOBAL_RANK: {0}, MEMBER: {0}/4\n", 0),
        ("Process rank: {}, world size: 8, device: cuda:0\n", 1),  # of two nodes, and the other's log is not here
        ("Process rank: {}, dp world size: 4, device: cuda:0\n", 1),
        ("", 1),
    ],
)  # fmt: skip
def test_of_a_log_of_the_whole_world_the_rank_without_a_time_out_is_the_one_that_did_not_come(
    told, rank
):
    heads = [told.format(each) for each in range(4)]
    waits = [
        f"[rank{each}]:[E102 03:04:05.{each} ProcessGroupNCCL.cpp:616] [Rank {each}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800053 milliseconds\n"
        for each in (1, 2, 3)
    ]
    assert rank_of({"train.log": "".join([*heads, *waits])}) == rank


def test_what_every_log_says_in_the_same_words_is_of_no_rank():
    assert rank_of({"worker-0.log": TRACEBACK, "worker-1.log": TRACEBACK}) is None
    assert rank_of({"worker-0.log": STEPS, "worker-1.log": TRACEBACK}) == 1


def test_a_launcher_is_no_rank_and_shifts_none():
    name = "ssh: Could not resolve hostname team-worker-1.team: Name or service not known\n"
    logs = {"launcher-0.log": name, "worker-0.log": "", "worker-1.log": ""}
    assert rank_of(logs) is None
    logs = {"launcher-0.log": STEPS, "worker-0.log": STEPS, "worker-1.log": TRACEBACK}
    assert rank_of(logs) == 1


@pytest.mark.parametrize(
    ("waits", "own", "cause"),
    [
        pytest.param(
            "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: start::0.",
            "error: Failed to fetch: `https://index.example/simple/a/`", "package-install-failed", id="jax",
        ),
        pytest.param(
            "[LightGBM] [Fatal] Socket recv error, Connection reset by peer (code: 104)",
            "[LightGBM] [Fatal] Data file /data/b.tsv doesn't exist.", "file-not-found", id="lightgbm",
        ),
        pytest.param(
            "xgboost.core.XGBoostError: [1:2:3] /src/collective/result.cc:78:\n- [comm.cc:285|1:2:3]: Failed to bootstrap the communication group.",
            "xgboost.core.XGBoostError: [1:2:3] /src/data/data.cc:5: Check failed: valid: Label contains NaN, infinity or a value too large.",
            "data-corrupt", id="xgboost",
        ),
    ],
)  # fmt: skip
def test_a_rank_that_ends_with_its_own_words_goes_before_those_that_missed_it(waits, own, cause):
    found = ask({"worker-0.log": f"start\n{waits}\n", "worker-1.log": f"start\n{own}\n"}).causes[0]
    assert (found.id, found.rank) == (cause, 1)
