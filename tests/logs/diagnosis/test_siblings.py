"""What logs of others taught: one mended kind of fault stands for its siblings too."""

from __future__ import annotations

import pytest

from tests.logs.diagnosis.asking import ask

LIBRARY = "/opt/venv/lib/python3.11/site-packages"


def raised(error: str, *files: str, function: str = "run") -> str:
    """Return the log of a run that ends with an exception; `files`: its frames, the one that raised it last."""
    frames = "".join(f'  File "{file}", line 40, in {function}\n    raise told\n' for file in files)
    head = (
        'start\nTraceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n'
    )
    return f"{head}    main()\n{frames}{error}\n"


def first(log: str) -> tuple[str, str]:
    found = ask(log).causes
    return (found[0].id, found[0].retryable) if found else ("healthy", "")


@pytest.mark.parametrize(
    "error",
    [
        "FileExistsError: [Errno 17] File exists: '/000003_locals'",
        "OSError: [Errno 36] File name too long: '/data/images/a.bin'",
        "OSError: [Errno 22] Invalid argument: '/data/images/a.bin' file",
    ],
)
def test_errno_is_no_word_of_a_missing_file(error):
    """`Errno 17] File` is not `no ... file`."""
    assert first(raised(error, "/app/data.py"))[0] != "file-not-found"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("RuntimeError: the profile of acme was not found", "file-not-found"),
        ("RuntimeError: a description could not be found", "file-not-found"),
        ("RuntimeError: stopped, the loss is informative only", "nan-loss"),
    ],
)
def test_parts_of_words_tell_nothing(error, cause):
    assert first(raised(error, "/app/a.py"))[0] != cause


def test_a_missing_file_is_told_by_whole_words():
    assert (
        first(raised("ValueError: no label files in /data/x", "/app/data.py"))[0]
        == "file-not-found"
    )
    assert first(raised("RuntimeError: device 2 will change its mode", "/app/a.py"))[0] != "hang"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("KeyError: \"Override 'lr-decay' not found in: ['lr']\"", "config-error"),
        ("KeyError: 'Override lr-decay not found'", "config-error"),
        ('hydra: Could not override "trainer.step\'s".', "config-error"),
        ("KeyError: \"No 'state_dict' in last.pt\"", "checkpoint-corrupt"),
    ],
)
def test_python_quotes_with_either_quote(error, cause):
    assert first(raised(error, "/app/overrides.py"))[0] == cause


@pytest.mark.parametrize(
    ("error", "cause", "retry"),
    [
        ("huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: Root=1)", "hub-auth", "no"),
        ("huggingface_hub.errors.RevisionNotFoundError: 404 Client Error. (Request ID: Root=1)", "file-not-found", "no"),
        (
            "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://huggingface.co/a/b/resolve/main/x",
            "file-not-found",
            "no",
        ),
        ("AttributeError: module 'transformers_modules.acme.modeling' has no attribute 'Acme'", "cache-conflict", "yes"),
        ("ModuleNotFoundError: No module named 'transformers_modules.acme.modeling'", "cache-conflict", "yes"),
        (
            f"ImportError: cannot import name 'Acme' from 'transformers_modules.acme' ({LIBRARY}/x.py)",
            "cache-conflict",
            "yes",
        ),
    ],
)  # fmt: skip
def test_hubs_and_their_caches(error, cause, retry):
    assert first(raised(error, f"{LIBRARY}/acme/loader.py")) == (cause, retry)


def test_requires_grad_is_an_option_and_no_dtype():
    grad = (
        "ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"
    )
    dtype = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
    files = f"{LIBRARY}/torch/distributed/fsdp/_flat_param.py"
    assert first(raised(grad, files))[0] == "config-error"
    assert first(raised(dtype, files))[0] == "device-dtype-mismatch"


@pytest.mark.parametrize(
    ("line", "causes"),
    [
        ("srun: error: Task launch for StepId=7.1 failed on node n2: Unable to satisfy cpu bind request", {"config-error"}),
        ("srun: error: Task launch for 7.0 failed on node n2: Job credential expired", {"node-lost"}),
        ("srun: error: Task launch for 7.0 failed on node n2: Communication connection failure", {"node-lost"}),
        ("slurmstepd: error: Prolog failed on node n2", {"node-lost"}),
        ("srun: error: Application launch failed: Duplicate job id", {"unknown"}),
        ("srun: error: the step can not begin", {"unknown"}),
    ],
)  # fmt: skip
def test_no_error_of_srun_is_healthy(line, causes):
    assert (
        first(f"hosts: n1 n2\n{line}\nsrun: Job step aborted: Waiting up to 32 seconds\n")[0]
        in causes
    )


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.", "gpu-not-available"),
        ("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.", "gpu-not-available"),
        ("RuntimeError: synStatus 8 [Device not found]", "gpu-not-available"),
        ("RuntimeError: nrt_init failed, no neuron device found", "gpu-not-available"),
        ("RuntimeError: No XPU devices are available.", "gpu-not-available"),
        ("RuntimeError: Native API failed. Native API returns: -1 (PI_ERROR_DEVICE_NOT_FOUND)", "gpu-not-available"),
        ("RuntimeError: The TPU is already in use by process with pid 4242.", "gpu-not-available"),
        ("RuntimeError: NPU 3 is occupied by another process", "gpu-not-available"),
        ("RuntimeError: cnrtErrorNoDevice", "gpu-not-available"),
        ('RuntimeError: nrt_load_collectives status=4 message="Allocation Failure"', "cuda-out-of-memory"),
        ("RuntimeError: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "cuda-out-of-memory"),
        ("RuntimeError: CNRT error: cnrtErrorNoMem", "cuda-out-of-memory"),
        ("RuntimeError: HIP error: hipErrorMemoryAllocation", "cuda-out-of-memory"),
        ("RuntimeError: habanalabs driver 1.13 is incompatible with SynapseAI 1.17", "cuda-driver-mismatch"),
        ("RuntimeError: Neuron driver version 2.1 is not compatible, NRT requires >= 2.16", "cuda-driver-mismatch"),
        ("RuntimeError: HIP error: hipErrorInsufficientDriver", "cuda-driver-mismatch"),
        ("RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", "gpu-fell-off-bus"),
        ("RuntimeError: rocblas_status_internal_error when calling rocblas_sgemm", "cublas-cudnn-error"),
        ("RuntimeError: Segmentation fault from GPU at 0xff00ff, ctx_id: 1 (CCS)", "cuda-illegal-memory-access"),
        ("RuntimeError: hcclSystemError: link is down", "nccl-unhandled-system-error"),
    ],
)  # fmt: skip
def test_every_accelerator_has_the_causes_of_a_gpu(error, cause):
    assert first(raised(error, f"{LIBRARY}/acme/device.py"))[0] == cause


@pytest.mark.parametrize(
    ("error", "frame", "causes"),
    [
        ("RuntimeError: Internal: src/x.cc(9) [model_proto->ParseFromArray(a, b)]", "sentencepiece/__init__", {"checkpoint-corrupt"}),
        ("google.protobuf.message.DecodeError: Error parsing message", "acme/records", {"data-corrupt"}),
        ("ValueError: Unable to load vocabulary from file. Is it corrupted?", "acme/words", {"data-corrupt"}),
        ("RuntimeError: File out/ckpt/last.pt cannot be opened.", "torch/serialization", {"file-not-found"}),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read(error, frame, causes):
    assert first(raised(error, f"{LIBRARY}/{frame}.py"))[0] in causes


NANNY = """distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting
distributed.nanny - INFO - Worker process 81 was killed by signal 15
distributed.nanny - WARNING - Restarting worker
"""


def test_dask_says_itself_that_memory_was_used_up():
    killed = raised("distributed.scheduler.KilledWorker: ('train-1', <WorkerState>)", "/app/x.py")
    assert first(NANNY * 2) == ("host-out-of-memory", "no")
    found = ask({"client.log": killed, "worker1.log": NANNY * 2}).causes[0]
    assert (found.id, found.rank) == ("host-out-of-memory", 1)


@pytest.mark.parametrize(
    "line",
    [
        "(raylet) A worker died or was killed while executing a task. Worker exit type: SYSTEM_ERROR Exit code: 1",
        "[W TCPStore.cpp:138] [c10d] recvValue failed on SocketImpl(fd=4, addr=[a]:1): Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "Sending process 33051 closing signal SIGTERM",
        "Failed to disconnect from coordination service: Shutdown barrier has failed",
        "Traceback (most recent call last):\n"
        '  File "/opt/conda/lib/python3.11/site-packages/distributed/batched.py", line 115, in _background_send\n'
        "distributed.comm.core.CommClosedError: in <TCP (closed) Worker->Scheduler>: Stream is closed",
    ],
)
def test_words_of_tearing_down_fail_no_run_that_is_complete(line):
    steps = "".join(f"step {n} loss {2 - n / 10}\n" for n in range(8))
    assert first(f"{steps}Training finished successfully.\n{line}\n")[0] == "healthy"
    assert first(f"{steps}{line}\n")[0] != "healthy" or "closing signal" in line


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[1,mpirank:7,algo-1]<stderr>:", 7),
        ("[prterun-n1-99@1,7]<stderr>: ", 7),
        ("[2024-01-05T10:11:12.000000Z] 1b2c3d4e [rank=7] || ", 7),
        ("(worker3, rank=7, pid=81, ip=10.0.0.3) ", 7),
        ("llm-worker-7 pytorch ", 7),
        ("trainer/7 ", 7),
        ("[RANK 7] ", 7),
        ("algo-1-fq2ce  | ", None),
    ],
)
def test_launchers_name_the_rank_in_front(prefix, rank):
    log = raised("KeyError: 'caption'", "/app/data.py")
    found = ask("".join(f"{prefix}{line}\n" for line in log.splitlines())).causes[0]
    assert (found.id, found.rank) == ("python-exception", rank)
    assert found.evidence == "KeyError: 'caption'"


@pytest.mark.parametrize(
    ("error", "frame", "function", "cause"),
    [
        ("ValueError: badly formed", f"{LIBRARY}/omegaconf/base.py", "_raise", "config-error"),
        ("TypeError: not a mapping", "/usr/lib/python3.11/argparse.py", "add_argument", "config-error"),
        ("ValueError: 3 stages for 2 nodes", "/app/arguments.py", "validate_args", "config-error"),
        ("ValueError: wrong stages", "/app/settings.py", "__post_init__", "config-error"),
        ("ValueError: bad header", f"{LIBRARY}/h5py/_hl/files.py", "make_fid", "data-corrupt"),
        ("RuntimeError: unexpected block", f"{LIBRARY}/webdataset/tariterators.py", "expand", "data-corrupt"),
        ("KeyError: 'exp_avg'", f"{LIBRARY}/torch/distributed/checkpoint/planner.py", "load", "checkpoint-load-mismatch"),
        ("KeyError: 'exp_avg'", "/app/checkpointing.py", "resume_run", "checkpoint-load-mismatch"),
        ("RuntimeError: Internal: unk is not defined.", f"{LIBRARY}/sentencepiece/__init__.py", "Load", "checkpoint-corrupt"),
        ("HFValidationError: Repo id must be a name", f"{LIBRARY}/huggingface_hub/utils/_validators.py", "check", "config-error"),
    ],
)  # fmt: skip
def test_who_raised_an_exception_tells_what_it_is_about(error, frame, function, cause):
    found = ask(raised(error, frame, function=function)).causes[0]
    assert found.id == cause
    assert 0.5 <= found.confidence < 0.8


@pytest.mark.parametrize(
    ("error", "frame", "least", "most"),
    [
        pytest.param("KeyError: 'caption'", "/app/data.py", 0.75, 0.79, id="slip-in-own-file"),
        pytest.param("ValueError: every bucket needs a word", "/app/data.py", 0.65, 0.79, id="raised-by-own-file"),
        pytest.param("ValueError: step failed to start, code 9", "/app/data.py", 0, 0.5, id="says-no-more"),
        pytest.param("ValueError: bad bucket", f"{LIBRARY}/acme/data.py", 0, 0.5, id="library"),
    ],
)  # fmt: skip
def test_an_exception_of_own_code_is_said_with_the_confidence_it_deserves(
    error, frame, least, most
):
    """Below 0.8 always: another try of it is never forbidden for that."""
    found = ask(raised(error, frame)).causes[0]
    assert found.id == "python-exception"
    assert least <= found.confidence <= most


def test_a_frame_tells_nothing_of_what_a_signature_knows():
    known = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert first(raised(known, "/app/checkpointing.py"))[0] == "cuda-out-of-memory"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("acme.RecipeConfigError", "config-error"),
        ("acme.TruncatedShardError", "data-corrupt"),
        ("acme.ArrayNotFoundError", "file-not-found"),
        ("acme.StageError", "python-exception"),
    ],
)
def test_the_name_of_an_exception_tells_what_nothing_else_does(name, cause):
    assert first(raised(f"{name}: three of four", f"{LIBRARY}/acme/x.py"))[0] == cause


@pytest.mark.parametrize(
    ("log", "cause", "retryable"),
    [
        ("error: Request failed after 3 retries\n  Caused by: operation timed out", "package-install-failed", "yes"),
        ("pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='files.example', port=443): Read timed out.", "package-install-failed", "yes"),
        ("CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://conda.example/repodata.json>", "package-install-failed", "yes"),
        ("E: Failed to fetch http://archive.example/pool/g/git.deb  Connection timed out", "package-install-failed", "yes"),
        ("ERROR: No matching distribution found for flash-attn==99", "module-not-found", "no"),
        ("error: Failed to fetch: `https://index.example/simple/a/`\n  Caused by: HTTP status client error (401 Unauthorized)", "", ""),
    ],
)  # fmt: skip
def test_an_index_that_does_not_answer_may_answer_later_and_a_package_that_is_not_there_not(
    log, cause, retryable
):
    found = first(f"Collecting torch\n{log}\n")
    assert found == (cause, retryable) if cause else found[0] != "package-install-failed"


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: Couldn't instantiate the backend tokenizer from one of: \n(1) a `tokenizers` library serialization file",
        "ValueError: `tiktoken` is required to read a `tiktoken` file. Install it with `pip install tiktoken`.",
        "ImportError: You need to have sentencepiece installed to convert a slow tokenizer to a fast one.",
    ],
)
def test_a_tokenizer_without_its_library_lacks_a_package(error):
    told = raised(error, f"{LIBRARY}/transformers/tokenization_utils_fast.py", function="__init__")
    assert first(told) == ("module-not-found", "no")


@pytest.mark.parametrize(
    ("below", "cause"),
    [
        ("ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.2GB memory on GPU 0", "cuda-out-of-memory"),
        ("", "host-out-of-memory"),
    ],
)  # fmt: skip
def test_a_bare_memory_error_is_of_the_memory_that_is_named_below(below, cause):
    far = "\n".join(f"{number}   paddle::f{number}(unsigned long)" for number in range(8))
    assert first(f"{raised('MemoryError: ', '/app/a.py')}{far}\n{below}\n")[0] == cause
