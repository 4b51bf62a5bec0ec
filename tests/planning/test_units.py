"""Where a view without units is cut, and which stretches of it are taken to be equal."""

from __future__ import annotations

from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.units import cut_into_units


class Chain:
    """Writes layers one after the other."""

    def __init__(self, width: int = 4) -> None:
        self.build = ViewBuilder("chain", batch=2)
        self.last = self.build.tensor("x", [("batch", 2), ("", width)], kind="input")
        self.made = 0

    def linear(self, path: str, width: int = 4, *, weight: str = "") -> Chain:
        before = self.build.tensors[self.last].shape[-1]
        name = weight or self.build.parameter(f"{path}.weight", ("", width), ("", before))
        return self._add("matmul", [self.last, name], width, equation="bk,nk->bn")

    def relu(self) -> Chain:
        return self._add("elementwise", [self.last], self.width, function="relu")

    def norm(self, path: str) -> Chain:
        scale = self.build.parameter(f"{path}.scale", ("", self.width))
        return self._add("norm", [self.last, scale], self.width)

    def plus(self, other: str) -> Chain:
        return self._add("elementwise", [self.last, other], self.width, function="add")

    @property
    def width(self) -> int:
        return self.build.tensors[self.last].shape[-1]

    def _add(self, kind: str, inputs: list[str], width: int, **attributes) -> Chain:
        self.made += 1
        self.last = self.build.tensor(f"t{self.made}", [("", 2), ("", width)])
        self.build.operator(f"op{self.made}", kind, inputs, [self.last], **attributes)
        return self

    def cut(self) -> ComputationView:
        return cut_into_units(self.build.view())


def units(view: ComputationView) -> list[tuple[str, int, int]]:
    return [(unit.name, len(unit.operators), unit.repeat) for unit in view.units]


def test_layers_of_different_widths_are_units_of_their_own():
    view = Chain().linear("a", 8).relu().linear("b", 16).relu().linear("c", 2).cut()
    assert units(view) == [("a", 2, 1), ("b", 2, 1), ("c", 1, 1)]


def test_equal_layers_in_a_row_become_one_that_repeats():
    chain = Chain().linear("first")
    for i in range(5):
        chain.linear(f"layers.{i}").relu()
    view = chain.linear("last", 1).cut()
    assert units(view) == [("first", 1, 1), ("layers.0", 2, 5), ("last", 1, 1)]
    assert "layers.1.weight" not in view.tensors
    assert view.operators[-1].inputs[0] == view.operators[-2].outputs[0]


def test_blocks_of_several_layers_repeat_together():
    chain = Chain().linear("first")
    for i in range(3):
        chain.linear(f"blocks.{i}.up", 8).relu().linear(f"blocks.{i}.down", 4)
    assert units(chain.cut()) == [("first", 1, 1), ("blocks.0", 3, 3)]


def test_a_residual_keeps_its_block_in_one_piece():
    chain = Chain().linear("first")
    for i in range(2):
        stream = chain.last
        chain.norm(f"blocks.{i}.norm").linear(f"blocks.{i}.up", 8).relu()
        chain.linear(f"blocks.{i}.down", 4).plus(stream)
    view = chain.norm("norm").linear("head", 10).cut()
    assert units(view) == [("first", 1, 1), ("blocks.0", 5, 2), ("op12", 2, 1)]


def test_layers_that_share_their_parameters_are_no_copies():
    chain = Chain().linear("first")
    shared = chain.build.parameter("shared.weight", ("", 4), ("", 4))
    view = chain.linear("", weight=shared).linear("", weight=shared).cut()
    assert [unit.repeat for unit in view.units] == [1, 1, 1]


def test_what_does_not_depend_on_parameters_does_not_hold_layers_together():
    chain = Chain()
    mask = chain.last
    view = chain.linear("a").plus(mask).linear("b", 4).plus(mask).cut()
    assert units(view) == [("a", 2, 1), ("b", 2, 1)]


def test_equal_shapes_with_other_operators_are_not_equal():
    view = Chain().linear("first").linear("a").relu().linear("b").norm("b").cut()
    assert [unit.repeat for unit in view.units] == [1, 1, 1]


def test_the_result_of_the_last_copy_is_the_result():
    chain = Chain().linear("first").linear("a").linear("b")
    view = chain.build.view()
    last = view.tensors[chain.last]
    tensors = {
        **view.tensors,
        chain.last: type(last)(name=last.name, shape=last.shape, axes=last.axes, kind="output"),
    }
    cut = cut_into_units(
        ComputationView(name="v", tensors=tensors, operators=view.operators, units=(), batch=2)
    )
    assert units(cut) == [("first", 1, 1), ("a", 1, 2)]
    assert [name for name, tensor in cut.tensors.items() if tensor.kind == "output"] == ["t2"]
