"""What `status` says of memory for the next run's document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.advice import advice_of, parameter_to_lower
from airflow_training.control.causes import RootCause
from airflow_training.control.model import FinalPhase, RaisedMemory
from airflow_training.documents.resolved import ResolvedRole
from tests.builders import Bench, job, role

GIB = 1 << 30


def trains(*command: str, env: dict[str, Any] | None = None, **resources: Any) -> ResolvedRole:
    container = {
        "name": "main",
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
        "resources": resources,
    }
    return role(template={"spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("command", "env", "named"),
    [
        (["python", "t.py", "--batch-size", "64"], {}, "--batch-size (now 64)"),
        (["python", "t.py", "--batch_size=64"], {}, "--batch_size (now 64)"),
        (
            ["t.py", "--global-batch-size", "512", "--micro-batch-size", "4"],
            {},
            "--micro-batch-size (now 4)",
        ),
        (
            ["t.py", "--per_device_eval_batch_size", "8", "--per_device_train_batch_size", "16"],
            {},
            "--per_device_train_batch_size (now 16)",
        ),
        (["tune", "run", "lora", "batch_size=2"], {}, "batch_size (now 2)"),
        (["python", "t.py", "data.batch_size=8"], {}, "data.batch_size (now 8)"),
        (["sh", "-c", "cd /x && python t.py --bs 32"], {}, "--bs (now 32)"),
        (["python", "t.py"], {"BATCH_SIZE": "32"}, "BATCH_SIZE (now 32)"),
        (
            ["python", "t.py"],
            {"MICRO_BATCH_SIZE": "2", "BATCH_SIZE": "8"},
            "MICRO_BATCH_SIZE (now 2)",
        ),
        (["python", "t.py", "--gradient-accumulation-batches", "2"], {}, "the batch of one device"),
        (["python", "t.py", "--lr", "0.1"], {}, "the batch of one device, in the script"),
        (["sh", "-c", "echo it's"], {}, "the batch of one device, in the script"),
    ],
)
def test_the_parameter_to_lower_is_the_documents_own(command, env, named):
    spec = job(trains(*command, env=env))
    assert parameter_to_lower(spec, spec.role("worker")).startswith(named)


def test_it_may_be_a_parameter_of_the_job_or_of_the_framework():
    spec = job(trains("t.py"), variables={"params": {"batch": 16, "lr": 0.1}})
    assert parameter_to_lower(spec, spec.role("worker")) == "params.batch (now 16)"
    spec = job(trains("t.py"), framework="xgboost")
    assert parameter_to_lower(spec, spec.role("worker")) == "max_bin or max_depth"


def test_device_memory_names_what_to_lower():
    made = Bench(job(trains("t.py", "--batch-size", "64"))).settle()
    assert advice_of(made.job, made.ledger) == []
    root = RootCause(
        id="cuda-out-of-memory",
        category="resource",
        retryable="no",
        confidence=0.9,
        role="worker",
        index=0,
    )
    ledger = replace(made.ledger, job=replace(made.ledger.job, root_cause=root))
    assert advice_of(made.job, ledger) == [
        "worker ran out of device memory: lower --batch-size (now 64)"
    ]


def test_raised_memory_becomes_the_next_documents():
    made = Bench(job(trains("t.py", limits={"memory": "8Gi"}), role("other"))).settle()
    entry = replace(made.of(), memory=RaisedMemory(12 * GIB, since_attempt=1))
    ledger = replace(made.ledger, instances={**made.ledger.instances, entry.key: entry})
    assert advice_of(made.job, ledger) == [
        "worker-0 ran out of 8Gi of memory and asked for up to 12Gi:"
        " set resources.limits.memory of worker to 12Gi"
    ]


def test_more_than_what_was_not_enough_is_advised():
    made = Bench(job(trains("t.py", limits={"memory": "8Gi"}))).settle()
    made.end("worker", 0, 137, reason="OOMKilled")
    memory = RaisedMemory(12 * GIB, since_attempt=0)
    spent = replace(
        made.of(), memory=memory, state="failed", phase=FinalPhase(), reason="OOMKilled"
    )
    ledger = replace(made.ledger, instances={spent.key: spent})
    (told,) = advice_of(made.job, ledger)
    assert told.startswith("worker-0 ran out of 8Gi of memory, and of 12Gi too:")
    assert "set resources.limits.memory of worker to more than 12Gi" in told
