"""How good the planner is: its times on measured steps by cross-validation, its search, its re-plans.

    python -m benchmarks.planner              # every figure
    python -m benchmarks.planner --write      # put the spread that estimates are given into planning/data

Rows are held out by model and by cluster, never one by one: constants are fitted anew without the fold
(on the errors made linear around the full fit), and the fold is priced by them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import FROZEN, TimeConstants
from airflow_training.planning.cost.refining import StepTiming, fit, predicted, value, with_values
from benchmarks import planner_published, planner_search, replanning
from benchmarks.fit_planner import FREE, document, errors, priors
from benchmarks.planner_rows import (
    DATA,
    Row,
    by_set,
    calibration,
    h200,
    published,
)
from benchmarks.report import rank_correlation

Array = npt.NDArray[np.float64]

_MOST_FOLDS = 8


def main() -> None:
    """Print every figure."""
    accuracy()
    planner_published.main()
    planner_search.main()
    replanning.main()


def accuracy() -> dict[str, Array]:
    """Print the tables of measured steps; return the spread that they give estimates."""
    print("\n### Measured steps against estimates\n")
    rows = calibration()
    near = _Linear(rows)
    by_model, runtime_seen = _held_out(rows, near, lambda row: row.model)
    by_cluster, _ = _held_out(rows, near, lambda row: row.cluster)
    found = {"by model": by_model, "by cluster": by_cluster}
    print(f"{'set':25} {'rows':>4} {'fitted':>8} " + "".join(f"{name:>32}" for name in found))
    fitted = errors(rows, FROZEN)
    for kind, places in by_set(rows).items():
        print(f"{kind:25} {len(places):4} {np.abs(fitted[places]).mean():8.1%} ", end="")
        print("".join(f"{_summary(error[places]):>32}" for error in found.values()))
    mixed = by_set(rows)["mixed V100 and T4"]
    seconds = np.array([rows[place].measured.step_seconds for place in mixed])
    for name, relative in {"fitted": fitted, **found}.items():
        alike = rank_correlation(seconds, seconds * (1.0 + relative[mixed]))
        print(f"rank correlation of mixed V100 and T4, {name}: {alike:.2f}")
    print("\nconfigurations that papers published, on which nothing was fitted")
    others = published()
    beyond = errors(others, FROZEN)
    for kind, places in by_set(others).items():
        worst = np.abs(beyond[places]).max()
        print(f"{kind:30} {len(places):4} {np.abs(beyond[places]).mean():8.1%} worst {worst:.1%}")
    print("\nsteps of eager PyTorch on one H200")
    single = h200()
    apart = errors(single, FROZEN)
    for kind, places in by_set(single).items():
        print(f"{kind:30} {len(places):4} {_summary(apart[places])}")
    known = np.flatnonzero(runtime_seen)
    spread = {
        "spread_known": _ends(by_model[known], [rows[place] for place in known]),
        "spread_unknown": _ends(by_cluster, rows),
    }
    for name, (low, high) in spread.items():
        print(f"{name}: measured is {low:.2f} to {high:.2f} times the estimate")
    return spread


def write(spread: Mapping[str, Array]) -> None:
    """Write the spread into the file of constants."""
    file = document()
    for name, ends in spread.items():
        file[name]["value"] = [round(float(end), 3) for end in ends]
    DATA.joinpath("constants.json").write_text(json.dumps(file, indent=2) + "\n", "utf-8")


def _summary(error: Array) -> str:
    low, high = np.quantile(error, (0.1, 0.9))
    return f"{np.abs(error).mean():.1%} (p10 {low:+.1%}, p90 {high:+.1%})"


def _ends(error: Array, rows: Sequence[Row]) -> Array:
    """Return the tenth and ninetieth percentile of measured against estimated, sets alike in weight."""
    factors = 1.0 / (1.0 + error)
    weights = np.empty(len(rows))
    for places in by_set(rows).values():
        weights[places] = 1.0 / np.sqrt(len(places))
    order = np.argsort(factors)
    share = np.cumsum(weights[order]) / weights.sum()
    return np.interp((0.1, 0.9), share, factors[order])


class _Linear:
    """Predictions around the frozen constants, linear in the logarithms of what was fitted."""

    def __init__(self, rows: Sequence[Row], step: float = 1e-3) -> None:
        self.measured = [row.measured for row in rows]
        self.names = [each.name for each in FREE]
        self.centre = np.log([value(FROZEN, name) for name in self.names])
        self.base = np.log(predicted(self.measured, FROZEN))
        self.slopes = np.stack(
            [
                (np.log(predicted(self.measured, self._at(self.centre + step * axis))) - self.base)
                / step
                for axis in np.eye(len(self.names))
            ],
            axis=1,
        )

    def _at(self, point: Array) -> TimeConstants:
        return with_values(FROZEN, dict(zip(self.names, np.exp(point), strict=True)))

    def without(self, held_out: set[int]) -> TimeConstants:
        """Return the constants that the other rows give."""
        kept = [place for place in range(len(self.measured)) if place not in held_out]

        def predict(_: Sequence[StepTiming], constants: TimeConstants) -> Array:
            point = np.log([value(constants, name) for name in self.names])
            return np.asarray(np.exp(self.base[kept] + self.slopes[kept] @ (point - self.centre)))

        return fit([self.measured[place] for place in kept], priors(), FREE, predict=predict)


def _held_out(
    rows: Sequence[Row], near: _Linear, key: Callable[[Row], Hashable]
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the error of each row under constants that have seen no row of its fold.

    And whether they have seen any of its runtime: else its constant is the prior.
    """
    found, runtime_seen = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.bool_)
    runtimes = np.array([row.measured.workload.runtime for row in rows])
    for fold in _folds(rows, key):
        constants = near.without(set(fold))
        found[fold] = errors([rows[place] for place in fold], constants)
        kept = np.delete(runtimes, fold)
        runtime_seen[fold] = np.isin(runtimes[fold], kept)
    return found, runtime_seen


def _folds(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> Iterator[list[int]]:
    """Yield the places of the rows of each fold: those with one key stay together."""
    keys = list(dict.fromkeys(key(row) for row in rows))
    for fold in range(min(_MOST_FOLDS, len(keys))):
        chosen = set(keys[fold::_MOST_FOLDS])
        yield [place for place, row in enumerate(rows) if key(row) in chosen]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the spread into planning/data")
    if parser.parse_args().write:
        write(accuracy())
    else:
        main()
