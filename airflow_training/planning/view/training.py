"""The training step of a forward pass: its gradients, and the optimizer's update of every parameter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from airflow_training.planning.view.computation import ComputationView, Operator, Tensor
from airflow_training.planning.view.rules import OperatorRule, rule_of
from airflow_training.planning.view.rules.algebra import equation_of

COUNTED = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8"})
"""Types without gradients."""


def gradient(name: str) -> str:
    """Return the name of a tensor's gradient."""
    return f"d:{name}"


def of_gradient(name: str) -> str:
    """Return the name of the tensor that this is the gradient of, or a part of the gradient."""
    return name.removeprefix("d:").partition("@")[0]


def is_parameter_gradient(name: str, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a tensor is the gradient of a parameter, or one user's part of it."""
    of = tensors.get(of_gradient(name))
    return name.startswith("d:") and of is not None and of.kind == "parameter"


def with_backward(view: ComputationView) -> ComputationView:
    """Return the view with the gradients of all outputs and one Adam update per parameter.

    Gradients follow from the operators' rules: the product of a matrix multiplication becomes two (one
    for each operand), every other operator one of kind `<kind>_backward`, which reads what its rule
    saves. A view that already holds a backward pass is returned as it is.
    """
    if any(operator.phase != "forward" for operator in view.operators):
        return view
    return _Step(view).view()


class _Step:
    def __init__(self, view: ComputationView) -> None:
        self.forward = view
        self.tensors: dict[str, Tensor] = dict(view.tensors)
        self.operators: list[Operator] = []
        self.unit_of = {name: unit.name for unit in view.units for name in unit.operators}
        self.added: dict[str, list[str]] = defaultdict(list)
        self.parts: dict[str, list[str]] = defaultdict(list)
        """Per forward tensor, the gradients that its users give it."""
        self.wanted = _differentiable(view)
        self.uses = Counter(name for op in view.operators for name in op.inputs)
        self.uses.update(t.name for t in view.tensors.values() if t.kind == "output")
        self.last_use: dict[str, str] = {}
        """Per forward tensor, the unit of the use whose gradient came last."""

    def view(self) -> ComputationView:
        known = {operator.name: operator for operator in self.forward.operators}
        for operator in self.forward.operators:
            for name in operator.outputs:
                if self.tensors[name].kind == "output" and name in self.wanted:
                    self._new_part(name, "outside")
        for operator in reversed(self.forward.operators):
            self._differentiate(operator, rule_of(operator, self.forward.tensors, known))
        self._update_parameters()
        units = tuple(
            replace(unit, operators=(*unit.operators, *self.added[unit.name]))
            for unit in self.forward.units
        )
        operators = (*self.forward.operators, *self.operators)
        return replace(self.forward, tensors=self.tensors, operators=operators, units=units)

    def _differentiate(self, operator: Operator, rule: OperatorRule) -> None:
        arriving = {
            name: self._total(name)
            for name in operator.outputs
            if name in self.wanted and self.parts[name]
        }
        wanted = tuple(name for name in dict.fromkeys(operator.inputs) if name in self.wanted)
        if not arriving or not wanted:
            return
        first = operator.outputs[0]
        for name in operator.inputs:
            if name in rule.passes and name in self.wanted and first in arriving:
                self.parts[name].append(arriving[first])
                self.last_use[name] = self.unit_of.get(operator.name, "")
        targets = tuple(name for name in wanted if name not in rule.passes)
        if operator.kind == "matmul":
            self._matmul(operator, arriving[first])
        elif rule.separate:
            for name in targets:
                others = replace(rule, saves=rule.saves - {name})
                self._general(operator, others, arriving, (name,))
        elif targets:
            self._general(operator, rule, arriving, targets)

    def _matmul(self, operator: Operator, arriving: str) -> None:
        inputs, output = equation_of(operator)
        left, right = operator.inputs[:2]
        wanted = (
            (left, arriving, right, (output, inputs[1]), inputs[0]),
            (right, left, arriving, (inputs[0], output), inputs[1]),
        )
        for place, (target, one, other, factors, result) in enumerate(wanted):
            if target in self.wanted:
                terms = ",".join("".join(term) for term in factors)
                self._add(
                    operator,
                    kind="matmul",
                    suffix=("left", "right")[place],
                    inputs=(one, other),
                    targets=(target,),
                    attributes={"equation": f"{terms}->{''.join(result)}"},
                )
        for bias, own in zip(operator.inputs[2:], inputs[2:], strict=True):
            if bias in self.wanted:
                dims = tuple(i for i, factor in enumerate(output) if factor not in own)
                self._add(
                    operator,
                    kind="reduce",
                    suffix="bias",
                    inputs=(arriving,),
                    targets=(bias,),
                    attributes={"dims": dims, "function": "sum"},
                )

    def _general(
        self,
        operator: Operator,
        rule: OperatorRule,
        arriving: Mapping[str, str],
        targets: tuple[str, ...],
    ) -> None:
        saved = tuple(
            name
            for name in dict.fromkeys((*operator.inputs, *operator.outputs))
            if name in rule.saves
        )
        self._add(
            operator,
            kind=f"{operator.kind}_backward",
            suffix=f"backward.{targets[0]}" if rule.separate else "backward",
            inputs=(*arriving.values(), *saved),
            targets=targets,
            attributes={**operator.attributes, "like": (*arriving, *saved, *targets)},
        )

    def _total(self, name: str) -> str:
        """Return the gradient of a tensor as one tensor, made by adding its parts where need be."""
        parts = self.parts[name]
        if len(parts) == 1:
            return parts[0]
        total = self._add_tensor(name, gradient(name))
        self._append(
            Operator(
                name=f"{total}.sum",
                kind="sum_of",
                inputs=tuple(parts),
                outputs=(total,),
                phase="optimizer" if self.tensors[name].kind == "parameter" else "backward",
            ),
            self.last_use[name],
        )
        self.parts[name] = [total]
        return total

    def _update_parameters(self) -> None:
        unit_of: dict[str, str] = {}
        for operator in self.forward.operators:
            for name in operator.inputs:
                unit_of.setdefault(name, self.unit_of.get(operator.name, ""))
        for name, tensor in self.forward.tensors.items():
            if tensor.kind != "parameter" or not self.parts[name]:
                continue
            total = self._total(name)
            state = [f"{name}:{part}" for part in ("master", "mean", "variance")]
            after = [f"{each}:next" for each in (name, *state)]
            for each in (*state, *after):
                dtype = tensor.dtype if each == after[0] else "float32"
                self.tensors[each] = replace(tensor, name=each, dtype=dtype, kind="state")
            self._append(
                Operator(
                    name=f"{name}.adam",
                    kind="adam",
                    inputs=(name, total, *state),
                    outputs=tuple(after),
                    phase="optimizer",
                ),
                unit_of[name],
            )

    def _new_part(self, name: str, maker: str) -> str:
        """Add the gradient that one use gives a tensor."""
        own = gradient(name) if self.uses[name] == 1 else f"{gradient(name)}@{maker}"
        self.parts[name].append(self._add_tensor(name, own))
        return own

    def _add_tensor(self, name: str, own: str) -> str:
        like = self.tensors[name]
        self.tensors[own] = replace(like, name=own, kind="gradient")
        return own

    def _add(
        self,
        operator: Operator,
        *,
        kind: str,
        suffix: str,
        inputs: tuple[str, ...],
        targets: tuple[str, ...],
        attributes: Mapping[str, object],
    ) -> None:
        """Add a gradient operator, which makes a part of the gradient of each of its targets."""
        name = f"{operator.name}.{suffix}"
        unit = self.unit_of.get(operator.name, "")
        self.last_use.update(dict.fromkeys(targets, unit))
        made = Operator(
            name=name,
            kind=kind,
            inputs=inputs,
            outputs=tuple(self._new_part(target, name) for target in targets),
            attributes=dict(attributes),
            phase="backward",
            of=operator.name,
            count=operator.count,
        )
        self._append(made, unit)

    def _append(self, operator: Operator, unit: str) -> None:
        self.operators.append(operator)
        self.unit_of[operator.name] = unit
        self.added[unit].append(operator.name)


def _differentiable(view: ComputationView) -> frozenset[str]:
    """Return the tensors that a parameter has a say in, and the parameters themselves."""
    found = {name for name, tensor in view.tensors.items() if tensor.kind == "parameter"}
    for operator in view.operators:
        if found.intersection(operator.inputs):
            found.update(
                name for name in operator.outputs if view.tensors[name].dtype not in COUNTED
            )
    return frozenset(found)
