"""A status document as a person reads it. The same for `run`, `status` and `submit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.cli.output import Output, print_json, print_table
from airflow_training.control.root_cause import proof_of

__all__ = ["print_status", "progress_text"]


def print_status(
    document: Mapping[str, Any],
    *,
    output: Output,
    metrics: Mapping[tuple[str, int], Mapping[str, float]] | None = None,
) -> None:
    """Print a status document on stdout.

    `metrics` are the newest values per (role, index), for the table: the document has none.
    """
    if output is Output.json:
        print_json(document)
        return
    print(f"{document['job']}  {document['run_id']}")
    print(
        f"{document['state']} ({document['condition']})  {document['reason']}: {document['message']}"
    )
    print()
    print_table(
        [
            "role",
            "state",
            "desired",
            "pending",
            "running",
            "succeeded",
            "failed",
            "restarts",
            "why",
        ],
        [
            [
                name,
                role["state"],
                role["desired"],
                role["pending"],
                role["running"],
                role["succeeded"],
                role["failed"],
                role["restarts"],
                role["message"] or role["reason"],
            ]
            for name, role in document["roles"].items()
        ],
    )
    if document["instances"]:
        print()
        print_table(
            ["instance", "attempt", "state", "exit", "address", "progress", "why"],
            [
                _instance_row(each, (metrics or {}).get((each["role"], each["index"]), {}))
                for each in document["instances"]
            ],
        )
    if document["root_cause"]:
        _print_cause(document["root_cause"])
    if document["plan"]:
        from airflow_training.planning.text import measured_text, one_line

        print(f"\nplan {document['plan']['id']}: {one_line(document['plan'])}")
        if document["plan"].get("measured"):
            print(f"  measured: {measured_text(document['plan'])}")
    if document["checkpoint"]:
        print(
            f"\ncheckpoint: step {document['checkpoint']['step']} in {document['checkpoint']['uri']}"
        )
    if document["output"]:
        print(f"\noutput: {document['output']['uri']}")


def _print_cause(cause: Mapping[str, Any]) -> None:
    proof = proof_of(cause)
    print(f"\nroot cause: {proof or cause.get('message') or cause['id']}")
    if proof:
        where = f":{cause['line']}" if cause["line"] is not None else ""
        rank = f" (rank {cause['rank']})" if cause["rank"] is not None else ""
        if cause["file"] is not None:
            print(f"  proof: {cause['file']}{where}{rank}")
        print(f"  what to do: {cause['advice']}")


def _instance_row(each: Mapping[str, Any], metrics: Mapping[str, float]) -> Sequence[Any]:
    ended = each["exit_code"] if each["signal"] is None else f"signal {each['signal']}"
    why = each["message"] or each["reason"]
    return [
        f"{each['role']}-{each['index']}",
        each["attempt"],
        each["state"],
        ended,
        each["address"],
        progress_text({**(each["progress"] or {}), "metrics": metrics}),
        why,
    ]


def progress_text(progress: Mapping[str, Any] | None) -> str:
    """Return `step 30/900, loss 0.31` for a progress document."""
    if not progress:
        return ""
    parts = []
    if progress.get("step") is not None:
        total = progress.get("total_steps")
        parts.append(f"step {progress['step']}" + (f"/{total}" if total else ""))
    elif progress.get("epoch") is not None:
        parts.append(f"epoch {progress['epoch']:g}")
    metrics = progress.get("metrics") or {}
    parts += [f"{name} {value:.4g}" for name, value in list(metrics.items())[:3]]
    return ", ".join(parts)
