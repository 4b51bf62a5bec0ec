"""Starts the serial program and the ranks of the split one on this machine, and compares what they wrote down."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from airflow_training.alignment.bisecting import Look, first_look, next_look
from airflow_training.alignment.comparing import compare_runs
from airflow_training.alignment.records import read_run, read_step
from airflow_training.alignment.report import AlignmentReport
from airflow_training.alignment.tolerance import UNIT_ROUNDOFF
from airflow_training.errors import InputError, Problem, TrainingError
from airflow_training.execution.execution_plan import ExecutionPlan, plan_of

__all__ = ["align", "compare_recorded"]

_PROGRAM = "airflow_training.alignment.rank_program"
_LOOK_SECONDS = 0.05
_LOST_PEER = re.compile(r"Connection (?:closed|reset) by peer|Connection refused|Broken pipe")
_REFUSED = 2
"""Exit code of a rank that refuses plan or module."""


def align(
    engine: Mapping[str, Any],
    strategy: Mapping[str, Any],
    *,
    steps: int,
    folder: str | os.PathLike[str] | None = None,
    bisect: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
    serial_precision: str | None = None,
) -> AlignmentReport:
    """Train a few steps on one process and, by a plan, on as many as it has ranks; compare all tensors.

    Args:
        engine: fields of `EngineSettings`: the user's module and its functions.
        strategy: as in a plan's file.
        steps: how many to compare.
        folder: where tensors are written to, `serial` and `split`: about twice what a step computes, for each step;
            by default one that goes.
        bisect: look for the step first, by sketches of gradients, then for the block, then for the operator: each
            is a pass of both programs that writes what is looked at only.
        device: of the ranks of the split, which may share GPUs here; the serial program runs on the CPU.
        serial_precision: of the serial program, where it is another than that of the plan.

    Raises:
        InputError: plan and module do not go together.
        TrainingError: a process died; with the end of what it printed.

    """
    plan = plan_of({"strategy": dict(strategy)})
    if plan.recompute != "none":
        raise InputError.of(
            code="BadPlan",
            field="strategy.recompute",
            value=plan.recompute,
            message="what is computed twice cannot be compared by operators",
            allowed=("none",),
        )
    reference = replace(plan, precision=serial_precision or plan.precision)
    if plan.devices == 1 and device == "cpu" and reference.precision == plan.precision:
        raise InputError.of(
            code="BadPlan", field="strategy", message="a plan of one device is the serial training"
        )
    if reference.precision not in UNIT_ROUNDOFF:
        raise InputError.of(
            code="BadPlan",
            field="serial_precision",
            value=reference.precision,
            message="is no precision",
            allowed=tuple(UNIT_ROUNDOFF),
        )
    with tempfile.TemporaryDirectory(prefix="align-") as scratch:
        place = Path(folder or scratch).resolve()
        try:
            place.mkdir(parents=True, exist_ok=True)
            (place / "order.json").touch()
        except OSError as error:
            raise InputError.of(
                code="NoFolder",
                field="--record",
                value=str(folder),
                message=f"cannot be written to: {error.strerror}",
            ) from None
        passes = _Passes(
            engine=engine,
            strategy=strategy,
            plan=plan,
            place=place,
            device=device,
            serial_precision=reference.precision,
        )
        if not bisect:
            return passes.look(Look(steps=range(steps)))
        return _bisect(passes, steps)


def _bisect(passes: _Passes, steps: int) -> AlignmentReport:
    look, count = first_look(steps), 0
    while True:
        report = passes.look(look)
        count += 1
        recorded = passes.recorded() if look.blocks else ()
        later = next_look(look, report, steps=steps, recorded=recorded)
        if later is None:
            break
        look = later
    note = f"{count} passes: gradients of all steps by sketches, one step whole"
    return replace(report, steps=steps, notes=(*report.notes, note))


def compare_recorded(first: Path, second: Path) -> AlignmentReport:
    """Compare two runs that were recorded before: in two splits, on two devices, by two versions of a library.

    Raises:
        InputError: a folder holds no run, or they have nothing in common.

    """
    return compare_runs(
        read_run(first, field_name="--between"), read_run(second, field_name="--between")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passes:
    """Runs both programs and compares them, as often as it is asked to."""

    engine: Mapping[str, Any]
    strategy: Mapping[str, Any]
    plan: ExecutionPlan
    place: Path
    device: str
    serial_precision: str

    def look(self, look: Look) -> AlignmentReport:
        order = self.place / "order.json"
        document = {
            "engine": dict(self.engine),
            "strategy": dict(self.strategy),
            "parent": os.getpid(),
            "folder": str(self.place),
            "steps": list(look.steps),
            "detail": look.detail,
            "blocks": look.blocks,
            "inside": None if look.inside is None else list(look.inside),
            "device": self.device,
            "serial_precision": self.serial_precision,
        }
        order.write_text(json.dumps(document))
        for side, world in (("serial", 1), ("split", self.plan.devices)):
            (self.place / "meeting").unlink(missing_ok=True)
            device = "cpu" if side == "serial" else self.device
            _run(order, self.place, side=side, world=world, device=device)
        return compare_runs(
            read_run(self.place / "serial"),
            read_run(self.place / "split"),
            sketched=look.detail == "sketch",
        )

    def recorded(self) -> Sequence[str]:
        """Names of the modules whose outputs the serial program wrote, in their order."""
        run = read_run(self.place / "serial")
        names = (
            each.name.partition("[")[0]
            for each in read_step(run.folder, rank=0, step=run.steps[-1])
            if each.kind == "output"
        )
        return list(dict.fromkeys(names))


def _run(order: Path, place: Path, *, side: str, world: int, device: str) -> None:
    """Run all ranks of one side; where one fails, end the others, and raise what it said."""
    logs = [place / f"log-{side}-{rank}.txt" for rank in range(world)]
    processes: list[subprocess.Popen[bytes]] = []
    for stale in place.glob(f"refused-{side}-*.json"):
        stale.unlink()  # of what was recorded there before
    try:
        for rank, log in enumerate(logs):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)}
            environment["OMP_NUM_THREADS"] = "1"
            if device == "cpu":
                # modules go to a GPU where one is seen
                environment["CUDA_VISIBLE_DEVICES"] = ""
            environment.pop("PLAN_FILE", None)
            with log.open("wb") as output:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", _PROGRAM, str(order), side],
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        while None in (codes := [each.poll() for each in processes]):
            if any(codes):
                break
            time.sleep(_LOOK_SECONDS)
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()  # it has nothing to save, and may wait for one that is gone
        for each in processes:
            each.wait()
    _raise_failure(place, processes, logs, side=side)


def _raise_failure(
    place: Path, processes: list[subprocess.Popen[bytes]], logs: list[Path], *, side: str
) -> None:
    for rank, process in enumerate(processes):
        refused = place / f"refused-{side}-{rank}.json"
        if process.returncode == _REFUSED and refused.exists():
            raise InputError(problems=[Problem(**each) for each in json.loads(refused.read_text())])
    said_by = [log.read_text(errors="replace") for log in logs]
    failed = [
        *(rank for rank, each in enumerate(processes) if (each.returncode or 0) > 0),
        *(rank for rank, each in enumerate(processes) if (each.returncode or 0) < 0),
    ]
    failed.sort(key=lambda rank: bool(_LOST_PEER.search(said_by[rank])))  # the others' end is why
    if failed:
        said = said_by[failed[0]].strip().splitlines()[-15:]
        name = "the serial program" if side == "serial" else f"rank {failed[0]}"
        code = processes[failed[0]].returncode
        raise TrainingError(f"{name} ended with {code}:\n" + "\n".join(said))
