"""The training net and the test net of one list of layers: who is in it, and what each takes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_training.errors import Problem
from airflow_training.networks.document import Phase
from airflow_training.networks.expansion import MAX_ALLOWED, FlatLayer

__all__ = ["NET_NAMES", "NetLayer", "net_of"]

NET_NAMES: Mapping[Phase, str] = {"train": "training net", "test": "test net"}


@dataclass(frozen=True, slots=True)
class NetLayer:
    """A layer in one of the nets, and the layers there whose output it takes."""

    layer: FlatLayer
    inputs: Sequence[str]


def net_of(layers: Sequence[FlatLayer], phase: Phase) -> tuple[list[NetLayer], list[Problem]]:
    """Return the layers of a net in order, and what they cannot take."""
    by_name = {layer.name: layer for layer in layers}
    net: list[NetLayer] = []
    sources: dict[str, str | None] = {}
    problems: list[Problem] = []
    for layer in layers:
        if phase not in layer.phase:
            continue
        found = []
        for position, name in enumerate(_wanted(layer, by_name, phase)):
            source = source_in(name, by_name, phase, known=sources)
            where = f"{layer.field}.inputs" + ("" if layer.inputs is None else f"[{position}]")
            if source is None:
                problems.append(_missing_in(name, layer, phase, where))
            elif source and by_name[source].kind.kind in ("loss", "metric"):
                kind = by_name[source].kind.kind
                problems.append(
                    Problem(
                        code="bad_reference",
                        field=where,
                        value=source,
                        message=f"layer '{layer.name}' takes '{source}', a {kind}, which no layer can take",
                        allowed=[
                            each.layer.name
                            for each in net[-MAX_ALLOWED:]
                            if _can_be_taken(each.layer)
                        ],
                        hint="name the layer whose output it takes in `inputs`",
                    )
                )
            found.append(source or "")
        problems += _wrong_count(layer, found)
        net.append(NetLayer(layer, found))
    return net, problems


def source_in(
    name: str,
    by_name: Mapping[str, FlatLayer],
    phase: Phase,
    *,
    known: dict[str, str | None] | None = None,
) -> str | None:
    """Return the layer whose output stands for a name in a net: what a dropout takes, where there is none.

    The empty name stands for a layer whose mistakes are told already. `known` keeps what was found: thousands of
    layers may take what comes after thousands of dropouts.
    """
    known = {} if known is None else known
    passed: list[str] = []
    layer = by_name.get(name)
    found: str | None = ""
    while layer is not None:
        if layer.name in known:
            found = known[layer.name]
            break
        passed.append(layer.name)
        if phase in layer.phase or not layer.kind.can_be_left_out:
            found = layer.name if phase in layer.phase else None
            break
        layer = by_name.get(next(iter(_wanted(layer, by_name, phase)), ""))
    known.update(dict.fromkeys(passed, found))
    return found


def _wanted(layer: FlatLayer, by_name: Mapping[str, FlatLayer], phase: Phase) -> Sequence[str]:
    if layer.inputs is not None:
        return layer.inputs
    if layer.kind.input_counts[1] == 0:
        return ()
    name = layer.before
    before = by_name.get(name or "")
    while before is not None and phase not in before.phase:
        if before.inputs is not None and before.kind.can_be_left_out:
            return before.inputs
        name = before.before
        before = by_name.get(name or "")
    return (name,) if name else ()


def _can_be_taken(layer: FlatLayer) -> bool:
    return layer.kind.kind in ("input", "layer")


def _missing_in(name: str, layer: FlatLayer, phase: Phase, where: str) -> Problem:
    net = NET_NAMES[phase]
    return Problem(
        code="bad_reference",
        field=where,
        value=name,
        message=f"layer '{layer.name}' of the {net} takes '{name}', which that net does not have",
        hint=f"add {phase} to the phase of '{name}', or take it from that of '{layer.name}'",
    )


def _wrong_count(layer: FlatLayer, found: Sequence[str]) -> list[Problem]:
    least, most = layer.kind.input_counts
    if least <= len(found) and (most is None or len(found) <= most):
        return []
    wanted = (
        f"{least} or more"
        if most is None
        else f"{least}"
        if least == most
        else f"{least} to {most}"
    )
    hint = ""
    if most == 0:
        hint = "it is what the data brings: leave `inputs` out"
    elif layer.inputs is None and found:
        hint = f"name them: inputs: [{found[0]}, ...]"
    elif not found:
        hint = "name it in `inputs`, or begin with a layer of type Input"
    return [
        Problem(
            code="out_of_range",
            field=f"{layer.field}.inputs",
            value=list(found),
            message=f"layer '{layer.name}': {layer.type} takes {wanted} inputs, not {len(found)}",
            hint=hint,
        )
    ]
