"""A status document as a person reads it. The same for `run`, `status` and `submit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.cli.output import (
    OutputFormat,
    hanging,
    print_json,
    print_table,
    terminal_width,
)
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.expected_start import ExpectedStart
from airflow_training.control.root_cause import evidence_of, outcome_text, place_of
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.quantities import bytes_text
from airflow_training.documents.text import headline, printable

__all__ = ["environment_line", "print_status", "progress_text"]


def print_status(
    document: Mapping[str, Any],
    *,
    output: OutputFormat,
    metrics: Mapping[InstanceKey, Mapping[str, float]] | None = None,
    rejected: Sequence[str] = (),
) -> None:
    """Print a status document on stdout.

    For the table, as the document has neither: `metrics` are the newest values per (role, index),
    `rejected` the checkpoints that were not restored, in words.
    """
    if output is OutputFormat.json:
        print_json(document)
        return
    print(f"{document['job']}  {document['run_id']}")
    why = outcome_text(
        state=document["state"], reason=document["reason"], message=document["message"]
    )
    _print_hanging(f"{document['state']} ({document['condition']})  ", why)
    if document.get("undriven"):
        _print_hanging("what to do: ", document["undriven"]["what_to_do"])
    if document.get("expected_start"):
        _print_hanging("expected start: ", str(ExpectedStart(**document["expected_start"])))
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
            "stopped",
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
                role.get("stopped", 0),
                role["restarts"],
                headline(role["message"] or role["reason"] or ""),
            ]
            for name, role in document["roles"].items()
        ],
    )
    if document["instances"]:
        print()
        print_table(
            ["instance", "attempt", "state", "exit", "address", "progress", "why"],
            [
                _instance_row(
                    each, (metrics or {}).get(InstanceKey(each["role"], each["index"]), {})
                )
                for each in document["instances"]
            ],
        )
    if document["root_cause"]:
        _print_cause(document["root_cause"])
    if document.get("kept"):
        print()
        _print_hanging("look inside: ", _kept_text(document["kept"]))
    if document.get("advice"):
        print()
        for sentence in document["advice"]:
            _print_hanging("next time: ", sentence)
    if document["plan"]:
        from airflow_training.planning.answers.text import measured_text, one_line

        print(f"\nplan {document['plan']['id']}: {one_line(document['plan'])}")
        if document["plan"].get("measured"):
            print(f"  measured: {measured_text(document['plan'])}")
    if document.get("environment"):
        print(f"\n{environment_line(document['environment'])}")
    if document["checkpoint"]:
        print(
            f"\ncheckpoint: step {document['checkpoint']['step']} in {document['checkpoint']['uri']}"
        )
    if rejected:
        print()
    for each in rejected:
        _print_hanging("damaged checkpoint: ", headline(each))
    if document["output"]:
        print(f"\noutput: {document['output']['uri']}")


def environment_line(environment: Mapping[str, Any]) -> str:
    """The environment that a run was admitted with, in a line."""
    title = "@".join(filter(None, (environment["name"], environment["version"])))
    digest = (
        f", digest {environment['digest'][:12]}" if environment["digest"] else ", not looked up"
    )
    image = f", image {environment['image']}" if environment["image"] else ""
    return f"environment: {title}{digest}{image}"


def _print_cause(cause: Mapping[str, Any]) -> None:
    told = DiagnosedCause.from_document(cause)
    proof = evidence_of(told)
    print()
    said = headline(cause.get("message") or cause["id"])
    if told.evidence and headline(told.evidence) not in said:
        said = f"{said}: {headline(told.evidence)}"  # what its instance printed last
    _print_hanging("root cause: ", proof or said)
    if proof:
        if place_of(told):
            _print_hanging("  proof: ", place_of(told))
        _print_hanging("  what to do: ", told.advice)


def _kept_text(kept: Mapping[str, Any]) -> str:
    if kept["role"] is None:
        return f"nothing stays: {kept['why']}"
    name = f"{kept['role']}-{kept['index']}"
    if kept["why"]:
        return f"{name} does not stay: {kept['why']}"
    if kept["command"] is None:
        return f"{name} stayed until {kept['until']}"
    return f"{name} stays until {kept['until']}: {kept['command']}"


def _print_hanging(head: str, text: str) -> None:
    print("\n".join(hanging(head, text, width=terminal_width())))


def _instance_row(each: Mapping[str, Any], metrics: Mapping[str, float]) -> Sequence[Any]:
    ended = each["exit_code"] if each["signal"] is None else f"signal {each['signal']}"
    why = headline(each["message"] or each["reason"] or "")
    if each["waiting_since"]:
        why = f"{each['reason']} since {each['waiting_since']}: {why}"
    if each.get("memory_bytes"):
        asked = f"asks for {bytes_text(each['memory_bytes'])} of memory"
        why = f"{why}; {asked}" if why else asked
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
    parts += [f"{printable(name)} {value:.4g}" for name, value in list(metrics.items())[:3]]
    return ", ".join(parts)
