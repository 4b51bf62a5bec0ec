"""From the layers of a document to one flat list, in which repeated blocks are written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from airflow_training.documents.problems import MOST_FINDINGS
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem
from airflow_training.networks.catalogue import (
    LayerType,
    broken_types,
    layer_types,
    look_again,
    unread_types,
)
from airflow_training.networks.document import Layer, NetworkSpec, Phase
from airflow_training.networks.names import MAX_NAME, bad_name

__all__ = ["FlatLayer", "expand"]

MAX_LAYERS = 10_000
"""Of a network, with blocks written out."""
MAX_VALUES = 200_000
"""Of its layers, inputs and numbers in lists of parameters, with blocks written out: as many as a document may have."""
MAX_ALLOWED = 300
"""Names that a mistake lists: the nearest before it. More make the answer to a large document larger than memory."""


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
        """Return the names that come last."""
        own = [*islice(reversed(self.known), MAX_ALLOWED)][::-1]
        return [*(self.outer.names() if self.outer else ()), *own][-MAX_ALLOWED:]


@dataclass(slots=True)
class _Expansion:
    layers: list[FlatLayer] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    told: set[tuple[str, str]] = field(default_factory=set)
    """Code and field of the problems: turns of a block repeat them."""
    taken: set[str] = field(default_factory=set)
    values: int = 0
    """Gone through so far, also those of layers that are no good."""
    full: bool = False

    def block(self, layers: Sequence[Layer], scope: _Scope, where: str, before: str | None) -> str:
        """Write out the layers of a block; return the name of the last one."""
        scope.written = [layer.name for layer in layers]
        for index, layer in enumerate(layers):
            here = f"{where}[{index}]"
            self.values += _values(layer)
            if self._is_full(here):
                break
            if problem := bad_name(layer.name, f"{here}.name"):
                self._add(problem)
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
            self._unknown_type(layer.type, f"{here}.type")
        name = scope.prefix + layer.name
        if layer.type is None or kind is None:
            return name
        tied = None if layer.tied_to is None else scope.find(layer.tied_to)
        if layer.tied_to is not None and not tied:
            self._unknown(layer.tied_to, scope, f"{here}.tiedTo")
        if scope.prefix and (problem := bad_name(name, f"{here}.name")):
            self._add(problem)
        if len(name) > MAX_NAME:
            return None
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
            # with a longer one, every name in the block is too long, which its layers tell
            inside = _Scope(f"{(scope.prefix + layer.name)[:MAX_NAME]}_{number}", scope)
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

    def _unknown_type(self, name: str, where: str) -> None:
        if why := broken_types().get(name):
            message = f"is a type of your own that is broken: {why}"
            self._say("bad_reference", where, name, message)
            return
        # the type may be one of theirs
        hint = f"could not be read: {'; '.join(unread_types())}" if unread_types() else ""
        message, allowed = "is no type of layer", [*layer_types()]
        self._say("not_allowed", where, name, message, allowed=allowed, hint=hint)

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
        if (code, where) in self.told:
            return
        hint = hint or did_you_mean(value, allowed)
        self._add(
            Problem(
                code=code, field=where, value=value, message=message, allowed=allowed, hint=hint
            )
        )

    def _add(self, problem: Problem) -> None:
        if (problem.code, problem.field) not in self.told:
            self.told.add((problem.code, problem.field))
            self.problems.append(problem)

    def _is_full(self, where: str) -> bool:
        """Return whether this is as much as anybody goes through; says so once."""
        if self.full:
            return True
        if len(self.problems) >= MOST_FINDINGS:
            self.full = True  # who tells the first hundred counts the rest
        elif len(self.layers) >= MAX_LAYERS or self.values > MAX_VALUES:
            self.full = True
            most = f"{MAX_VALUES} values" if self.values > MAX_VALUES else f"{MAX_LAYERS} layers"
            message = f"the network has more than {most}"
            self._say("too_large", where, None, message, hint="a smaller `repeat`")
        return self.full


def _values(layer: Layer) -> int:
    """Return how much there is to go through in a layer, without those of a block."""
    lists = [each for each in layer.params.values() if isinstance(each, list)]
    return 1 + len(layer.inputs or ()) + len(layer.params) + sum(map(len, lists))


def expand(spec: NetworkSpec) -> tuple[list[FlatLayer], dict[str, str], list[Problem]]:
    """Return the layers one by one, the names that the whole network knows, and what is wrong with them.

    No layers where the network is too large or too wrong to go on with.
    """
    look_again()
    expansion, scope = _Expansion(), _Scope()
    expansion.block(spec.layers, scope, "spec.layers", None)
    return [] if expansion.full else expansion.layers, scope.known, expansion.problems
