"""What ranks of a split exchange in a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from airflow_training.execution import ExecutionPlan, distribute
from tests.execution.ranks import call_ranks
from tests.execution.zoo import LENGTH, WIDTH, FusedAttention

pytestmark = pytest.mark.e2e

BLOCKS = 3


class Block(torch.nn.Module):
    """The feed-forward half of a transformer's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 32)
        self.down = torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deeper: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return deeper


def count_sums() -> int:
    """Return how many sums over ranks one step of a residual model takes."""
    torch.manual_seed(0)
    batch = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    training = distribute(
        torch.nn.Sequential(*(Block() for _ in range(BLOCKS))),
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda own: torch.optim.SGD(own, lr=0.1),
        example=batch,
        plan=ExecutionPlan(global_batch=2, micro_batch=2, tp=2),
    )
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        training.step(batch)
    return sum(event.name == "_c10d_functional::all_reduce" for event in seen.events() or ())


def count_exchanges() -> dict[str, int]:
    """Return what one step of attention whose three projections are one exchanges beside its sums."""
    torch.manual_seed(0)
    batch = torch.randn(2, LENGTH, WIDTH), torch.randn(2, LENGTH, WIDTH)
    training = distribute(
        torch.nn.Sequential(*(FusedAttention() for _ in range(BLOCKS))),
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda own: torch.optim.SGD(own, lr=0.1),
        example=batch,
        plan=ExecutionPlan(global_batch=2, micro_batch=2, tp=2),
    )
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        training.step(batch)
    names = [event.name.partition("::")[2] for event in seen.events() or ()]
    return {name: names.count(name) for name in ("all_to_all_single", "all_gather_into_tensor")}


class WordModel(torch.nn.Module):
    """A table of words, whose rows are more than the tokens of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(64, WIDTH)
        self.out = torch.nn.Linear(WIDTH, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.words(words))  # type: ignore[no-any-return]


def find_gathers() -> list[list[int]]:
    """Return the shapes that one step with a split table gathers."""
    torch.manual_seed(0)
    batch = torch.randint(64, (2, LENGTH)), torch.zeros(2, LENGTH, 4)
    training = distribute(
        WordModel(),
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda own: torch.optim.SGD(own, lr=0.1),
        example=batch,
        plan=ExecutionPlan(global_batch=2, micro_batch=2, tp=2),
    )
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        training.step(batch)
    return [
        list(event.input_shapes[0])
        for event in seen.events() or ()
        if event.name == "_c10d_functional::all_gather_into_tensor"
    ]


def test_a_table_that_ranks_hold_rows_of_is_never_gathered():
    """Each looks up what it holds, and the sum is the row: as Megatron does with its vocabulary."""
    assert [32, WIDTH] not in call_ranks(2, find_gathers)[0]


def look_up_outside() -> str:
    """Return what a word that the table does not have is answered with."""
    batch = torch.zeros(2, LENGTH, dtype=torch.int64), torch.zeros(2, LENGTH, 4)
    training = distribute(
        WordModel(),
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda own: torch.optim.SGD(own, lr=0.1),
        example=batch,
        plan=ExecutionPlan(global_batch=2, micro_batch=2, tp=2),
    )
    with pytest.raises(IndexError) as told:
        training.step((batch[0] + 64, batch[1]))
    return str(told.value)


def test_a_word_that_no_rank_holds_is_a_mistake_as_on_one_device():
    assert call_ranks(2, look_up_outside) == ["index out of range: a table of 64 rows"] * 2


def test_a_fused_projection_is_split_and_never_gathered():
    """One exchange in each direction for queries, keys and values, and one for the halves of the layer after."""
    expected = {"all_to_all_single": 4 * BLOCKS, "all_gather_into_tensor": 0}
    assert call_ranks(2, count_exchanges) == [expected] * 2


def test_a_residual_is_summed_once_in_each_direction():
    """As Megatron's layers do (Shoeybi et al. 2019, arXiv:1909.08053): one sum forward, one backward."""
    assert call_ranks(2, count_sums) == [2 * BLOCKS] * 2


SPELLINGS: Sequence[Callable[[torch.Tensor], Sequence[torch.Tensor]]] = (
    lambda x: x.chunk(dim=2, chunks=3),
    lambda x: torch.chunk(dim=-1, chunks=3, input=x),
    lambda x: torch.split(dim=2, split_size_or_sections=WIDTH, tensor=x),
    lambda x: x.split(dim=2, split_size=WIDTH),
    lambda x: torch.ops.aten.chunk.default(x, dim=2, chunks=3),
    lambda x: x.split([WIDTH, 2 * WIDTH], dim=2),
)


class Parted(torch.nn.Module):
    """Its result depends on how many parts a projection has, and on their order."""

    def __init__(self, spelling: int) -> None:
        super().__init__()
        self.spelling = spelling
        self.projection = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = SPELLINGS[self.spelling](self.projection(x))
        return torch.stack([number * part.sum(-1) for number, part in enumerate(parts, 1)], -1)


def train_split(tp: int) -> list[torch.Tensor]:
    """Return the weights after a step, for each way to write the cut."""
    found = []
    for spelling in range(len(SPELLINGS)):
        torch.manual_seed(0)
        inputs = torch.randn(2, LENGTH, WIDTH)
        training = distribute(
            Parted(spelling),
            loss=lambda output, target: (output - target).square().mean(),
            optimizer=lambda own: torch.optim.SGD(own, lr=0.01),
            example=(inputs, torch.zeros(2, LENGTH, 1)),
            plan=ExecutionPlan(global_batch=2, micro_batch=2, tp=tp),
        )
        training.step((inputs, torch.zeros(2, LENGTH, 1)))
        found.append(training.gather()["projection.weight"])
    return found


def test_a_projection_is_split_alike_however_the_cut_is_written():
    expected = train_split(1)
    for found in call_ranks(2, train_split, 2):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            torch.testing.assert_close(one, other, msg=lambda said, way=number: f"{way}: {said}")
