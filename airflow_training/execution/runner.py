"""The program that a plan with `engine` starts on every rank: it trains functions of the user's module.

`python -m airflow_training.execution.runner` reads the plan that `PLAN_FILE` names: its `engine` says what is trained,
its `strategy` how. The module knows nothing of either.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.agent.progress import report, section
from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.errors import InputError
from airflow_training.execution.distributing import distribute
from airflow_training.execution.engine_settings import (
    EngineSettings,
    load_functions,
    make_model,
    make_samples,
    read_engine,
    seed_generators,
)
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.mesh import replica_of, stage_of

if TYPE_CHECKING:
    from airflow_training.execution.training import DistributedTraining

__all__ = ["main", "train_by_plan"]

_REPORT_SECONDS = 0.2
"""Between two lines of progress: more would tell nobody more."""
_EXIT_MISTAKE = 2
"""Exit code: the same start ends the same way."""
_EXIT_RETRY = 75
"""Exit code, EX_TEMPFAIL."""
_OUTPUT = "model.pt"
_OWN_SEEDS = 1_000_003
"""Between the seeds of two replicas or stages whose modules draw numbers of their own: more than most trainings have steps."""


def main() -> None:
    """Train; end with 2 where plan, module and ranks do not go together, and with 75 for all that another start may not meet."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        engine, plan = read_engine(os.environ.get("PLAN_FILE", ""))
        train_by_plan(engine, plan)
        _leave_group()
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(_EXIT_MISTAKE) from None
    except Exception:  # noqa: BLE001 - of the user's code, or of a collective that lost a rank: they look alike
        traceback.print_exc()
        raise SystemExit(_EXIT_RETRY) from None


def train_by_plan(engine: EngineSettings, plan: ExecutionPlan) -> DistributedTraining:
    """Train to the last step, from the newest checkpoint on; return the training.

    Raises:
        InputError: a function is missing or returns what cannot be trained, or the plan does not fit.
        SystemExit: with 143 after SIGTERM, as of `DistributedTraining.step`.

    """
    with section("init"):
        functions = load_functions(engine)
        seed_generators(engine.seed)
        model = make_model(engine, functions)
        samples = make_samples(engine, functions, plan)
        aliases = _aliases(model)
        order = ResumableSampler(
            len(samples),
            batch_size=plan.global_batch,
            seed=engine.seed,
            shuffle=engine.shuffle,
            rank=0,
            world=1,  # every rank takes the whole batch, and the plan says which part it trains on
            drop_last=True,
        )
        training = distribute(
            model,
            loss=functions.loss,
            optimizer=functions.optimizer,
            example=_batch(samples, next(iter(order))),
            plan=plan,
            randomness=engine.randomness,
        )
        done = training.restore()
    total = engine.steps or (engine.epochs or 1) * len(order)
    _train(training, samples, order, engine=engine, plan=plan, total=total)
    if training.steps == done:
        report(step=done, total_steps=total)
    training.close()
    _write_output(training, aliases)
    return training


def _train(
    training: DistributedTraining,
    samples: Any,
    order: ResumableSampler,
    *,
    engine: EngineSettings,
    plan: ExecutionPlan,
    total: int,
) -> None:
    begun_at, said_at, said = training.steps, time.monotonic(), training.steps
    for chosen in _batches(order, done=training.steps, total=total):
        # samples may be drawn as they are read: the same on every rank, and after a restart
        seed_generators(engine.seed + 1 + training.steps)
        batch = _batch(samples, chosen)
        if engine.randomness == "independent":
            # tensor parallel ranks hold the same numbers, and have to draw the same
            drawing = replica_of(plan, _rank()) + plan.dp * stage_of(plan, _rank())
            seed_generators(engine.seed + 1 + training.steps + _OWN_SEEDS * (1 + drawing))
        loss = training.step(batch)
        now = time.monotonic()
        if not _is_first_of_instance() or (
            now - said_at < _REPORT_SECONDS and training.steps not in (begun_at + 1, total)
        ):
            continue
        rate = (training.steps - said) * plan.global_batch / max(now - said_at, 1e-9)
        metrics = {"loss": float(loss), "samples_per_second": rate, **_memory()}
        first = _rank() == 0
        report(
            step=training.steps,
            total_steps=total,
            epoch=training.steps / len(order),
            samples=(training.steps - begun_at) * plan.global_batch if first else None,
            metrics=metrics,
        )
        said_at, said = now, training.steps


def _batches(order: ResumableSampler, *, done: int, total: int) -> Iterator[Sequence[int]]:
    """Yield the numbers of the samples of each step that is left: they follow from its number alone."""
    per_epoch = len(order)
    cursor = {"length": order.length, "seed": order.seed, "shuffle": order.shuffle}
    while done < total:
        epoch, within = divmod(done, per_epoch)
        order.load_state_dict({**cursor, "epoch": epoch, "consumed": within * order.batch_size})
        for chosen in order:
            yield chosen
            done += 1
            if done == total:
                return


def _batch(samples: Any, numbers: Sequence[int]) -> Any:
    from torch.utils.data import default_collate

    return default_collate([samples[number] for number in numbers])


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _is_first_of_instance() -> bool:
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _memory() -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"peak_memory_bytes": float(torch.cuda.max_memory_allocated())}


def _aliases(model: Any) -> Mapping[str, str]:
    """Map each name in the state of a module to the first name of the same tensor."""
    first: dict[int, str] = {}
    for named in (model.named_parameters(), model.named_buffers()):
        for name, tensor in named:
            first.setdefault(id(tensor), name)
    state = model.state_dict(keep_vars=True)
    return {name: first[id(tensor)] for name, tensor in state.items() if id(tensor) in first}


def _write_output(training: DistributedTraining, aliases: Mapping[str, str]) -> None:
    """Write the trained weights where the job takes its output from, under the module's own names."""
    import torch

    folder = os.environ.get("TRAINING_OUTPUT_DIR")
    # every rank takes part, whoever writes; a split module may fit no device whole
    weights = training.gather(device="cpu")
    if folder and _is_first_of_instance():
        state = {name: weights[first] for name, first in aliases.items()}
        path = Path(folder) / _OUTPUT
        partial = path.with_name(f".{_OUTPUT}.partial")
        try:
            torch.save(state, partial)
            partial.replace(path)  # so that nobody takes a part of it
        finally:
            partial.unlink(missing_ok=True)


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
