"""The test of an epoch: metrics over all ranks, and what the net predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from airflow_training.networks.trainer.group import TrainerGroup
from airflow_training.networks.trainer.metrics import auc, ndcg_of_lists
from airflow_training.networks.trainer.nets import batch_of
from airflow_training.networks.trainer.samples import Samples
from airflow_training.networks.trainer.settings import MetricLayer, TrainerSettings

if TYPE_CHECKING:
    import torch

__all__ = ["Evaluation", "evaluate"]

Array = numpy.ndarray[Any, Any]
_KEPT_ROWS = 5000
"""Of predictions, by each rank."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a test showed."""

    metrics: dict[str, float]
    """Over all ranks."""
    samples: int
    """Of all ranks."""
    outputs: dict[str, Array]
    """Of the first of this rank's samples; by output."""
    tested: Samples
    """Those samples."""


def evaluate(
    train: torch.nn.Module,
    test: torch.nn.Module,
    samples: Samples,
    *,
    settings: TrainerSettings,
    group: TrainerGroup,
) -> Evaluation:
    """Return metrics over the test samples of all ranks, which all call it; the nets share their weights.

    Accuracy, AUC and NDCG are exact: what one process with all samples would find. A metric of another type
    is the mean over batches, weighted by their samples. `test_loss` is that of the training net, in evaluation mode.
    """
    import torch

    train.to(group.device)
    test.share(train)  # type: ignore[operator]  # a method of every generated test net
    test.to(group.device)
    was = train.training
    train.eval()
    kept: dict[str, list[Array]] = {}
    means: dict[str, float] = dict.fromkeys([each.name for each in settings.metrics], 0.0)
    loss = 0.0
    has_labels = {*settings.train_inputs} <= {*samples.arrays}
    with torch.no_grad():
        for start in range(0, len(samples), settings.batch_size):
            chosen = samples.take(
                numpy.arange(start, min(start + settings.batch_size, len(samples)))
            )
            found = test(*batch_of(chosen, settings.test_inputs, settings, group.device))
            for name in settings.outputs:
                kept.setdefault(name, []).append(found[name].cpu().numpy())
            for name in means:
                means[name] += float(found[name]) * len(chosen)
            if has_labels:
                inputs = batch_of(chosen, settings.train_inputs, settings, group.device)
                loss += float(train(*inputs)["loss"]) * len(chosen)
    train.train(was)
    outputs = {name: numpy.concatenate(each) for name, each in kept.items()}
    total, loss, *sums = group.sum(len(samples), loss, *means.values())
    metrics = {
        layer.name: _exact(layer, outputs, samples, group, mean=each / max(total, 1))
        for layer, each in zip(settings.metrics, sums, strict=True)
    }
    if has_labels:
        metrics["test_loss"] = loss / max(total, 1)
    first = numpy.arange(min(len(samples), _KEPT_ROWS))
    return Evaluation(
        metrics=metrics,
        samples=int(total),
        outputs={name: each[first] for name, each in outputs.items()},
        tested=samples.take(first),
    )


def _exact(
    layer: MetricLayer,
    outputs: dict[str, Array],
    samples: Samples,
    group: TrainerGroup,
    *,
    mean: float,
) -> float:
    # a rank without samples has no outputs, and takes part in the sums all the same
    scores = outputs.get(layer.scores, numpy.zeros((0, 1), numpy.float32))
    labels = samples.arrays[layer.labels]
    if layer.type == "Accuracy":
        right = (scores.argmax(1) == labels).sum() if len(samples) else 0
        hits, count = group.sum(float(right), float(labels.size))
        return hits / max(count, 1)
    if layer.type == "AUC":
        told = group.gather((scores.ravel(), labels.ravel() > 0))
        return auc(
            numpy.concatenate([each[0] for each in told]),
            numpy.concatenate([each[1] for each in told]),
        )
    if layer.type == "NDCG":
        rows = numpy.arange(len(samples))
        lengths = samples.lengths
        if lengths is None:
            lengths = numpy.full(len(samples), labels.shape[-1] if labels.ndim > 1 else 1)
        queries = rows if samples.queries is None else samples.queries
        lists = ndcg_of_lists(scores, labels, lengths, queries, layer.k)
        found, count = group.sum(sum(lists), float(len(lists)))
        return found / max(count, 1)
    return mean
