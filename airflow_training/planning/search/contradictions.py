"""What to say when constraints leave no strategy at all: which rule is in the way, and what would work."""

from __future__ import annotations

import numpy as np

from airflow_training.errors import InputError
from airflow_training.planning.search import space, table
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.space import Limits
from airflow_training.planning.view.plan import StrategyTable

_SHOWN = 12


def contradiction(limits: Limits, constraints: Constraints) -> InputError:
    """Return the error for constraints under which `space` has no strategy on these limits."""
    keys = [key for key in constraints.rules if key not in ("stage_layers", "stage_devices")]
    ways = []
    for key in keys:
        values = _values(limits, constraints.without(key), key)
        if values:
            ways.append(f"{key} could be {_listed(values)}")
    if ways:
        hint = "with the others as they are, " + "; or ".join(ways)
    else:
        alone = [
            f"{key} {_listed(_values(limits, Constraints(), key))}"
            for key in keys
            if not _values(limits, Constraints(rules={key: constraints.rules[key]}), key)
        ]
        hint = (
            "by themselves these could be: " + "; ".join(alone)
            if alone
            else "drop one of them: each works by itself"
        )
    said = ", ".join(f"{key}: {constraints.rules[key]}" for key in keys)
    return InputError.of(
        code="contradiction",
        field="constraints" if len(keys) != 1 else f"constraints.{keys[0]}",
        value=said,
        message=f"no strategy has {said} on {limits.devices} devices with "
        f"{limits.layers} layers and a global batch of {limits.global_batch}",
        hint=hint,
    )


def _values(limits: Limits, constraints: Constraints, key: str) -> list[object]:
    """Return the values of a key that some strategy under the constraints has."""
    split, mode = space.splits(limits, constraints), space.modes(constraints)
    allowed = space.allowed_modes(split, mode)
    if key in ("zero", "sequence_parallel", "recompute", "overlap"):
        return _distinct(table.take(mode, np.any(allowed, axis=0, keepdims=True)[0]), key)
    return _distinct(table.take(split, np.any(allowed, axis=1, keepdims=True)[:, 0]), key)


def _distinct(rows: StrategyTable, key: str) -> list[object]:
    used = table.devices(rows)

    def read(row: int) -> object:
        if key == "devices":
            return int(used[row])
        if key == "schedule":
            return "interleaved" if rows.virtual_stages[row] > 1 else "1f1b"
        return table.value_at(rows, key, row)

    found = {read(row) for row in range(table.size(rows))}
    return sorted(found, key=lambda value: (value if isinstance(value, int) else 0, str(value)))


def _listed(values: list[object]) -> str:
    shown = ", ".join(str(value) for value in values[:_SHOWN])
    return shown + (f", ... (up to {values[-1]})" if len(values) > _SHOWN else "")
