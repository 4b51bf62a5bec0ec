"""Conditions and loops: nodes of a view that hold views of their own.

A node of kind `cond` has a body per branch and, as attribute `probability`, how often each is taken
(equally often, where it is not given). A node of kind `while_loop` or `scan` has one body, which runs
`count` times. The tensors of kind `input` of a body stand for the node's inputs, those of kind `output`
for its outputs, in their order; inputs of a `scan` beyond its `carried` ones are cut along their first
dimension, a slice per turn, and outputs beyond them are stacked so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from airflow_training.planning.view.computation import ComputationView, Operator, Tensor

NODES = frozenset({"cond", "while_loop", "scan"})


def inline_bodies(view: ComputationView) -> ComputationView:
    """Return the view with the bodies of its nodes in their place, each run so often as the node says.

    That is the view of one turn of each loop and of all branches of each condition, which is what is to
    be split and priced. A view without nodes is returned as it is.
    """
    if not any(operator.kind in NODES for operator in view.operators):
        return view
    result = _BodyExpansion(dict(view.tensors))
    parts = {operator.name: tuple(result.expand(operator)) for operator in view.operators}
    units = tuple(
        replace(unit, operators=tuple(part.name for name in unit.operators for part in parts[name]))
        for unit in view.units
    )
    operators = tuple(part for found in parts.values() for part in found)
    return replace(view, tensors=result.tensors, operators=operators, units=units)


class _BodyExpansion:
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def expand(self, operator: Operator) -> Iterator[Operator]:
        if operator.kind not in NODES:
            yield operator
            return
        bodies = operator.bodies
        shares = [1.0 / len(bodies)] * len(bodies)
        if operator.kind == "cond":
            shares = list(operator.attributes.get("probability", shares))
        results: list[tuple[str, ...]] = []
        for place, (body, share) in enumerate(zip(bodies, shares, strict=True)):
            inner, outputs = self._body(operator, place, body, operator.count * share)
            yield from inner
            results.append(outputs)
        for place, name in enumerate(operator.outputs):
            yield self._glue(operator, [outputs[place] for outputs in results], name, f"out{place}")

    def _body(
        self, node: Operator, place: int, body: ComputationView, count: float
    ) -> tuple[list[Operator], tuple[str, ...]]:
        prefix = f"{node.name}/{place}."
        inside = inline_bodies(body)
        inputs = [tensor for tensor in inside.tensors.values() if tensor.kind == "input"]
        outputs = [tensor for tensor in inside.tensors.values() if tensor.kind == "output"]
        names = {name: prefix + name for name in inside.tensors}
        found: list[Operator] = []
        for given, tensor in zip(node.inputs, inputs, strict=False):
            if self.tensors[given].shape == tensor.shape:
                names[tensor.name] = given
            else:
                self.tensors[prefix + tensor.name] = replace(
                    tensor, name=prefix + tensor.name, kind="activation"
                )
                found.append(self._glue(node, [given], prefix + tensor.name, tensor.name))
        for tensor in inside.tensors.values():
            if names[tensor.name].startswith(prefix):
                kind = "activation" if tensor.kind in {"input", "output"} else tensor.kind
                own = names[tensor.name]
                self.tensors[own] = replace(tensor, name=own, kind=kind)
        found += [
            replace(
                operator,
                name=prefix + operator.name,
                inputs=tuple(names[name] for name in operator.inputs),
                outputs=tuple(names[name] for name in operator.outputs),
                count=operator.count * count,
                attributes={**operator.attributes, **_inherited(node)},
            )
            for operator in inside.operators
        ]
        return found, tuple(names[tensor.name] for tensor in outputs)

    def _glue(self, node: Operator, inputs: Sequence[str], output: str, name: str) -> Operator:
        """Return the operator that hands tensors in or out of a body: no work of its own."""
        return Operator(
            name=f"{node.name}.{name}",
            kind="hand_over",
            inputs=tuple(inputs),
            outputs=(output,),
            attributes=_inherited(node),
        )


def _inherited(node: Operator) -> dict[str, object]:
    """Return the attributes that the operators of a body take over from their node."""
    return {key: node.attributes[key] for key in ("recompute",) if key in node.attributes}
