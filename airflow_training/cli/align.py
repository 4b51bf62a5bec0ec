"""`align`: whether a split training equals the serial one, operator by operator."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_training.cli.output import fail, next_step, note, print_json, print_table
from airflow_training.errors import InputError

__all__ = ["align"]


def align(
    model: Annotated[
        str | None, typer.Argument(metavar="MODULE:FUNCTION", help="Makes the module.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A plan's file, as PLAN_FILE names it.")
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", "-s", metavar="KEY=VALUE", help="tp=2, dp=2, zero=1, ..."),
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples per step.")
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples of one replica and pass.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="How many steps to compare.")] = 3,
    precision: Annotated[str, typer.Option(help="fp64, fp32, tf32, bf16 or fp16.")] = "fp64",
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda", help="Of the split; the serial program runs on CPU.")
    ] = "cpu",
    serial_precision: Annotated[
        str | None, typer.Option(help="Of the serial program, where it is another.")
    ] = None,
    loss: Annotated[str, typer.Option(help="Function of the same module.")] = "loss",
    optimizer: Annotated[str, typer.Option(help="Function of the same module.")] = "optimizer",
    data: Annotated[str, typer.Option(help="Function of the same module.")] = "data",
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what was computed: FOLDER/serial, FOLDER/split."),
    ] = None,
    bisect: Annotated[
        bool,
        typer.Option("--bisect", help="Find the step first, then the operator: for large models."),
    ] = False,
    between: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="FOLDER FOLDER", help="Compare two recorded runs, and train nothing."),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="table|json")] = "table",
) -> None:
    """Train on one process and by a plan, on the same data from the same weights, and compare.

    Exit code 0: equal but for rounding; 1: not.
    """
    from airflow_training.alignment.report import report_document
    from airflow_training.alignment.running import align as compare
    from airflow_training.alignment.running import compare_recorded

    if output not in ("table", "json"):
        raise fail("--output", "is neither", value=output, allowed=("table", "json"))
    if device not in ("cpu", "cuda"):
        raise fail("--device", "is neither", value=device, allowed=("cpu", "cuda"))
    trained = (model, record, plan, split, global_batch, micro_batch, serial_precision)
    _check_question(model, record, between, bisect=bisect, trains=bisect or any(trained))
    if between is not None:
        report = compare_recorded(*between)
    else:
        strategy = _strategy(plan, split or [], global_batch, micro_batch, precision)
        engine = {"model": model, "loss": loss, "optimizer": optimizer, "data": data, "seed": seed}
        # so that processes and tensors are removed by those who made them
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        report = compare(
            engine,
            strategy,
            steps=steps,
            folder=record,
            bisect=bisect,
            device="cuda" if device == "cuda" else "cpu",
            serial_precision=serial_precision,
        )
    if output == "json":
        print_json(report_document(report))
    else:
        rows = [
            [each.kind, each.compared, each.left_out, each.diverged, f"{each.largest:.1e}"]
            for each in report.kinds
        ]
        print_table(["tensors", "compared", "left out", "diverged", "largest difference"], rows)
        for line in report.notes:
            note(line)
        _tell(report)
        if report.equal or model is None:
            next_step("run", "job.yaml")
        else:
            next_step("align", model, "--steps", "1", "-o", "json")
    raise typer.Exit(0 if report.equal else 1)


def _check_question(
    model: str | None,
    record: Path | None,
    between: tuple[Path, Path] | None,
    *,
    bisect: bool,
    trains: bool,
) -> None:
    if between is None and model is None:
        raise fail("MODULE:FUNCTION", "is required, or --between", code="missing")
    if between is not None and trains:
        raise fail("--between", "compares what is there, and goes with --output alone")
    if record is not None and bisect:
        raise fail("--record", "keeps whole steps, which --bisect does not write")


def _strategy(
    plan: Path | None,
    split: list[str],
    global_batch: int | None,
    micro_batch: int | None,
    precision: str,
) -> dict[str, Any]:
    from airflow_training.cli.plan_questions import pairs

    strategy: dict[str, Any] = {}
    if plan is not None:
        try:
            document = json.loads(plan.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise fail("--plan", f"cannot be read: {error}", value=str(plan)) from None
        strategy = dict(document.get("strategy") or {}) if isinstance(document, dict) else {}
    elif not split:
        raise fail("--plan", "is required, or --split", code="missing")
    strategy |= pairs("--split", split)
    sizes = {"global_batch": global_batch, "micro_batch": micro_batch}
    strategy |= {key: value for key, value in sizes.items() if value is not None}
    absent = [key for key in sizes if key not in strategy]
    if absent:
        raise InputError(
            problems=[
                problem
                for key in absent
                for problem in fail(
                    f"--{key.replace('_', '-')}", "is required without --plan", code="missing"
                ).problems
            ]
        )
    return {**strategy, "precision": precision}


def _tell(report: Any) -> None:
    first = report.first
    if first is None:
        print(f"equal in {report.steps} steps on {report.ranks} ranks")
        return
    where = f" {list(first.worst)}" if first.worst else ""
    print(
        f"first divergence: {first.kind} of {first.operator}, step {first.step}, rank {first.rank},"
        f" micro-batch {first.micro_batch}{where}"
        + (f", stage {first.stage}" if first.stage else "")
    )
    print(f"  differs by {first.difference:.1e} of its norm, rounding explains {first.allowed:.1e}")
    if first.place:
        print(f"  computed by {first.place}")
    if first.source:
        print(f"  called at {first.source}")
    print(f"  origin: {first.origin}")
