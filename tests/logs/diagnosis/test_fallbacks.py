"""What an exception is about that no signature knows by its text: its number, its status, its name, the place that raised it."""

from __future__ import annotations

import pytest

from tests.logs.diagnosis.asking import ask
from tests.logs.diagnosis.test_siblings import first, raised

LIBRARY = "/opt/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("number", "text", "causes", "again"),
    [
        (1, "Operation not permitted", "permission-denied", "no"),
        (2, "No such file or directory", "file-not-found", "no"),
        (5, "Input/output error", "storage-io-error", "yes"),
        (12, "Cannot allocate memory", "host-out-of-memory", "no"),
        (13, "Permission denied", "permission-denied", "no"),
        (20, "Not a directory", "file-not-found", "no"),
        (24, "Too many open files", "out-of-file-descriptors", "no"),
        (28, "No space left on device", "disk-full", "no"),
        (98, "Address already in use", "address-already-in-use", "yes"),
        (101, "Network is unreachable", "connection-refused-master", "yes"),
        (104, "Connection reset by peer", "peer-connection-lost", "yes"),
        (107, "Transport endpoint is not connected", "storage-io-error", "yes"),
        (110, "Connection timed out", "connection-refused-master storage-io-error", "yes"),
        (111, "Connection refused", "connection-refused-master", "yes"),
        (113, "No route to host", "connection-refused-master", "yes"),
        (116, "Stale file handle", "storage-io-error", "yes"),
        (121, "Remote I/O error", "storage-io-error", "yes"),
        (122, "Disk quota exceeded", "disk-full", "no"),
    ],
)
def test_the_number_of_an_error_of_the_system(number, text, causes, again):
    name = type(OSError(number, text)).__name__
    found, retry = first(raised(f"{name}: [Errno {number}] {text}", "/app/read.py"))
    assert (found in causes.split(), retry == again) == (True, True), (found, retry)


@pytest.mark.parametrize(
    ("error", "cause", "again"),
    [
        ("acme.ApiError: status code 503", "hub-rate-limit", "yes"),
        ("acme.ApiError: HTTP 429 Too Many Requests", "hub-rate-limit", "yes"),
        ("acme.RateLimitError: slower", "hub-rate-limit", "yes"),
        ("acme.ApiError: status code 401", "hub-auth", "no"),
        ("acme.ApiError: the token has expired", "hub-auth", "no"),
        ("acme.ApiError: 403 Forbidden", "hub-auth", "no"),
        ("httpx.ConnectTimeout", "connection-refused-master", "yes"),
        ("acme.ConnectionError: it cannot be reached", "connection-refused-master", "yes"),
        ("acme.CommClosedError: in pool", "peer-connection-lost", "yes"),
        ("ImportError: the extension is not there", "module-not-found", "no"),
        ("ImportError: /opt/lib/_acme.so not usable", "native-library-mismatch", "no"),
    ],
)
def test_the_status_or_the_name_of_an_error(error, cause, again):
    assert first(raised(error, f"{LIBRARY}/acme/client.py")) == (cause, again)


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: float() argument must be a string or a real number",
        "TypeError: argument of type 'int' is not iterable",
    ],
)
def test_an_argument_of_a_function_is_no_option(error):
    assert first(raised(error, "/app/reward.py"))[0] == "python-exception"


@pytest.mark.parametrize(
    ("above", "rank"),
    [
        ("[Rank 2 Error Snippet]:", 2),
        ("----------Begin global rank 4 STDERR----------", 4),
        ("worker 3 failed:", 3),
        ("exception on rank=7", 7),
        ("the order of 5 steps", None),
    ],
)
def test_the_line_above_a_traceback_names_its_rank(above, rank):
    log = f"{above}\n{raised('KeyError: 1', '/app/a.py').removeprefix('start' + chr(10))}"
    assert ask(log).causes[0].rank == rank


def test_the_log_that_says_nothing_left_first():
    lost = "step 2 loss 1.0\nRuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:1\n"
    logs = {"w-0.log": lost, "w-1.log": "step 1 loss 1.1\n", "w-2.log": lost}
    assert ask(logs).causes[0].rank == 1
    assert ask({**logs, "w-1.log": "step 2 loss 1.0\ntraining finished\n"}).causes[0].rank != 1


def test_the_number_of_a_node_is_no_rank():
    log = "[rank4]: step 1 loss 1.0\nkernel: mlx5_core 0000:1a:00.0 eth2: Link down\n[rank5]: step 2 loss 1.0\n"
    found = ask({"node-0.log": "[rank0]: step 1 loss 1.0\n", "node-1.log": log}).causes[0]
    assert (found.id, found.rank) == ("nccl-unhandled-system-error", 4)


@pytest.mark.parametrize(
    ("text", "again"),
    [("No such device", "yes"), ("Operation not permitted", "no"), ("Connection timed out", "yes")],
)
def test_a_set_up_that_is_wrong_is_so_at_every_try(text, again):
    log = (
        f"w0:1:2 [0] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error {text}\n"
    )
    found = ask(log).causes[0]
    assert (found.id, found.retryable) == ("nccl-unhandled-system-error", again)
