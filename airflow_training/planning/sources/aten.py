"""A graph of PyTorch's operators (ATen), as torch.export makes it, written as a computation view.

`aten_operators` says what each operator means; here is what they write with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from airflow_training.planning.view.computation import ComputationView, Operator, Tensor, TensorKind

Convert = Callable[["GraphWriter", fx.Node], None]
CONVERTERS: dict[str, Convert] = {}
"""By the name of the operator without namespace and overload."""


def converts(*names: str) -> Callable[[Convert], Convert]:
    """Register what writes the operators of these names."""

    def register(convert: Convert) -> Convert:
        CONVERTERS.update(dict.fromkeys(names, convert))
        return convert

    return register


def decompositions() -> Any:
    """Return torch's table of decompositions without the operators that we know whole."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        if name_of(overload) in CONVERTERS or torch.Tag.pointwise in getattr(overload, "tags", ()):
            del table[overload]
    return table


def name_of(target: Any) -> str:
    """Return `linear` for `aten.linear.default`."""
    return str(getattr(target, "__name__", target)).partition(".")[0]


def arguments(node: fx.Node) -> tuple[Any, ...]:
    """Return the arguments of a node, as what they are for its operator."""
    return node.args


class GraphWriter:
    """Writes one graph: tensors and operators get the names of its nodes."""

    def __init__(
        self,
        graph: fx.GraphModule,
        dtype: torch.dtype,
        trips: Mapping[str, float],
        probabilities: Mapping[str, Sequence[float]],
    ) -> None:
        """Take the graph, what `compute` stands for, and how often loops and branches run."""
        self.module = graph
        self.dtype = dtype
        self.trips = trips
        self.probabilities = probabilities
        self.tensors: dict[str, Tensor] = {}
        self.operators: list[Operator] = []
        self.names: dict[fx.Node, str | tuple[str, ...]] = {}

    def view(
        self, name: str, given: Sequence[tuple[str, TensorKind]], *, is_body: bool = False
    ) -> ComputationView:
        """Return the view of the graph, whose placeholders have these names and kinds.

        `is_body`: of a loop or a branch, whose outputs are known by their places.
        """
        nodes = list(self.module.graph.nodes)
        results = _nodes_in(nodes[-1].args)
        needed = _needed(results)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        batch = _batch(placeholders, given)
        for node, (own, kind) in zip(placeholders, given, strict=True):
            self._given(node, own, kind, batch)
        for node in nodes:
            if node in needed and node.op == "call_function":
                self._call(node)
        outputs = [own for node in results for own in self.of(node)]
        for own in self._in_order(outputs) if is_body else outputs:
            if self.tensors[own].kind == "activation":
                self.tensors[own] = replace(self.tensors[own], kind="output")
        operators = self._used()
        touched = {own for each in operators for own in (*each.inputs, *each.outputs)}
        touched.update(own for own, tensor in self.tensors.items() if tensor.kind == "input")
        return ComputationView(
            name=name,
            tensors={own: tensor for own, tensor in self.tensors.items() if own in touched},
            operators=operators,
            units=(),
            batch=batch,
        )

    def _in_order(self, outputs: Sequence[str]) -> Sequence[str]:
        """Return tensors of their own for outputs that come in another order than they were made, or twice, or from outside."""
        made = [own for own in self.tensors if own in outputs]
        if list(outputs) == made and all(self.tensors[own].kind == "activation" for own in made):
            return outputs
        copies = [f"{own}.out{place}" for place, own in enumerate(outputs)]
        for own, copy in zip(outputs, copies, strict=True):
            self.tensors[copy] = replace(self.tensors[own], name=copy, kind="activation")
            self.operators.append(
                Operator(name=copy, kind="hand_over", inputs=(own,), outputs=(copy,))
            )
        return copies

    def of(self, node: fx.Node) -> tuple[str, ...]:
        """Return the names of a node's tensors."""
        names = self.names.get(node, ())
        return (names,) if isinstance(names, str) else names

    def inputs(self, node: fx.Node) -> tuple[str, ...]:
        """Return the tensors among a node's arguments, in order."""
        return tuple(
            name for source in _nodes_in((node.args, node.kwargs)) for name in self.of(source)
        )

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def result(self, node: fx.Node) -> str:
        """Add the tensor that a node makes (the first, if it makes several)."""
        value = node.meta["val"]
        if isinstance(value, (tuple, list)):
            self.names[node] = (self.tensor(node.name, value[0]),)
            return node.name
        self.names[node] = self.tensor(node.name, value)
        return node.name

    def results(self, node: fx.Node) -> tuple[str, ...]:
        """Add all tensors that a node makes."""
        names = tuple(
            self.tensor(f"{node.name}.{place}", value)
            for place, value in enumerate(node.meta["val"])
            if isinstance(value, torch.Tensor)
        )
        self.names[node] = names
        return names

    def tensor(self, name: str, value: torch.Tensor) -> str:
        """Add a tensor like this one."""
        return self.made(name, tuple(map(int, value.shape)), self.type_of(value.dtype))

    def made(self, name: str, shape: tuple[int, ...], dtype: str = "compute") -> str:
        """Add an activation of this shape."""
        self.tensors[name] = Tensor(name=name, shape=shape, axes=("",) * len(shape), dtype=dtype)
        return name

    def type_of(self, dtype: torch.dtype) -> str:
        return "compute" if dtype == self.dtype else str(dtype).removeprefix("torch.")

    def alias(self, node: fx.Node, name: str) -> None:
        """Let a node stand for a tensor that is there."""
        self.names[node] = name

    def operator(
        self,
        name: str,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        count: float = 1.0,
        bodies: tuple[ComputationView, ...] = (),
        **attributes: Any,
    ) -> None:
        """Add an operator; one that reads only constants makes constants and is left out."""
        if all(self.tensors[own].kind == "buffer" for own in inputs):
            for own in outputs:
                self.tensors[own] = replace(self.tensors[own], kind="buffer")
            return
        self.operators.append(
            Operator(
                name=name,
                kind=kind,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                attributes=attributes,
                count=count,
                bodies=bodies,
            )
        )

    def body(self, node: fx.Node, part: fx.Node) -> ComputationView:
        """Return the view of a branch or of a loop's body."""
        graph = getattr(self.module, str(part.target))
        inside = GraphWriter(graph, self.dtype, self.trips, self.probabilities)
        given: list[tuple[str, TensorKind]] = [
            (own.name, "input") for own in graph.graph.nodes if own.op == "placeholder"
        ]
        view = inside.view(f"{node.name}.{part.target}", given, is_body=True)
        return replace(
            view,
            batch=1,
            tensors={
                own: replace(tensor, axes=("",) * len(tensor.shape))
                for own, tensor in view.tensors.items()
            },
        )

    def _used(self) -> tuple[Operator, ...]:
        """Return the operators whose results are read: some parameters need not be transposed."""
        read = {own for own, tensor in self.tensors.items() if tensor.kind == "output"}
        used: list[Operator] = []
        for each in reversed(self.operators):
            if read.intersection(each.outputs):
                used.append(each)
                read.update(each.inputs)
        return tuple(reversed(used))

    def _given(self, node: fx.Node, name: str, kind: TensorKind, batch: int) -> None:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return
        self.names[node] = self.tensor(name, value)
        shape = self.shape(name)
        batched = kind == "input" and shape[:1] == (batch,)
        axes = ("batch" if batched else "", *("",) * (len(shape) - 1))[: len(shape)]
        self.tensors[name] = replace(self.tensors[name], kind=kind, axes=axes)

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            source, place = arguments(node)
            names = self.of(source)
            if place < len(names):
                self.names[node] = names[place]
            return
        name = name_of(node.target)
        convert = CONVERTERS.get(name)
        if convert is None and torch.Tag.pointwise in getattr(node.target, "tags", ()):
            convert = CONVERTERS["pointwise"]
        (convert or CONVERTERS["unknown"])(self, node)


def _nodes_in(argument: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.map_arg(argument, found.append)
    return found


def _needed(results: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the nodes that the results are made from: what only keeps statistics is left out."""
    needed: set[fx.Node] = set()
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    return needed


def _batch(placeholders: Sequence[fx.Node], given: Sequence[tuple[str, TensorKind]]) -> int:
    values = _inputs(placeholders, given)
    return next((int(value.shape[0]) for value in values if value.ndim), 1)


def _inputs(
    placeholders: Sequence[fx.Node], given: Sequence[tuple[str, TensorKind]]
) -> Iterator[torch.Tensor]:
    for node, (_, kind) in zip(placeholders, given, strict=True):
        value = node.meta["val"]
        if kind == "input" and isinstance(value, torch.Tensor):
            yield value
