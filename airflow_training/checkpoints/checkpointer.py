"""`Checkpointer`: a PyTorch training loop that goes on where it broke.

ckpt = Checkpointer(model=model, optimizer=opt, scheduler=sched, data=sampler)
start = ckpt.restore()            # 0 when there is nothing
for step in range(start, total):
    ...
    ckpt.step(step)               # saves when due; ends the process after SIGTERM
ckpt.close()                      # saves the last step, and waits
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow_training.checkpoints import resharding, torch_state, tree
from airflow_training.checkpoints.agreement import Agreement
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.saver import ResumePoint, Saver
from airflow_training.checkpoints.torch_state import NOT_GIVEN, TrainingObjects

if TYPE_CHECKING:
    from airflow_training.checkpoints.torch_boundary import Boundary

__all__ = ["Checkpointer", "distributed"]

log = logging.getLogger("airflow_training.checkpoints")


class Checkpointer:
    """Saves and restores all that a training step depends on.

    The random numbers of Python, numpy, torch and its devices always belong to it. Without a job that has
    `checkpoint`, and without `root`, all of it does nothing and `restore` returns 0.
    """

    def __init__(
        self,
        *,
        model: Any = NOT_GIVEN,
        optimizer: Any = NOT_GIVEN,
        scheduler: Any = NOT_GIVEN,
        scaler: Any = NOT_GIVEN,
        data: Any = NOT_GIVEN,
        ema: Any = NOT_GIVEN,
        extra: MutableMapping[str, Any] | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        root: str | os.PathLike[str] | None = None,
        every: Any = None,
        allow_pickle: bool = False,
    ) -> None:
        """Take what is to be saved; each part is an object, or a list or dict of several.

        Args:
            model: plain, in DistributedDataParallel, compiled, or sharded with `fully_shard`.
            optimizer: of torch, or anything with `state_dict` and `load_state_dict`, as all that follow.
            scheduler: learning-rate schedule.
            scaler: gradient scaler of mixed precision.
            data: `ResumableSampler`, or a stateful data loader.
            ema: averaged weights.
            extra: a dict that is updated in place by `restore`: values, such objects, random generators.
            files: paths whose content is saved and put back.
            root: folder or address to save to, where no job says one.
            every: `{"steps": n}`, `{"seconds": s}` or `"auto"`, where no job says it.
            allow_pickle: pickle what has no other form. Whoever can write to the store can then run code here.
        """
        self._parts = TrainingObjects(
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            scaler=scaler,
            data=data,
            ema=ema,
            extra={} if extra is None else extra,
            files=files,
        )
        self._allow_pickle = allow_pickle
        self._boundary: Boundary | None = None
        """Only for those who rejoin: it costs a little at every step."""
        place, agreement = distributed()
        self._saver = Saver(
            root=root,
            every=every,
            place=place,
            agreement=agreement,
            pinned=_on_device(self._parts),
            allow_pickle=allow_pickle,
        )
        self._told_missing = False

    def restore(self) -> int:
        """Put back the newest checkpoint that is whole, and return the step to begin with: 0 for none.

        All ranks call it, after `torch.distributed` was set up and before the first step.

        Raises:
            CheckpointError: there is one that does not fit what was given.
            StaleGeneration: a later start of this training has taken over.
        """
        found = self._saver.restore()
        if found is None:
            return 0
        state = found.state(allow_pickle=self._allow_pickle)
        refitted = self._refit(state, found)
        torch_state.apply(self._parts, state)
        if found.mine:
            torch_state.apply_random(state["rng"])
        if not refitted and found.manifest.world == self._saver.world:
            self._compare(state)
        return found.step

    def rejoin(self) -> int:
        """As `restore`, but ranks that still hold the state keep it, and give it to those that came new.

        All ranks call it in place of `restore`, after `torch.distributed` was set up, each time it was set up: at the
        first start, and when ranks have left or come. A rank that was interrupted in a step goes back to the end of
        the step before. Where the ranks that hold a state do not all hold the same, or the newest checkpoint is newer,
        all restore the newest checkpoint. A newcomer keeps its own random numbers.

        Raises:
            CheckpointError: no rank holds a whole state, and there is no checkpoint; or `torch.distributed` is not
                set up.
            StaleGeneration: a later start of this training has taken over.
        """
        from airflow_training.checkpoints.torch_boundary import Boundary
        from airflow_training.checkpoints.torch_rejoining import rejoin_ranks

        boundary = self._boundary = self._boundary or Boundary(self._parts)
        taken = rejoin_ranks(self._parts, self._saver, boundary, allow_pickle=self._allow_pickle)
        step = taken.step
        if step is None:
            boundary.forget("it was interrupted while it restored a checkpoint")
            step = self.restore()
            if step == 0 and taken.trained:
                raise CheckpointError(
                    f"ranks {list(taken.trained)} have trained and cannot begin again, no rank holds a whole state, and"
                    " there is no checkpoint: start all processes anew"
                )
        boundary.mark(step)
        return step

    def step(self, step: int) -> None:
        """Say that `step` is done, counted from 0: the end of the loop's body, where the state is whole.

        Raises:
            SystemExit: with 143 after SIGTERM, saved before if the grace allows.
            StaleGeneration: a later start of this training has taken over.
            CheckpointError: something given has a state that cannot be saved.
        """
        if self._boundary is not None:
            self._boundary.mark(step + 1)
        self._saver.boundary(step + 1, self._capture)

    def save(self, step: int) -> Manifest | None:
        """Save now, `step` being done, and wait; None where some rank could not. All ranks call it."""
        return self._saver.save(step + 1, self._capture)

    def close(self) -> None:
        """Save the last step where it is not, and wait for it."""
        self._saver.close(self._capture)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # in the middle of a step the state is not whole: then only the save that runs is waited for
        self._saver.close(self._capture if kind is None else None)

    def _capture(self) -> dict[str, Any]:
        if not self._told_missing:
            self._told_missing = True
            if absent := torch_state.missing_arguments(self._parts):
                log.warning(
                    "not in the checkpoints (None says that there is none): %s", "; ".join(absent)
                )
        return torch_state.capture(self._parts)

    def _refit(self, state: dict[str, Any], found: ResumePoint) -> bool:
        """Bring what was split over ranks into the split of now; return whether other ranks' parts were needed."""
        wanted = resharding.fit_state(state, dict(torch_state.templates(self._parts)))
        if found.manifest.world != self._saver.world:
            unsure = resharding.find_differing_blobs(found.document, found.manifest)
            if unsure:
                raise CheckpointError(
                    f"the {found.manifest.world} ranks that saved step {found.step} held different bytes of"
                    f" {', '.join(unsure[:3])} without saying how they are split:"
                    f" go on with {found.manifest.world} ranks, not {self._saver.world}"
                )
        if wanted:
            resharding.fill_state(wanted, found.parts())
        return bool(wanted)

    def _compare(self, state: Mapping[str, Any]) -> None:
        """Warn of what did not take its state, before training goes on differently."""
        wrong = list(tree.differences(dict(state), torch_state.capture(self._parts)))
        if wrong:
            log.warning("restored, and yet different: %s", ", ".join(wrong[:10]))


def distributed() -> tuple[tuple[int, int] | None, Agreement | None]:
    """Return rank and world of torch.distributed, and an agreement over it, where it is set up."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None, None
    from airflow_training.checkpoints.torch_agreement import TorchAgreement

    return (dist.get_rank(), dist.get_world_size()), TorchAgreement()


def _on_device(parts: TrainingObjects) -> bool:
    import torch

    return torch.cuda.is_available() and any(
        tensor.device.type == "cuda" for _, tensor in torch_state.templates(parts)
    )
