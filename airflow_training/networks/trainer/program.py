"""The program that a job with `spec.trainer` starts on every rank."""

from __future__ import annotations

import inspect
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from airflow_training.networks.trainer.addresses import SampleFile, find_files
from airflow_training.networks.trainer.group import TrainerGroup, form_group
from airflow_training.networks.trainer.loop import NetworkTraining
from airflow_training.networks.trainer.mistakes import (
    EXIT_LOST,
    EXIT_MISTAKE,
    TrainerError,
    public_address,
)
from airflow_training.networks.trainer.nets import batch_of, load_nets, unused_parameters
from airflow_training.networks.trainer.reading import SUFFIXES, ShareReader, digest_of, recipe_of
from airflow_training.networks.trainer.results import ModelFacts, write_model
from airflow_training.networks.trainer.sample_data import SCHEME, write_sample
from airflow_training.networks.trainer.samples import Samples, blank
from airflow_training.networks.trainer.session import is_alone, open_checkpoint, restore, section
from airflow_training.networks.trainer.settings import TrainerSettings, read_settings
from airflow_training.networks.trainer.share_memory import (
    check_share,
    data_limit,
    held_bytes,
    may_grow,
    memory_limit,
    ranks_here,
)
from airflow_training.networks.trainer.shares import ShareOrder
from airflow_training.networks.trainer.updates import DataParallelUpdates, Updates

if TYPE_CHECKING:
    import torch

    from airflow_training.networks.trainer.planned import Split

__all__ = ["main", "train_network"]

_EXAMPLE = 64
"""Samples that show whether a network can be split: no more than a message between ranks may hold."""
_CANNOT_TRAIN = "airflow-training: cannot train"
"""What begins the line of a mistake, by which the cause `trainer-input` knows it."""


def main(settings: TrainerSettings | None = None) -> None:
    """Train, as `TRAINER_FILE` says without settings; end with 2 for a mistake of the user, and 75 where a peer was lost."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    try:
        train_network(settings or read_settings())
    except TrainerError as error:
        begin = "error" if is_alone() else _CANNOT_TRAIN
        sys.stderr.write(f"{begin}: {error}\n")
        sys.stderr.flush()
        os._exit(
            EXIT_MISTAKE
        )  # peers may still wait in a collective, whose threads would hold this process
    except (
        OSError
    ) as error:  # a storage that does not answer, a full disk: another start may not meet it
        traceback.print_exc()
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(EXIT_LOST)
    except Exception:  # noqa: BLE001 - whatever it is, its peers cannot go on without it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(EXIT_LOST if world > 1 else 1)


def train_network(settings: TrainerSettings, environment: Mapping[str, str] = os.environ) -> None:
    """Train on all ranks from the newest checkpoint on, and write the model.

    Raises:
        TrainerError: data, settings or starting model are wrong; on all ranks the same.
    """
    import torch

    if settings.threads:
        torch.set_num_threads(settings.threads)
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(settings.seed)
    group = form_group(environment)
    with tempfile.TemporaryDirectory() as scratch:
        with section("init"):
            training, start = _prepare(settings, group, environment, scratch)
        training.run(start)
    _write(training, environment)
    group.leave()


def _prepare(
    settings: TrainerSettings, group: TrainerGroup, environment: Mapping[str, str], scratch: str
) -> tuple[NetworkTraining, int]:
    split = _split(settings, group, environment)
    share, shares = (split.replica, split.plan.dp) if split else (group.rank, group.world)
    if environment.get("TRAINING_DATA_URI", "").startswith(SCHEME):
        _raise_first(group, _make_sample(environment["TRAINING_DATA_URI"], scratch))
        files, tests = _files(
            settings, environment, scratch
        )  # each rank has its own, of equal bytes
    else:
        files, tests = _agree(group, lambda: _files(settings, environment, scratch))
    reader = ShareReader(files, settings)
    settings = reader.settings
    samples, held = _read(
        group, reader, ShareReader(tests, settings) if tests else None, share=share, shares=shares
    )
    told = dict(group.gather((share, len(samples))))
    counts = [int(told[each]) for each in range(shares)]
    if not sum(counts):
        raise TrainerError(files[0].name, "holds no sample", "see trainer.data and data.files")
    order = ShareOrder(
        rank=share,
        batch_size=split.batch_size if split else settings.batch_size,
        seed=settings.seed,
        shuffle=settings.shuffle,
        files=digest_of(files),
        recipe=recipe_of(settings),
    )
    updates: Updates
    if split:
        from airflow_training.networks.trainer.planned import split_network

        updates, checkpoint = split_network(
            split,
            settings=settings,
            group=group,
            nets=load_nets(settings),
            optimizer=lambda parameters: _optimizer(settings, parameters),
            order=order,
            example=_example(group, samples, share=share, counts=counts),
        )
    else:
        updates, checkpoint = _data_parallel(settings, group, order)
    start = restore(checkpoint)
    for each in updates.optimizer.param_groups:
        each.update(settings.optimizer_options)  # of the job, not of the checkpoint
    initial = environment.get("TRAINING_INITIAL_MODEL_URI", "")
    if initial and start == 0:
        misfits = updates.load_weights(initial)
        if misfits and group.rank == 0:
            names = ", ".join(misfits[:8])
            sys.stderr.write(
                f"{public_address(initial)} has nothing for {names}: these begin at random\n"
            )
    training = NetworkTraining(
        settings=settings,
        group=group,
        reader=reader,
        updates=updates,
        order=order,
        checkpoint=checkpoint,
        samples=samples,
        counts=counts,
        tests=held,
    )
    return training, start


def _split(
    settings: TrainerSettings, group: TrainerGroup, environment: Mapping[str, str]
) -> Split | None:
    """Return how the job's plan splits the network; None where each process has all of it."""
    if not settings.by_plan or is_alone():
        return None
    from airflow_training.networks.trainer.planned import read_split

    return read_split(group, environment)


def _example(
    group: TrainerGroup, samples: Samples, *, share: int, counts: Sequence[int]
) -> Samples:
    """Return some samples, the same on all ranks: the first of a share that has any."""
    owner = next(each for each, count in enumerate(counts) if count)
    some = samples.take(numpy.arange(min(len(samples), _EXAMPLE))) if share == owner else None
    told: list[Samples | None] = group.gather(some)
    return next(each for each in told if each is not None)


def _data_parallel(
    settings: TrainerSettings, group: TrainerGroup, order: ShareOrder
) -> tuple[Updates, Any]:
    """Return what trains the whole network in each process, and its checkpoints."""
    import torch

    net, test_net = load_nets(settings)
    net.to(group.device)
    net.train()
    unused = any(
        group.gather(
            unused_parameters(
                net, batch_of(blank(settings), settings.train_inputs, settings, group.device)
            )
        )
    )
    model: torch.nn.Module = net
    if group.world > 1:
        model = _distributed(net, unused=unused)
    torch.manual_seed(settings.seed + 1 + group.rank)  # one dropout for each rank
    optimizer = _optimizer(settings, net.parameters())
    updates = DataParallelUpdates(
        settings=settings,
        group=group,
        net=net,
        test_net=test_net,
        model=model,
        optimizer=optimizer,
    )
    return updates, open_checkpoint(model, optimizer, order)


def _distributed(net: torch.nn.Module, *, unused: bool) -> torch.nn.Module:
    """Return the net with its peers; its buffers are spread by the loop, once for an update."""
    from torch.nn.parallel import DistributedDataParallel

    known = inspect.signature(DistributedDataParallel).parameters
    key = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: Mapping[str, Any] = {key: False, "find_unused_parameters": unused}
    return DistributedDataParallel(net, **options)


def _files(
    settings: TrainerSettings, environment: Mapping[str, str], scratch: str
) -> tuple[list[SampleFile], list[SampleFile]]:
    root = environment.get("TRAINING_DATA_URI", "")
    names = settings.data.files
    if root.startswith(SCHEME):
        root = f"{scratch}/sample"
    suffixes = SUFFIXES[settings.data.format]
    tests = find_files(root, settings.data.test, suffixes) if settings.data.test else []
    known = {each.address for each in tests}
    if not (root or names):
        raise TrainerError(
            "data", "says no files", "name them in spec.data.uri and spec.data.files"
        )
    found = find_files(root, names, suffixes)
    return (found if names else [each for each in found if each.address not in known]), tests


def _read(
    group: TrainerGroup, reader: ShareReader, tests: ShareReader | None, *, share: int, shares: int
) -> tuple[Samples, Samples | None]:
    """Return the samples of a share, and this rank's of the test; a mistake in one part ends all ranks, with its words."""
    samples: Samples | None = None
    held: Samples | None = None
    mistake: TrainerError | None = None
    here = ranks_here(group.rank, group.world)
    limit, own = may_grow(memory_limit()), may_grow(data_limit())
    parts = ((reader, share, shares), (tests, group.rank, group.world))
    estimates = [
        group.gather(held_bytes(each, number, count) if each else 0)
        for each, number, count in parts
    ]
    try:
        for (each, number, count), takes in zip(parts, estimates, strict=True):
            if each is not None:
                near = {rank: takes[rank] for rank in here}
                check_share(
                    each, group.rank, count, share=number, held=near, limit=limit, own_limit=own
                )
        samples = reader.read(share, shares)
        held = tests.read(group.rank, group.world) if tests else None
    except TrainerError as error:
        mistake = error
    _raise_first(group, mistake)
    assert samples is not None  # noqa: S101 - tells mypy
    return samples, held


def _make_sample(root: str, scratch: str) -> TrainerError | None:
    """Write the sample that an address asks for; return what keeps it from that."""
    try:
        write_sample(root.removeprefix(SCHEME), Path(scratch) / "sample")
    except TrainerError as error:
        return error
    return None


def _agree(group: TrainerGroup, ask: Any) -> Any:
    """Return what rank 0 finds, so that all ranks go by the same."""
    answer, mistake = None, None
    if group.rank == 0:
        try:
            answer = ask()
        except TrainerError as error:
            mistake = error
    _raise_first(group, mistake)
    return group.gather(answer)[0]


def _raise_first(group: TrainerGroup, mistake: TrainerError | None) -> None:
    for told in group.gather(mistake):
        if told is not None:
            raise told


def _optimizer(
    settings: TrainerSettings, parameters: Iterable[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    import torch

    kind = getattr(torch.optim, settings.optimizer)
    made: torch.optim.Optimizer = kind(parameters, **settings.optimizer_options)
    return made


def _write(training: NetworkTraining, environment: Mapping[str, str]) -> None:
    folder = environment.get("TRAINING_OUTPUT_DIR")
    net, _ = training.updates.whole_nets()  # every rank takes part, whoever writes
    if not folder or not training.group.first_of_instance:
        return
    facts = ModelFacts(
        parameters=sum(each.numel() for each in net.parameters()),
        epochs=training.settings.epochs,
        steps=training.step,
        ranks=training.group.world,
        split=training.updates.split,
        samples=sum(training.counts),
        tested=training.tested,
        metrics=training.metrics,
        files=[each.name for each in training.reader.files],
        initial_model=environment.get("TRAINING_INITIAL_MODEL_URI", ""),
    )
    write_model(Path(folder), net, training.settings, facts)
