"""Whom other ranks, launchers and the kernel name, where the line that tells of a failure does not."""

from __future__ import annotations

import pytest

from tests.logs.diagnosis.asking import ask

STEPS = "step 10: loss 2.5\nstep 20: loss 2.4\n"
FRAME = '  File "/app/run.py", line 9, in <module>\n    main()\n'


def fingerprint(own: int, sizes: dict[int, int], other: int) -> str:
    """Return what a rank raises that compares its collective with that of another."""

    def works(rank: int) -> str:
        return f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, TensorShape=[{sizes[rank]}])"

    return (
        f"[rank{own}]: Traceback (most recent call last):\n[rank{own}]: {FRAME.splitlines()[0]}\n[rank{own}]:     main()\n"
        f"[rank{own}]: RuntimeError: Detected mismatch between collectives on ranks. {works(own)}, but {works(other)}.\n"
    )


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_of_ranks_that_accuse_each_other_most_are_right(odd):
    sizes = {rank: 7 if rank == odd else 4 for rank in range(4)}
    peers = {rank: odd if rank != odd else (odd + 1) % 4 for rank in range(4)}
    told = "".join(fingerprint(rank, sizes, peers[rank]) for rank in range(4))
    found = ask(STEPS + told).causes[0]
    assert (found.id, found.rank) == ("collective-mismatch", odd)


def stalled(missing: dict[int, str]) -> str:
    """Return what the coordinator of Horovod lists, in a job that mpirun labels."""
    lines = [
        "[2026-01-02 03:04:05.000000: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be"
        " reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
        "Missing ranks:",
        *(f"{rank}: [{tensors}]" for rank, tensors in missing.items()),
    ]
    return "".join(f"[1,0]<stderr>:{line}\n" for line in lines)


def test_ranks_that_miss_each_other_submit_different_tensors():
    log = stalled(
        {0: "avg/loss_0", 1: "avg/loss_0", 2: "grads_0_0, grads_1_0 ...", 3: "avg/loss_0"}
    )
    found = ask(
        f"{log}[1,0]<stderr>:One or more rank exceeded HOROVOD_STALL_SHUTDOWN_TIME_SECONDS\n"
    ).causes[0]
    assert (found.id, found.rank, found.retryable) == ("collective-mismatch", 2, "no")


def test_a_rank_that_all_tensors_miss_only_hangs():
    found = ask(stalled({3: "grads_0_0, grads_1_0"})).causes[0]
    assert (found.id, found.rank) == ("hang", 3)


def test_a_line_of_the_kernel_is_about_the_rank_that_fails_below_it():
    log = (
        f"{STEPS}NVRM: Xid (PCI:0000:1b:00): 79, pid=41, name=python, GPU has fallen off the bus.\n"
        f"[rank9]: Traceback (most recent call last):\n[rank9]: {FRAME.splitlines()[0]}\n[rank9]:     main()\n"
        "[rank9]: RuntimeError: CUDA error: unspecified launch failure\n"
    )
    found = ask({"worker-0.log": STEPS, "worker-1.log": log}).causes[0]
    assert (found.id, found.rank) == ("gpu-fell-off-bus", 9)


@pytest.mark.parametrize("name", ["[[4112,1],5]", "5"], ids=["open-mpi", "horovod"])
def test_the_launcher_names_the_process_that_ended_first(name):
    log = (
        f"Traceback (most recent call last):\n{FRAME}FileNotFoundError: [Errno 2] No such file or directory: '/data/part5'\n"
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        f"the job to be terminated. The first process to do so was:\n\n  Process name: {name}\n  Exit code:    1\n"
    )
    found = ask(log).causes[0]
    assert (found.id, found.rank) == ("file-not-found", 5)


def test_ray_names_the_process_above_the_frames_of_its_task():
    log = (
        "(Trainer pid=7) - (node_id=a1, ip=10.0.0.3, pid=70) world_rank=0, local_rank=0, node_rank=0\n"
        "(Trainer pid=7) - (node_id=b2, ip=10.0.0.4, pid=71) world_rank=1, local_rank=0, node_rank=1\n"
        "Traceback (most recent call last):\n"
        '  File "/lib/python3.11/site-packages/ray/train/utils.py", line 57, in check\n    ray.get(ref)\n'
        "ray.exceptions.RayTaskError(KeyError): ray::Worker.get_next() (pid=71, ip=10.0.0.4, actor_id=3)\n"
        '  File "/app/loop.py", line 5, in loop\n    batch["mask"]\n'
        "KeyError: 'mask'\n"
    )
    assert ask(log).causes[0].rank == 1


@pytest.mark.parametrize("name", ["launcher.log", "job-driver.log", "dask-scheduler.log"])
def test_what_starts_the_ranks_is_none(name):
    lost = "There are not enough slots available in the system to satisfy the 6\nslots that were requested\n"
    answer = ask({name: lost, "worker-0.log": "ready\n", "worker-1.log": "ready\n"}).causes[0]
    assert (answer.id, answer.rank) == ("mpi-slots-insufficient", None)


def test_the_side_whose_own_port_failed_goes_before_those_that_wait_for_it():
    waits = "n{0}:5:9 [0] net_ib.cc:17 NCCL WARN NET/IB : Got completion from peer 10.0.0.{1}<5> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
    port = "n1:5:7 [0] net_ib.cc:9 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error\n"
    found = ask({"n0.log": STEPS + waits.format(0, 1), "n1.log": STEPS + port + waits.format(1, 0)})
    assert (found.causes[0].file, found.causes[0].evidence) == ("n1.log", port.strip())


def test_a_worker_with_a_failure_of_its_own_goes_before_collectives_of_tensorflow_that_were_aborted():
    lost = (
        "E base_collective_executor.cc:249] BaseCollectiveExecutor::StartAbort UNAVAILABLE: Collective ops is aborted by: Socket closed\n"
        "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:\n"
    )
    own = (
        "W op_kernel.cc:18] OP_REQUIRES failed at decode_png_op.cc:74 : INVALID_ARGUMENT: no bytes\n"
        f"Traceback (most recent call last):\n{FRAME}"
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:\n"
    )
    found = ask({"worker-0.log": lost, "worker-1.log": own, "worker-2.log": lost}).causes[0]
    assert (found.id, found.rank) == ("data-corrupt", 1)
