"""What a training leaves: predictions while it runs, and at its end the model with its networks and a card."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from airflow_training.networks.trainer.evaluating import Evaluation
from airflow_training.networks.trainer.mistakes import public_address
from airflow_training.networks.trainer.nets import WEIGHTS
from airflow_training.networks.trainer.settings import TrainerSettings

if TYPE_CHECKING:
    import torch

__all__ = ["ModelFacts", "card_text", "prediction_rows", "write_model", "write_predictions"]

_MOST_ROWS = 20_000
"""Of a file of predictions."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a card says of how a model came to be."""

    parameters: int
    epochs: int
    steps: int
    ranks: int
    split: str
    """Over ranks, in words; empty: each has the whole network."""
    samples: int
    """In an epoch."""
    tested: int
    metrics: Mapping[str, float]
    """Of the last test."""
    files: Sequence[str]
    initial_model: str


def prediction_rows(found: Evaluation, settings: TrainerSettings) -> list[dict[str, Any]]:
    """Return a row for each thing that is predicted: `label` and `prediction`, of lists their query too."""
    judged = settings.metrics[0] if settings.metrics else None
    scores_of = judged.scores if judged else next(iter(settings.outputs), "")
    labels_of = judged.labels if judged else next((each.name for each in settings.labels), "")
    scores = found.outputs.get(scores_of)
    labels = found.tested.arrays.get(labels_of)
    if scores is None or labels is None or not len(scores):
        return []
    classes = settings.data.classes
    if labels.dtype == numpy.int64 and scores.ndim == labels.ndim + 1:
        pairs = zip(labels.ravel(), scores.argmax(1).ravel(), strict=True)
        return [
            {"label": _class(label, classes), "prediction": _class(guess, classes)}
            for label, guess in pairs
        ][:_MOST_ROWS]
    lengths, queries = found.tested.lengths, found.tested.queries
    if lengths is None or queries is None:
        pairs = zip(labels.ravel(), scores.ravel(), strict=False)
        return [{"label": float(label), "prediction": float(guess)} for label, guess in pairs][
            :_MOST_ROWS
        ]
    return [
        {
            "query": found.tested.names[queries[row]],
            "label": float(labels[row, place]),
            "prediction": float(scores[row, place]),
        }
        for row in range(len(scores))
        for place in range(lengths[row])
    ][:_MOST_ROWS]


def write_predictions(folder: Path, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as the file of a step; it is there as a whole or not at all."""
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _replace(folder / f"step-{step:06d}.csv", text.getvalue().encode())


def write_model(
    folder: Path, net: torch.nn.Module, settings: TrainerSettings, facts: ModelFacts
) -> None:
    """Write weights, both nets as source, the network and a card; the weights are the training net's."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().clone() for name, value in net.state_dict().items()}
    try:
        from safetensors.torch import save

        name, content = WEIGHTS[0], save(state)
    except ImportError:
        name, held = WEIGHTS[1], io.BytesIO()
        torch.save(state, held)
        content = held.getvalue()
    _replace(folder / "net.py", settings.module.encode())
    _replace(folder / "network.yaml", settings.document["networkText"].encode())
    _replace(folder / name, content)
    _replace(folder / "README.md", card_text(settings, facts, weights=name).encode())


def card_text(settings: TrainerSettings, facts: ModelFacts, *, weights: str) -> str:
    """Return a model card: what it is, how it was trained, how good it was, how it is loaded."""
    metadata: Mapping[str, Any] = settings.network["metadata"]
    name = metadata["name"]
    options = ", ".join(f"{key} {value:g}" for key, value in settings.optimizer_options.items())
    first = f"{', '.join(map(public_address, facts.files[:10]))}{', ...' if len(facts.files) > 10 else ''}"
    load = (
        f'from safetensors.torch import load_file\nstate = load_file("{weights}")'
        if weights.endswith(".safetensors")
        else f'import torch\nstate = torch.load("{weights}", weights_only=True)'
    )
    rows = [
        ("network", f"{name}, `network.yaml`, digest `{settings.network_digest}`"),
        ("parameters", f"{facts.parameters:,}"),
        ("takes", _shapes(settings)),
        ("gives", ", ".join(settings.outputs)),
        (
            "data",
            f"{len(facts.files)} files ({settings.data.format}), {facts.samples:,} samples: {first}",
        ),
        ("classes", ", ".join(settings.data.classes[:100])),
        ("training", f"{facts.epochs} epochs, {facts.steps:,} updates, {facts.ranks} processes"),
        ("split", facts.split),
        (
            "batch",
            f"{settings.batch_size} of all processes"
            if facts.split
            else f"{settings.batch_size} in each process, an update every {settings.update_interval}",
        ),
        ("optimizer", f"{settings.optimizer}, {options}"),
        ("seed", str(settings.seed)),
        ("started from", public_address(facts.initial_model)),
    ]
    table = "\n".join(f"| {key} | {value} |" for key, value in rows if value)
    metrics = "\n".join(f"| {key} | {value:.4f} |" for key, value in facts.metrics.items())
    tested = (
        f"\n## Test\n\n{facts.tested:,} samples that were not trained on.\n\n| metric | value |\n|---|---|\n{metrics}\n"
        if metrics
        else "\nIt was not tested: the job named no test files.\n"
    )
    return (
        f"# {name}\n\n{metadata.get('description') or 'A network of layers.'}\n\n"
        f"| | |\n|---|---|\n{table}\n{tested}\n## Use\n\n```python\n{load}\nfrom net import TestNet\n\n"
        f"net = TestNet()\nnet.load_state_dict(state, strict=False)\n```\n"
    )


def _shapes(settings: TrainerSettings) -> str:
    return ", ".join(f"{each.name} {list(each.shape)} {each.dtype}" for each in settings.features)


def _class(number: Any, classes: Sequence[str]) -> Any:
    place = int(number)
    return classes[place] if 0 <= place < len(classes) else place


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.tmp")
    partial.write_bytes(content)
    partial.replace(path)
