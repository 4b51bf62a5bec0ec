"""One text means another thing in other frames: where an exception was raised decides its cause."""

from __future__ import annotations

import pytest

from tests.logs.diagnosis.asking import ask

JSON = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
LIBRARY = "/usr/lib/python3.11/site-packages"


def traceback(*files: str, error: str = JSON) -> str:
    frames = "".join(f'  File "{file}", line 12, in load\n    do(it)\n' for file in files)
    return f"step 1: loss 2.5\nTraceback (most recent call last):\n{frames}{error}\n"


@pytest.mark.parametrize(
    ("files", "error", "cause", "retry"),
    [
        pytest.param(
            [f"{LIBRARY}/torch/_inductor/runtime/triton_heuristics.py"],
            JSON,
            "cache-conflict",
            "yes",
            id="compiler-cache",
        ),
        pytest.param(
            [f"{LIBRARY}/torch/_inductor/codecache.py"],
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n" + JSON,
            "cache-conflict",
            "yes",
            id="compiler-wraps",
        ),
        pytest.param(
            [f"{LIBRARY}/huggingface_hub/hf_api.py", f"{LIBRARY}/requests/models.py"],
            "requests.exceptions." + JSON.rpartition(".")[2],
            "hub-rate-limit",
            "yes",
            id="hub-client",
        ),
        pytest.param(
            [f"{LIBRARY}/filelock/_api.py"],
            "filelock._error.Timeout: The file lock '/home/user/.cache/x.lock' could not be acquired.",
            "cache-conflict",
            "yes",
            id="tokenizer-lock",
        ),
        pytest.param(
            ["<frozen importlib._bootstrap_external>"],
            "EOFError: marshal data too short",
            "cache-conflict",
            "yes",
            id="importlib",
        ),
        pytest.param(
            ["/usr/lib/python3.11/ssl.py"],
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            "config-error",
            "no",
            id="ssl",
        ),
        pytest.param(
            [f"{LIBRARY}/transformers/trainer_callback.py"],
            JSON,
            "checkpoint-corrupt",
            "once",
            id="state-of-a-checkpoint",
        ),
        pytest.param(
            [f"{LIBRARY}/safetensors/torch.py"],
            JSON,
            "checkpoint-corrupt",
            "once",
            id="safetensors",
        ),
        pytest.param(
            [f"{LIBRARY}/yaml/reader.py"],
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0",
            "config-error",
            "no",
            id="yaml",
        ),
        pytest.param(
            [f"{LIBRARY}/deepspeed/runtime/config.py"], JSON, "config-error", "no", id="deepspeed"
        ),
        pytest.param(
            ["/usr/lib/python3.11/multiprocessing/spawn.py"],
            "_pickle.UnpicklingError: pickle data was truncated",
            "multiprocessing-start-error",
            "no",
            id="spawned-child",
        ),
        pytest.param(
            [f"{LIBRARY}/torchvision/datasets/cifar.py"],
            "EOFError: Ran out of input",
            "data-corrupt",
            "no",
            id="data-set",
        ),
        pytest.param(["/workspace/rows.py"], JSON, "data-corrupt", "no", id="own-file"),
    ],
)
def test_the_frames_tell_the_cause(files, error, cause, retry):
    found = ask(traceback("/workspace/train.py", *files, error=error)).causes[0]
    assert (found.id, found.retryable) == (cause, retry)


def test_the_nearest_of_two_known_places_counts():
    files = [f"{LIBRARY}/transformers/trainer.py", f"{LIBRARY}/torch/_inductor/codecache.py"]
    assert ask(traceback(*files)).causes[0].id == "cache-conflict"


@pytest.mark.parametrize("place", ['File "<frozen os>"', 'File "/usr/lib/python3.10/os.py"'])
@pytest.mark.parametrize(
    ("error", "cause"),
    [("KeyError: 'WANDB_API_KEY'", "config-error"), ("KeyError: 'input_ids'", "python-exception")],
)
def test_an_environment_variable_that_is_missing(place, error, cause):
    frames = f'  File "train.py", line 3, in <module>\n  {place}, line 679, in __getitem__\n'
    found = ask(f"Traceback (most recent call last):\n{frames}{error}\n")
    assert found.causes[0].id == cause
    other = frames.replace(place, 'File "train.py"')
    plain = ask(f"Traceback (most recent call last):\n{other}{error}\n")
    assert plain.causes[0].id == "python-exception"
