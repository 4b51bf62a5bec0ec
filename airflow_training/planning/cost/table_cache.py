"""Shardings that were lowered and priced before, kept between tables and between searches.

A lowering depends on the view and the sharding alone, its passes also on the kind of node, but not on how
many of them there are: a search on a cluster that lost a node finds most of what it asks for here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.passes import Passes
from airflow_training.planning.view.cluster import NodeGroup
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.lowering import lower
from airflow_training.planning.view.plan import StrategyTable
from airflow_training.planning.view.program import Number, Program, Sharding
from airflow_training.planning.view.splitting import IdentityKey

Codes = npt.NDArray[np.int64]

_BITS = {"tp": 13, "cp": 14, "ep": 12, "micro_batch": 24}
"""How wide each size can be: together they fit into 63 bits."""
_PROGRAMS = 32
"""Programs that are kept, one for each view and set of axes that are split."""
_NUMBERS = 4096
"""Shardings times pieces of a program that is kept: some 3 MB with its prices."""
_PRICES = 4
"""Kinds of nodes that a program's prices are kept for."""
_PricedOn = tuple[NodeGroup, str, TimeConstants]


@dataclass(slots=True)
class Shardings:
    """A program of many shardings, each at the place of its code."""

    codes: Codes
    """Ascending."""
    program: Program
    _prices: list[tuple[_PricedOn, Passes]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return the number of shardings: the length of the program's arrays."""
        return len(self.codes)

    def passes(
        self,
        nodes: NodeGroup,
        runtime: str,
        constants: TimeConstants,
        price: Callable[[], Passes],
    ) -> Passes:
        """Return the passes on a kind of node, however many there are; `price` works them out."""
        wanted = (replace(nodes, name="", count=1), runtime, constants)
        for priced_on, known in self._prices:
            if priced_on == wanted:
                return known
        found = price()
        self._prices = [*self._prices[1 - _PRICES :], (wanted, found)]
        return found


def codes_of(tp: Codes, cp: Codes, ep: Codes, micro_batch: Codes) -> Codes:
    """Return a number for each sharding."""
    code = np.zeros_like(tp)
    for column, bits in zip((tp, cp, ep, micro_batch), _BITS.values(), strict=True):
        code = (code << bits) | column
    return code


@dataclass(slots=True)
class _Slot:
    """Where the program of one view and one set of split axes is kept."""

    kept: Shardings | None = None


@lru_cache(maxsize=_PROGRAMS)
def _slot(
    _view: IdentityKey, _split: tuple[tuple[bool, bool], ...], _modes: tuple[bool, str]
) -> _Slot:
    return _Slot()


def shardings(
    view: ComputationView, codes: Codes, *, sequence_parallel: bool, precision: str
) -> Shardings:
    """Return a program that has these shardings; it may have more.

    Args:
        view: what is lowered.
        codes: as `codes_of` counts them, ascending and each once.
        sequence_parallel: whether activations are split between tensor-parallel kernels.
        precision: of the computation.

    """
    split = [size > 1 for size in _sizes(codes)[:3]]
    # where some split an axis and some do not, the program is another one than where all do
    axes = tuple((bool(on.any()), bool(on.all())) for on in split)
    slot = _slot(IdentityKey(view), axes, (sequence_parallel, precision))
    known = slot.kept
    if known is not None:
        if np.isin(codes, known.codes, assume_unique=True).all():
            return known
        together = np.union1d(codes, known.codes)
        codes = together if len(together) * len(known.program.pieces) <= _NUMBERS else codes
    tp, cp, ep, micro_batch = (size.astype(np.float64) for size in _sizes(codes))
    sharding = Sharding(
        micro_batch=micro_batch,
        tp=tp,
        cp=cp,
        ep=ep,
        sequence_parallel=sequence_parallel,
        precision=precision,
    )
    found = Shardings(codes, lower(view, sharding))
    if found.count * len(found.program.pieces) <= _NUMBERS:
        slot.kept = found
    return found


def _sizes(codes: Codes) -> list[Codes]:
    """Return tp, cp, ep and micro-batch of each code."""
    found: list[Codes] = []
    for bits in reversed(_BITS.values()):
        found.insert(0, codes & ((1 << bits) - 1))
        codes = codes >> bits
    return found


def memory_program(
    view: ComputationView, table: StrategyTable, *, sequence_parallel: bool, precision: str
) -> Program:
    """Program of the devices' memory without the work, with an entry for each row of a table."""
    codes, row = np.unique(
        codes_of(table.tp, table.cp, table.ep, table.micro_batch), return_inverse=True
    )
    found = shardings(view, codes, sequence_parallel=sequence_parallel, precision=precision)
    place = np.searchsorted(found.codes, codes)[row]

    def at(number: Number) -> Number:
        return number[place] if isinstance(number, np.ndarray) and number.ndim else number

    whole = found.program
    return replace(
        whole,
        pieces=tuple(
            replace(
                piece,
                work=(),
                update=(),
                parameters=tuple(
                    replace(held, elements=at(held.elements)) for held in piece.parameters
                ),
                saved_bytes={mode: at(number) for mode, number in piece.saved_bytes.items()},
                working_bytes=at(piece.working_bytes),
                boundary_bytes=at(piece.boundary_bytes),
            )
            for piece in whole.pieces
        ),
    )
