"""What one device keeps of each piece of a program: tables of bytes, a row per piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.model_states import BytesPerParameter, model_states
from airflow_training.planning.view.plan import StrategyTable
from airflow_training.planning.view.program import (
    Number,
    Parameters,
    Program,
    ProgramPiece,
    Recompute,
)

Floats = npt.NDArray[np.float64]

_MODES: tuple[Recompute, ...] = get_args(Recompute)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceMemory:
    """Bytes by piece and candidate, shape (pieces, n), for one copy of a repeated piece."""

    states: Floats
    """Weights, gradients and optimizer states: shape (3, pieces, n)."""
    lent: Floats
    """Those of weights that belong to another piece: nothing on a device that holds that one too."""
    lenders: tuple[int | None, ...]
    """For each piece the piece whose weights it uses."""
    whole: Floats
    """Weights (ZeRO 3) and gradients (ZeRO 2) that are sharded, while the piece runs: whole."""
    saved: Floats
    """Activations of one micro-batch, from its forward to its backward pass."""
    working: Floats
    """What lives only while the piece runs: with activations that are computed again."""
    boundary: Floats

    def of_candidates(self, rows: npt.NDArray[np.int64]) -> PieceMemory:
        """Return the table of some of the candidates."""
        return PieceMemory(
            states=self.states[..., rows],
            lent=self.lent[..., rows],
            lenders=self.lenders,
            whole=self.whole[..., rows],
            saved=self.saved[..., rows],
            working=self.working[..., rows],
            boundary=self.boundary[..., rows],
        )

    def states_of(self, counts: npt.NDArray[np.int64]) -> Floats:
        """Return the states of a device with `counts` copies of each piece, shape (3, n)."""
        states: Floats = np.einsum("p,kpn->kn", counts, self.states)
        for piece, lender in enumerate(self.lenders):
            if lender is not None and counts[lender] == 0:
                states += counts[piece] * self.lent[:, piece]
        return states


def kept_memory(
    program: Program, candidates: StrategyTable, each: BytesPerParameter
) -> PieceMemory:
    """Bytes of each piece under each candidate, with `each` parameter's bytes."""
    pieces = program.pieces
    n = len(candidates.pp)
    owned = [[p for p in piece.parameters if not p.shared_with] for piece in pieces]
    shared = [[p for p in piece.parameters if p.shared_with] for piece in pieces]
    names = {piece.name: index for index, piece in enumerate(pieces)}
    saved = [_by_mode(piece, candidates, n) for piece in pieces]
    again = [
        _column(piece.saved_bytes["none"], n) - now
        for piece, now in zip(pieces, saved, strict=True)
    ]
    working = [_column(piece.working_bytes, n) for piece in pieces]
    return PieceMemory(
        states=np.stack([_states(one, candidates, each) for one in owned], axis=1),
        lent=np.stack([_states(one, candidates, each) for one in shared], axis=1),
        lenders=tuple(names[one[0].shared_with] if one else None for one in shared),
        whole=np.stack([_whole(piece.parameters, candidates, each) for piece in pieces]),
        saved=np.stack(saved),
        working=np.stack([a + np.maximum(b, 0.0) for a, b in zip(working, again, strict=True)]),
        boundary=np.stack([_column(piece.boundary_bytes, n) for piece in pieces]),
    )


def replicas(parameters: Parameters, candidates: StrategyTable) -> Floats:
    """Return how many devices ZeRO can part the parameters among, shape (n,).

    Tensor-parallel ranks that hold the same norms are not among them.
    """
    sizes: dict[str, Floats] = {
        "dp": candidates.dp / candidates.ep,
        "ep": candidates.ep.astype(np.float64),
        "cp": candidates.cp.astype(np.float64),
    }
    count: Floats = np.ones(len(candidates.pp))
    for axis in parameters.replicated_over:
        if axis in sizes:
            count = count * sizes[axis]
    return count


def _states(
    parameters: Sequence[Parameters], candidates: StrategyTable, each: BytesPerParameter
) -> Floats:
    n = len(candidates.pp)
    total = np.zeros((3, n))
    for one in parameters:
        elements = _column(one.elements, n)
        total += model_states(
            elements, each, zero=candidates.zero, replicas=replicas(one, candidates)
        )
    return total


def _whole(
    parameters: Sequence[Parameters], candidates: StrategyTable, each: BytesPerParameter
) -> Floats:
    elements = sum((_column(one.elements, len(candidates.pp)) for one in parameters), np.zeros(1))
    weights = np.where(candidates.zero >= 3, elements * each.weights, 0.0)
    # Gradients leave the backward pass in the type of the weights, before they are added up.
    return weights + np.where(candidates.zero >= 2, elements * each.weights, 0.0)


def _by_mode(piece: ProgramPiece, candidates: StrategyTable, n: int) -> Floats:
    modes = np.stack([_column(piece.saved_bytes[mode], n) for mode in _MODES])
    return modes[candidates.recompute, np.arange(n)]


def _column(value: Number, n: int) -> Floats:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (n,))
