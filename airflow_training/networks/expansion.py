"""From the layers of a document to one flat list, in which repeated blocks are written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem
from airflow_training.networks.catalogue import LayerType, layer_types
from airflow_training.networks.document import Layer, NetworkSpec, Phase
from airflow_training.networks.names import bad_name

__all__ = ["FlatLayer", "expand"]

MAX_LAYERS = 10_000
"""Of a network, with blocks written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatLayer:
    """A layer of the network, with names that count everywhere in it."""

    name: str
    type: str
    kind: LayerType
    inputs: Sequence[str] | None
    """None: the one before."""
    before: str | None
    """The layer that comes before it; None: it is the first."""
    params: Mapping[str, Any]
    phase: Sequence[Phase]
    tied_to: str | None
    field: str
    """Where the document says it."""


@dataclass(slots=True)
class _Scope:
    """The names that layers of one block can use."""

    prefix: str = ""
    outer: _Scope | None = None
    known: dict[str, str] = field(default_factory=dict)
    """Name as it is written here -> name in the network."""
    written: Sequence[str] = ()
    """All names of this block, also of layers that come later."""

    def find(self, name: str) -> str | None:
        if name in self.known or self.outer is None:
            return self.known.get(name)
        return self.outer.find(name)

    def names(self) -> list[str]:
        return [*(self.outer.names() if self.outer else ()), *self.known]


@dataclass(slots=True)
class _Expansion:
    layers: list[FlatLayer] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    full: bool = False

    def block(self, layers: Sequence[Layer], scope: _Scope, where: str, before: str | None) -> str:
        """Write out the layers of a block; return the name of the last one."""
        scope.written = [layer.name for layer in layers]
        for index, layer in enumerate(layers):
            here = f"{where}[{index}]"
            if len(self.layers) >= MAX_LAYERS:
                self._overflow(here)
                break
            if problem := bad_name(layer.name, f"{here}.name"):
                self.problems.append(problem)
            elif layer.name in scope.known:
                self._say("duplicate", f"{here}.name", layer.name, "another layer has this name")
                continue
            inputs = self._found(layer, scope, here)
            if layer.layers is None:
                before = self._layer(layer, scope, here, inputs, before)
            else:
                before = self._repeats(layer, scope, here, inputs, before)
            scope.known[layer.name] = before or ""
        return before or ""

    def _layer(
        self,
        layer: Layer,
        scope: _Scope,
        here: str,
        inputs: Sequence[str] | None,
        before: str | None,
    ) -> str | None:
        types = layer_types()
        if layer.repeat != 1:
            message, hint = "is for blocks", "put the layer into `layers` of a block"
            self._say("conflict", f"{here}.repeat", layer.repeat, message, hint=hint)
        kind = types.get(layer.type or "")
        if layer.type is None:
            self._say("missing", f"{here}.type", None, "is required", allowed=[*types])
        elif kind is None:
            message = "is no type of layer"
            self._say("not_allowed", f"{here}.type", layer.type, message, allowed=[*types])
        name = scope.prefix + layer.name
        if layer.type is None or kind is None:
            return name
        tied = None if layer.tied_to is None else scope.find(layer.tied_to)
        if layer.tied_to is not None and not tied:
            self._unknown(layer.tied_to, scope, f"{here}.tiedTo")
        if scope.prefix and (problem := bad_name(name, f"{here}.name")):
            self.problems.append(problem)
        if name in self.taken:
            self._say(
                "duplicate", f"{here}.name", name, f"is '{name}' in the network, as another layer"
            )
            return name
        self.taken.add(name)
        self.layers.append(
            FlatLayer(
                name=name,
                type=layer.type,
                kind=kind,
                inputs=inputs,
                before=before,
                params=layer.params,
                phase=layer.phase or kind.phases,
                tied_to=tied or None,
                field=here,
            )
        )
        return name

    def _repeats(
        self,
        layer: Layer,
        scope: _Scope,
        here: str,
        inputs: Sequence[str] | None,
        before: str | None,
    ) -> str | None:
        given = {"type": layer.type, "params": layer.params, "tiedTo": layer.tied_to}
        for key, value in given.items():
            if value:
                self._say("conflict", f"{here}.{key}", value, "is for a layer, not for a block")
        if inputs is not None and len(inputs) != 1:
            message = "a block takes one input; its layers can name others"
            self._say("conflict", f"{here}.inputs", list(inputs), message)
        if layer.layers is not None and not layer.layers:
            self._say("out_of_range", f"{here}.layers", None, "needs at least 1 layer")
        before = inputs[0] if inputs else before
        for turn in range(layer.repeat):
            number = f"{turn}_" if layer.repeat > 1 else ""
            inside = _Scope(f"{scope.prefix}{layer.name}_{number}", scope)
            if before is not None:
                inside.known["input"] = before
            first = len(self.layers)
            layers = layer.layers or []
            if layer.phase is not None:
                layers = [
                    each.model_copy(update={"phase": each.phase or layer.phase}) for each in layers
                ]
            before = self.block(layers, inside, f"{here}.layers", before) or before
            if self.full or len(self.layers) == first:
                break
        return before

    def _found(self, layer: Layer, scope: _Scope, here: str) -> Sequence[str] | None:
        if layer.inputs is None:
            return None
        found = []
        for index, name in enumerate(layer.inputs):
            real = scope.find(name)
            if real is None:
                self._unknown(name, scope, f"{here}.inputs[{index}]")
            found.append(real or "")
        return found

    def _unknown(self, name: str, scope: _Scope, where: str) -> None:
        message, hint = "no layer before this one has this name", ""
        if name in scope.written:
            hint = f"'{name}' stands after it: a layer takes those before it"
        self._say("bad_reference", where, name, message, allowed=scope.names(), hint=hint)

    def _say(
        self,
        code: str,
        where: str,
        value: Any,
        message: str,
        *,
        allowed: Sequence[Any] = (),
        hint: str = "",
    ) -> None:
        hint = hint or did_you_mean(value, allowed)
        self.problems.append(
            Problem(
                code=code, field=where, value=value, message=message, allowed=allowed, hint=hint
            )
        )

    def _overflow(self, where: str) -> None:
        if not self.full:
            self.full = True
            self._say(
                "too_large",
                where,
                None,
                f"the network has more than {MAX_LAYERS} layers",
                hint="a smaller `repeat`",
            )


def expand(spec: NetworkSpec) -> tuple[list[FlatLayer], dict[str, str], list[Problem]]:
    """Return the layers one by one, the names that the whole network knows, and what is wrong with them."""
    expansion, scope = _Expansion(), _Scope()
    expansion.block(spec.layers, scope, "spec.layers", None)
    once = {(p.code, p.field): p for p in reversed(expansion.problems)}
    return (
        expansion.layers,
        scope.known,
        [p for p in expansion.problems if once[p.code, p.field] is p],
    )
