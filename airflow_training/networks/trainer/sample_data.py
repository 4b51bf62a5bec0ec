"""Small data to try a network on: `data.uri: sample://ranking` makes it where the training runs.

The same numbers everywhere, so that all ranks have the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy

from airflow_training.networks.trainer.mistakes import TrainerError

__all__ = ["SAMPLES", "SCHEME", "write_sample"]

SCHEME = "sample://"
Array = numpy.ndarray[Any, Any]


def write_sample(name: str, folder: Path) -> None:
    """Write the files of a sample into a folder; raises TrainerError for a name that there is not."""
    if name not in SAMPLES:
        fix = f"samples are {', '.join(SAMPLES)}; data of yours has an address of its own"
        raise TrainerError(f"{SCHEME}{name}", "is no sample", fix)
    folder.mkdir(parents=True, exist_ok=True)
    SAMPLES[name](folder)


def _generator(seed: int) -> Any:
    # the legacy generator: its numbers never change between versions of numpy
    return numpy.random.RandomState(seed)


def _digits(folder: Path) -> None:
    """1,797 grey images of 8 by 8, those of scikit-learn: a fifth of them to test on."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        fix = "add scikit-learn to the environment, or give data of your own"
        raise TrainerError("sample://digits", "scikit-learn brings these images", fix) from None
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(numpy.float32).reshape(-1, 1, 8, 8)
    order = _generator(0).permutation(len(labels))
    test, *train = numpy.array_split(order, 5)
    for file, rows in {
        "test": test,
        **{f"train-{n}": each for n, each in enumerate(train)},
    }.items():
        numpy.savez(folder / f"{file}.npz", image=images[rows], label=labels[rows])


def _customers(folder: Path) -> None:
    """Rows of six numbers and a class, which follows from them by rules that no line divides."""
    draw = _generator(1)
    names = ("age", "income", "visits", "basket", "distance", "months")
    for file, rows in {"train-0": 1500, "train-1": 900, "train-2": 600, "test": 800}.items():
        values = draw.rand(rows, 6)
        age, income, visits, basket, distance, months = values.T
        worth = numpy.sin(5 * age) * income + visits * basket * 2 - numpy.abs(distance - months)
        kinds = numpy.array(["bronze", "silver", "gold"])[numpy.digitize(worth, (0.1, 0.7))]
        shown = values * (60, 90_000, 40, 200, 30, 120) + (18, 8_000, 0, 5, 0, 1)
        lines = [",".join((*names, "kind"))]
        lines += [
            ",".join((*(f"{each:.2f}" for each in row), kind))
            for row, kind in zip(shown, kinds, strict=True)
        ]
        (folder / f"{file}.csv").write_text("\n".join(lines) + "\n")


def _ranking(folder: Path) -> None:
    """Queries with 10 to 40 documents of 12 numbers, graded 0 to 4, in the form of LETOR."""
    draw = _generator(2)
    query = 0
    for file, lists in {"train-0": 90, "train-1": 60, "train-2": 50, "test": 60}.items():
        lines = []
        for _ in range(lists):
            query += 1
            values = draw.rand(draw.randint(10, 41), 12)
            fits = numpy.sin(6 * values[:, 0]) * values[:, 1] - 4 * (values[:, 4] - 0.5) ** 2
            fits += 0.8 * (values[:, 2] > values[:, 3]) + 0.3 * values[:, 5]
            fits += 0.1 * draw.standard_normal(len(values))
            grades = numpy.digitize(fits, numpy.quantile(fits, (0.5, 0.75, 0.88, 0.96)))
            lines += [
                f"{grade} qid:{query} "
                + " ".join(f"{place}:{value:.4f}" for place, value in enumerate(row, 1))
                for grade, row in zip(grades, values, strict=True)
            ]
        (folder / f"{file}.libsvm").write_text("\n".join(lines) + "\n")


def _sentences(folder: Path) -> None:
    """Sentences of a small grammar, one after the other."""
    draw = _generator(3)
    who = ("the model", "a worker", "the master", "one rank", "every node", "the store")
    does = ("reads", "writes", "sends", "keeps", "counts", "waits for")
    what = ("the files", "a batch", "all gradients", "its weights", "the next step", "a checkpoint")
    when = ("at once", "in order", "each epoch", "after a pause", "while others train")
    for file, count in {"train-0": 1200, "train-1": 800, "test": 300}.items():
        sentences = [
            " ".join(part[draw.randint(len(part))] for part in (who, does, what, when))
            for _ in range(count)
        ]
        (folder / f"{file}.txt").write_text(". ".join(sentences) + ".\n")


SAMPLES: Mapping[str, Callable[[Path], None]] = {
    "digits": _digits,
    "customers": _customers,
    "ranking": _ranking,
    "sentences": _sentences,
}
"""Name -> what writes it."""
