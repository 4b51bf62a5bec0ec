"""What a training tells and saves: in a job by what the agent brings, in a packed training by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_training.networks.trainer.alone import FileCheckpoint, print_progress
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.shares import ShareOrder

__all__ = ["file_readings", "is_alone", "open_checkpoint", "report_progress", "restore", "section"]


def is_alone() -> bool:
    """Whether this is a packed training, which runs without jobs and agents."""
    return "TRAINER_ALONE" in os.environ


def report_progress(
    *,
    step: int,
    total_steps: int,
    epoch: float,
    samples: int | None,
    metrics: Mapping[str, float],
    files: Sequence[Mapping[str, Any]],
) -> None:
    """Tell whoever watches how far this rank is; `files` as of `file_readings`, `samples` None where another rank tells."""
    if is_alone():
        print_progress(step=step, total_steps=total_steps, epoch=epoch, metrics=metrics)
        return
    from airflow_training.agent.progress import report

    report(
        step=step,
        total_steps=total_steps,
        epoch=epoch,
        samples=samples,
        metrics=metrics,
        files=files,
    )


@contextmanager
def section(name: str) -> Iterator[None]:
    """Say that what happens inside is no training step."""
    if is_alone():
        yield
        return
    from airflow_training.agent.progress import section as told_section

    with told_section(name):
        yield


def open_checkpoint(model: Any, optimizer: Any, order: ShareOrder) -> Any:
    """Return the `Checkpointer` of the job, or a file with the same `restore`, `step` and `close`."""
    if is_alone():
        return FileCheckpoint(Path("checkpoint.pt"), model, optimizer, order)
    from airflow_training.checkpoints import Checkpointer

    return Checkpointer(
        model=model, optimizer=optimizer, data=order, scheduler=None, scaler=None, ema=None
    )


def restore(checkpoint: Any) -> int:
    """Put back the newest checkpoint, and return the step to begin with.

    Raises TrainerError where it is of another training; all else may be met at this start only.
    """
    try:
        return int(checkpoint.restore())
    except ValueError as error:
        raise TrainerError("the checkpoint", str(error)) from None
    except Exception as error:
        # the checkpointer tells with this cause of a state that does not fit, and of storage with others
        causes = KeyError | TypeError | ValueError | RuntimeError | AttributeError
        if isinstance(error.__cause__, causes):
            fix = "begin a new run with another checkpoint.uri, or put network, data and optimizer back"
            raise TrainerError("the checkpoint", str(error), fix) from None
        raise


def file_readings(
    names: Sequence[str], read: Mapping[int, int], totals: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Return `files` of a report: of each file how many samples of this rank's part were taken."""
    return [
        {"name": names[file], "read": count, "total": totals[file]} for file, count in read.items()
    ]
