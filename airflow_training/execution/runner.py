"""The program that a plan with `engine` starts on every rank: it trains functions of the user's module.

`python -m airflow_training.execution.runner` reads the plan that `PLAN_FILE` names: its `engine` says what is trained,
its `strategy` how. The module knows nothing of either.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.agent.progress import report, report_regroup, section
from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.errors import InputError
from airflow_training.execution.distributing import distribute
from airflow_training.execution.engine_settings import (
    EngineSettings,
    UserFunctions,
    load_functions,
    make_model,
    make_samples,
    read_engine,
    seed_generators,
)
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.mesh import replica_of, stage_of
from airflow_training.execution.rank_group import ElasticGroup, GroupChanged, lost_peers

if TYPE_CHECKING:
    from airflow_training.execution.rejoining import HeldState, RejoinedTraining
    from airflow_training.execution.training import DistributedTraining

__all__ = ["main", "train_by_plan", "train_with_group"]

log = logging.getLogger("airflow_training.execution")

_REPORT_SECONDS = 0.2
"""Between two lines of progress: more would tell nobody more."""
_EXIT_MISTAKE = 2
"""Exit code: the same start ends the same way."""
_EXIT_RETRY = 75
"""Exit code, EX_TEMPFAIL."""
_EXIT_STOPPED = 128 + signal.SIGTERM
_MOST_BROKEN = 5
"""How often a group may break before a step is done: more is no lost rank, but something in every step."""
_OUTPUT = "model.pt"
_OWN_SEEDS = 1_000_003
"""Between the seeds of two replicas or stages whose modules draw numbers of their own: more than most trainings have steps."""


def main() -> None:
    """Train; end with 2 where plan, module and ranks do not go together, and with 75 for all that another start may not meet."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    path = os.environ.get("PLAN_FILE", "")
    try:
        engine, plan = read_engine(path)
        group = ElasticGroup.of_environment(path)
        if group is None:
            train_by_plan(engine, plan)
            _wait_for_all()
            _leave_group()
        else:
            train_with_group(path, group)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(_EXIT_MISTAKE) from None
    except Exception:  # noqa: BLE001 - of the user's code, or of a collective that lost a rank: they look alike
        traceback.print_exc()
        raise SystemExit(_EXIT_RETRY) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTraining:
    """What is trained: made once, and given to every training that this process takes part in."""

    engine: EngineSettings
    functions: UserFunctions
    samples: Any
    global_batch: int


def train_by_plan(engine: EngineSettings, plan: ExecutionPlan) -> DistributedTraining:
    """Train to the last step, from the newest checkpoint on; return the training.

    Raises:
        InputError: a function is missing or returns what cannot be trained, or the plan does not fit.
        SystemExit: with 143 after SIGTERM, as of `DistributedTraining.step`.

    """
    with section("init"):
        user, model = _load(engine, plan)
        aliases = _aliases(model)
        order = _order(user, plan)
        training = _distribute(user, model, plan, _example(user, order))
        training.restore()
    _train(training, user, order, plan=plan)
    training.close()
    _write_output(training, aliases)
    return training


def train_with_group(path: str, group: ElasticGroup) -> DistributedTraining:
    """As `train_by_plan`, among ranks that come and go: the group is formed again, and this process stays.

    It returns when all ranks are at the end. What is no loss of a peer, and a group that breaks again and again without a
    step in between, is raised as it is.

    Args:
        path: the plan's file, read again for each group.
        group: of this process.

    """
    member = _Member(path=path, group=group)
    while True:
        training = member.take_part()
        if training is not None:
            _leave_group()
            return training
        group.leave()
        gc.collect()  # what was trained goes before it is made again


@dataclass(slots=True, kw_only=True)
class _Member:
    """This process, as long as it trains with any ranks."""

    path: str
    group: ElasticGroup
    user: UserTraining | None = None
    held: HeldState | None = None
    """What it kept of the training before."""
    since: int | None = None
    """Steps that were done when it began to train."""
    broken_at: float = 0.0
    """When it lost the group before, or the first of those that came to no step."""
    broken: int = 0
    """How many these are."""

    def take_part(self) -> DistributedTraining | None:
        """Train with the ranks of now to the end; None: they have changed, and nothing here holds their group any more."""
        training: DistributedTraining | None = None
        rejoined: RejoinedTraining | None = None
        try:
            with section("init"):
                training, aliases, order = self._make()
                rejoined = training.rejoin(self.held)
            self.since = rejoined.step if self.since is None else min(self.since, rejoined.step)
            self._train(training, order, rejoined)
            training.close()
            _write_output(training, aliases)
            _wait_for_all()  # who is lost before needs the others once more
        except (RuntimeError, GroupChanged) as error:
            if self.held is not None and self.held.saver.stopping:
                raise SystemExit(_EXIT_STOPPED) from None
            advanced = (
                training is not None and rejoined is not None and training.steps > rejoined.step
            )
            if advanced or not self.broken:
                self.broken, self.broken_at = 0, time.monotonic()
            self.broken += 1
            if not lost_peers(error) or self.broken > _MOST_BROKEN:
                raise
            log.warning("the group of ranks has changed: %s", _short(error))
            if training is not None and rejoined is not None:
                self.held = training.hold()  # else what was held is still the newest
            return None
        return training

    def _make(self) -> tuple[DistributedTraining, Mapping[str, str], ResumableSampler]:
        while True:
            self.group.follow()
            engine, plan = read_engine(self.path)
            if not self.group.is_revised():  # both were read of the same file
                break
        if self.user is None:
            self.user, model = _load(engine, plan)
        else:
            check_same_training(self.user, engine, plan)
            seed_generators(engine.seed)
            model = make_model(engine, self.user.functions)
        aliases, order = _aliases(model), _order(self.user, plan)
        example = _example(self.user, order)
        self.group.form(given_up=lambda: self.held is not None and self.held.saver.stopping)
        try:
            return _distribute(self.user, model, plan, example), aliases, order
        finally:
            self.group.formed()

    def _train(
        self, training: DistributedTraining, order: ResumableSampler, how: RejoinedTraining
    ) -> None:
        if self.user is None or training.plan is None:
            raise ValueError("nothing was made to train")
        told = _Regrouped(
            how, since=self.broken_at, ranks=training.plan.devices, revision=self.group.revision
        )
        plan = training.plan
        _train(
            training, self.user, order, plan=plan, group=self.group, since=self.since, first=told
        )


@dataclass(frozen=True, slots=True)
class _Regrouped:
    """How ranks came to go on, told once the first step after it is done."""

    how: RejoinedTraining
    since: float = field(kw_only=True)
    """When this rank lost the group before."""
    ranks: int = field(kw_only=True)
    revision: int = field(kw_only=True)

    def tell(self) -> None:
        """Say what it cost."""
        if not self.how.tells:
            return
        seconds = time.monotonic() - self.since
        ranks = ", ".join(map(str, self.how.sources))
        source = f"rank{'s' * (len(self.how.sources) > 1)} {ranks}" if ranks else "checkpoint"
        log.info(
            "%d ranks went on after step %d from %s: %d steps lost, %.2f s to the first new step",
            self.ranks,
            self.how.step,
            source,
            self.how.lost_steps,
            seconds,
        )
        report_regroup(
            ranks=self.ranks,
            step=self.how.step,
            source=source,
            lost_steps=self.how.lost_steps,
            seconds=seconds,
            revision=self.revision,
            moved_bytes=self.how.moved_bytes,
        )


def check_same_training(user: UserTraining, engine: EngineSettings, plan: ExecutionPlan) -> None:
    """Check that a plan that was revised while its ranks train trains the same: steps count samples, and these functions are loaded.

    Raises:
        InputError: `engine` or `strategy.global_batch` is another one.

    """
    now = {"engine": engine, "strategy.global_batch": plan.global_batch}
    before = {"engine": user.engine, "strategy.global_batch": user.global_batch}
    for field_name, value in now.items():
        if value != before[field_name]:
            raise InputError.of(
                code="BadPlan",
                field=field_name,
                message=f"a revision of a plan trains the same, and this was {before[field_name]}",
                value=str(value),
                hint="revise the split alone, or begin a new job attempt",
            )


def _load(engine: EngineSettings, plan: ExecutionPlan) -> tuple[UserTraining, Any]:
    """Call the user's functions; return what is trained, and the model."""
    functions = load_functions(engine)
    seed_generators(engine.seed)
    model = make_model(engine, functions)
    samples = make_samples(engine, functions, plan)
    user = UserTraining(
        engine=engine, functions=functions, samples=samples, global_batch=plan.global_batch
    )
    return user, model


def _order(user: UserTraining, plan: ExecutionPlan) -> ResumableSampler:
    return ResumableSampler(
        len(user.samples),
        batch_size=plan.global_batch,
        seed=user.engine.seed,
        shuffle=user.engine.shuffle,
        rank=0,
        world=1,  # every rank takes the whole batch, and the plan says which part it trains on
        drop_last=True,
    )


def _example(user: UserTraining, order: ResumableSampler) -> Any:
    return _batch(user.samples, next(iter(order)))


def _distribute(
    user: UserTraining, model: Any, plan: ExecutionPlan, example: Any
) -> DistributedTraining:
    # the same on a rank that stays, which calls fewer functions of the user, as on one that begins
    seed_generators(user.engine.seed)
    return distribute(
        model,
        loss=user.functions.loss,
        optimizer=user.functions.optimizer,
        example=example,
        plan=plan,
        randomness=user.engine.randomness,
        rebalance=user.engine.rebalance,
    )


def _train(
    training: DistributedTraining,
    user: UserTraining,
    order: ResumableSampler,
    *,
    plan: ExecutionPlan,
    group: ElasticGroup | None = None,
    since: int | None = None,
    first: _Regrouped | None = None,
) -> None:
    """Make the steps that are left; `since`: those that were done when this process began to train.

    Raises:
        GroupChanged: the plan has a newer revision; the last step is done.

    """
    engine, samples = user.engine, user.samples
    total = engine.steps or (engine.epochs or 1) * len(order)
    begun_at, said_at, said = training.steps, time.monotonic(), training.steps
    since = begun_at if since is None else since
    if begun_at >= total:
        report(step=begun_at, total_steps=total)
    for chosen in _batches(order, done=training.steps, total=total):
        if group is not None and group.is_revised():
            raise GroupChanged("the plan has a newer revision")
        # samples may be drawn as they are read: the same on every rank, and after a restart
        seed_generators(engine.seed + 1 + training.steps)
        batch = _batch(samples, chosen)
        if engine.randomness == "independent":
            # tensor parallel ranks hold the same numbers, and have to draw the same
            drawing = replica_of(plan, _rank()) + plan.dp * stage_of(plan, _rank())
            seed_generators(engine.seed + 1 + training.steps + _OWN_SEEDS * (1 + drawing))
        loss = training.step(batch)
        now = time.monotonic()
        if first is not None:
            first.tell()
            first = None
        if not _is_first_of_instance() or (
            now - said_at < _REPORT_SECONDS and training.steps not in (begun_at + 1, total)
        ):
            continue
        rate = (training.steps - said) * plan.global_batch / max(now - said_at, 1e-9)
        metrics = {"loss": float(loss), "samples_per_second": rate, **_memory()}
        report(
            step=training.steps,
            total_steps=total,
            epoch=training.steps / len(order),
            samples=(training.steps - since) * plan.global_batch if _rank() == 0 else None,
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


def _wait_for_all() -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _short(error: BaseException) -> str:
    """Return the first line of an error: gloo and NCCL add where in their source it was."""
    return (str(error) or type(error).__name__).splitlines()[0]


if __name__ == "__main__":
    main()
