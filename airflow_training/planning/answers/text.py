"""A plan document as lines of text: the same in a task's log, in `status` and on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_training.documents.text import counted

__all__ = [
    "bytes_text",
    "correction_text",
    "measured_text",
    "one_line",
    "plan_lines",
    "seconds_text",
    "strategy_text",
    "why_text",
]

Document = Mapping[str, Any]
_FAMILIES = 6
"""Rejected families that a log shows; the store has them all."""


def plan_lines(plan: Document) -> list[str]:
    """Return a plan as `status` has it: what was chosen, what it costs, and what came next."""
    applied = plan["applied"]
    lines = [
        f"plan {plan['id']} of {plan['model']} on {plan['cluster']}: {strategy_text(plan)}",
        f"  expected   {_expected(plan)}",
        f"  time       {_parts(plan, 'time_s', seconds_text)}",
        f"  memory     {_parts(plan, 'memory_bytes', bytes_text)}",
    ]
    given = [f"{role} x {count}" for role, count in applied["replicas"].items()]
    given += [", ".join(applied["env"])] if applied["env"] else []
    lines.append(f"  applied    {'; '.join(given) if given else 'nothing, only shown'}")
    for place, other in enumerate(plan["alternatives"], start=2):
        slower = other["step_time_s"] / plan["step_time_s"] - 1
        took = f"{seconds_text(other['step_time_s'])} ({slower:+.1%})"
        lines.append(f"  {place:<10} {strategy_text(other)}: {took}")
    lines += [f"  not        {rejected_text(each)}" for each in plan["rejected"][:_FAMILIES]]
    if "factor" in (learned := plan.get("measurements", {})):
        lines.append(f"  measured   {correction_text(learned)}")
    lines.append(f"  searched   {plan['evaluated']:,} candidates in {plan['seconds']:.2f} s")
    return [*lines, *(f"  warning    {each}" for each in plan["warnings"])]


def correction_text(measurements: Document) -> str:
    """Return how far runs were from what had been worked out for them."""
    return (
        f"by {counted(measurements['runs'], 'run')} of {counted(measurements['strategies'], 'split')}:"
        f" a step takes {measurements['factor']:.3g} times what is worked out"
    )


def measured_text(plan: Document) -> str:
    """Measured figures of a plan's run beside the expected ones."""
    found = plan["measured"]
    apart = found["step_time_s"] / plan["step_time_s"] - 1
    said = (
        f"{seconds_text(found['step_time_s'])} a step over {counted(found['steps'], 'step')}"
        f" ({apart:+.1%} of what was expected)"
    )
    peak = found["peak_memory_bytes"]
    return said if peak is None else f"{said}, {bytes_text(peak)} on the fullest device"


def one_line(plan: Document) -> str:
    """The plan in one line, for an event or a table of runs."""
    return f"{strategy_text(plan)}: {_expected(plan)}"


def strategy_text(plan: Document) -> str:
    """Return `tp 8 x pp 4 x dp 2 = 64 devices, micro-batch 2 x 16, zero 1, ...`."""
    split = plan["strategy"]
    sizes = [f"{axis} {split[axis]}" for axis in ("tp", "pp", "cp", "dp") if split[axis] > 1]
    rounds = max(1, split["global_batch"] // (split["dp"] * split["micro_batch"]))
    said = [f"{' x '.join(sizes) or 'no split'} = {counted(plan['devices'], 'device')}"]
    said += [f"ep {split['ep']}"] if split["ep"] > 1 else []
    said.append(f"micro-batch {split['micro_batch']} x {rounds}")
    said += [f"{split['virtual_stages']} virtual stages"] if split["virtual_stages"] > 1 else []
    said += [f"ZeRO {split['zero']}"] if split["zero"] else []
    said += ["sequence parallel"] if split["sequence_parallel"] else []
    said += [f"recompute {split['recompute']}"] if split["recompute"] != "none" else []
    said += [f"overlap {split['overlap']}"] if split["overlap"] != "none" else []
    if split["stage_layers"]:
        said.append(f"layers {'+'.join(map(str, split['stage_layers']))}")
    if split["stage_devices"]:
        said.append(f"stages on {', '.join(split['stage_devices'])}")
    return ", ".join([*said, split["precision"]])


def rejected_text(rejected: Document) -> str:
    """Return which family of strategies lost, and why."""
    family = ", ".join(f"{key} {value}" for key, value in rejected["family"].items())
    return f"{family}: {why_text(rejected)} ({counted(rejected['candidates'], 'candidate')})"


def why_text(rejected: Document) -> str:
    """Return why a family of strategies lost: by bytes that do not fit, or by its distance."""
    by = rejected["by"]
    return {
        "memory": f"{bytes_text(by)} too large for a device",
        "time": f"{by:.1%} slower",
        "money": f"{by:.1%} dearer",
        "divides": "does not divide the model",
    }[rejected["reason"]]


def seconds_text(seconds: float) -> str:
    """Return seconds with a unit that fits; a measured step may be quicker than its parts."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us" if seconds else "0 s"


def bytes_text(size: float) -> str:
    """Return bytes with a unit that fits."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def _expected(plan: Document) -> str:
    price = plan.get("price_per_step")
    said = (
        f"{seconds_text(plan['step_time_s'])} a step"
        f" ({seconds_text(plan['p10'])} to {seconds_text(plan['p90'])}),"
        f" {bytes_text(plan['peak_memory_bytes'])} on the fullest device"
    )
    return said if price is None else f"{said}, {price:.4g} a step"


def _parts(plan: Document, kind: str, text: Any) -> str:
    parts = [each for each in plan["breakdown"][kind] if each["value"]]
    return ", ".join(
        f"{each['name']} {text(each['value'])}" + (" (measured)" * (each["origin"] == "measured"))
        for each in parts
    )
