"""From a document to a network of which everything is known: both nets, every shape, every count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.loading import dump_yaml
from airflow_training.documents.problems import MOST_FINDINGS, distinct
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem
from airflow_training.networks.document import NetworkMetadata, NetworkSpec, Phase
from airflow_training.networks.expansion import MAX_ALLOWED, FlatLayer, expand
from airflow_training.networks.inference import InferredLayer, LayerOutput, infer
from airflow_training.networks.nets import NET_NAMES, NetLayer, net_of, source_in
from airflow_training.networks.params import params_problems
from airflow_training.networks.shapes import numel

__all__ = ["Net", "ResolvedLayer", "ResolvedNetwork", "resolve"]

PHASES: Sequence[Phase] = ("train", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLayer:
    """A layer with all that its inputs say about it."""

    flat: FlatLayer
    inferred: InferredLayer

    @property
    def name(self) -> str:
        return self.flat.name

    @property
    def parameters(self) -> int:
        """Return how many parameters it has of its own."""
        tied = self.inferred.weights.get("weight") if self.flat.tied_to else None
        return self.inferred.parameters - numel(tied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """One of the two nets."""

    layers: Sequence[NetLayer]
    outputs: Mapping[str, str]
    """Name of what it returns -> the layer that gives it; without losses and metrics."""

    @property
    def inputs(self) -> Sequence[NetLayer]:
        """Inputs that the data has to bring: those that some layer takes."""
        taken = {name for each in self.layers for name in each.inputs} | {*self.outputs.values()}
        return [each for each in self.of_kind("input") if each.layer.name in taken]

    def of_kind(self, kind: str) -> Sequence[NetLayer]:
        return [each for each in self.layers if each.layer.kind.kind == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedNetwork:
    metadata: NetworkMetadata
    layers: Mapping[str, ResolvedLayer]
    """In the order of the document."""
    nets: Mapping[Phase, Net]
    outputs: Sequence[str] | None
    """The layers that the document names as such."""
    sources: Mapping[str, Sequence[str]]
    """Layer -> those that it takes, in one of the nets or the other."""

    @property
    def parameters(self) -> int:
        """Return how many parameters both nets have together, shared ones once."""
        return sum(layer.parameters for layer in self.layers.values())

    def flops(self, phase: Phase) -> int:
        """Return the operations of the forward pass of one sample."""
        return sum(self.layers[each.layer.name].inferred.flops for each in self.nets[phase].layers)

    def takes(self, name: str) -> list[str]:
        """Return the layers that one takes, in one of the nets or the other."""
        return list(self.sources[name])

    def to_dict(self) -> dict[str, Any]:
        """Return a document that says all of it, and means the same."""
        layers = []
        taken = {
            (phase, each.layer.name): each.inputs
            for phase, net in self.nets.items()
            for each in net.layers
        }
        for layer in self.layers.values():
            flat = layer.flat
            inputs = taken[flat.phase[0], flat.name]
            entry: dict[str, Any] = {"name": flat.name, "type": flat.type}
            if inputs:
                entry["inputs"] = list(flat.inputs or inputs)
            params = {k: v for k, v in layer.inferred.params.items() if v is not None}
            entry |= {"params": params} if params else {}
            entry["phase"] = list(flat.phase)
            entry |= {"tiedTo": flat.tied_to} if flat.tied_to else {}
            layers.append(entry)
        named = {} if self.outputs is None else {"outputs": list(self.outputs)}
        return {
            "apiVersion": "airflow-training/v1",
            "kind": "Network",
            "metadata": self.metadata.model_dump(by_alias=True, exclude_unset=True),
            "spec": {"layers": layers, **named},
        }

    def to_yaml(self) -> str:
        """Return `to_dict` as YAML."""
        return dump_yaml(self.to_dict())


def resolve(
    metadata: NetworkMetadata, spec: NetworkSpec
) -> tuple[ResolvedNetwork | None, list[Problem]]:
    """Return the network, or None and every mistake of it."""
    flat, known, problems = expand(spec)
    if not flat and problems:
        return None, problems
    checked: set[str] = set()
    for each in flat:
        if each.field not in checked and len(problems) < MOST_FINDINGS:
            checked.add(each.field)  # turns of a block have the same parameters
            problems += params_problems(each.params, each.kind, each.type, each.field)
    if len(problems) >= MOST_FINDINGS:
        return None, distinct(problems)
    malformed = {
        problem.field.partition(".params")[0] for problem in problems if ".params." in problem.field
    }
    by_name = {each.name: each for each in flat}
    inferred: dict[str, InferredLayer] = {}
    nets: dict[Phase, Net] = {}
    for phase in PHASES:
        layers, found = net_of(flat, phase)
        found += _infer_net(layers, phase, inferred, malformed | {_layer_of(p) for p in found})
        outputs, wrong = _outputs(spec, known, by_name, layers, phase)
        nets[phase] = Net(layers=layers, outputs=outputs)
        problems += [*found, *wrong]
    resolved = {
        each.name: ResolvedLayer(flat=each, inferred=inferred[each.name])
        for each in flat
        if each.name in inferred
    }
    problems += _tie_problems(resolved)
    if not problems:
        problems += _use_problems(nets)
    problems = distinct(problems)
    if problems:
        return None, problems
    named = None if spec.outputs is None else [known.get(name, name) for name in spec.outputs]
    return (
        ResolvedNetwork(
            metadata=metadata,
            layers=resolved,
            nets=nets,
            outputs=named,
            sources=_sources(nets),
        ),
        [],
    )


def _sources(nets: Mapping[Phase, Net]) -> dict[str, Sequence[str]]:
    found: dict[str, dict[str, None]] = {}
    for net in nets.values():
        for each in net.layers:
            found.setdefault(each.layer.name, {}).update(dict.fromkeys(each.inputs))
    return {name: [*sources] for name, sources in found.items()}


def _layer_of(problem: Problem) -> str:
    return problem.field.partition(".inputs")[0]


def _infer_net(
    layers: Sequence[NetLayer],
    phase: Phase,
    inferred: dict[str, InferredLayer],
    malformed: set[str],
) -> list[Problem]:
    """Add what is inferred of the layers of a net; one that has it from the other net must agree."""
    problems = []
    here: dict[str, LayerOutput] = {}
    for each in layers:
        layer = each.layer
        if layer.field in malformed or any(name not in here for name in each.inputs):
            continue  # its own mistake is told, or that of a layer before it
        found = infer(layer, [here[name] for name in each.inputs])
        if isinstance(found, Problem):
            problems.append(found)
            continue
        other = inferred.setdefault(layer.name, found)
        if other != found:
            problems.append(_disagreement(layer, phase, found, other))
            continue
        here[layer.name] = found.output
    return problems


def _disagreement(
    layer: FlatLayer, phase: Phase, mine: InferredLayer, other: InferredLayer
) -> Problem:
    wrong = [key for key, value in mine.params.items() if other.params[key] != value]
    shapes = f"{list(other.output.shape)} there and {list(mine.output.shape)} here"
    if wrong:
        shapes = f"{wrong[0]} {other.params[wrong[0]]} there and {mine.params[wrong[0]]} here"
    return Problem(
        code="bad_shape",
        field=f"{layer.field}.inputs",
        value=list(mine.output.shape),
        message=f"layer '{layer.name}': the {NET_NAMES[phase]} makes it another than the {NET_NAMES['train']}: {shapes}",
        hint="what only one net has must not change the shapes after it",
    )


def _outputs(
    spec: NetworkSpec,
    known: Mapping[str, str],
    by_name: Mapping[str, FlatLayer],
    layers: Sequence[NetLayer],
    phase: Phase,
) -> tuple[dict[str, str], list[Problem]]:
    outputs: dict[str, str] = {}
    problems: list[Problem] = []
    there = [each.layer for each in layers]
    known_layers = [each.name for each in by_name.values() if each.kind.kind == "layer"]
    if spec.outputs is None:
        taken = {name for each in layers if each.layer.kind.kind == "layer" for name in each.inputs}
        ends = [each for each in there if each.kind.kind == "layer" and each.name not in taken]
        return {each.name: each.name for each in ends}, []
    for index, name in enumerate(spec.outputs):
        real = known.get(name, name)
        layer = by_name.get(real)
        if layer is None or layer.kind.kind in ("loss", "metric"):
            if len(problems) >= MOST_FINDINGS:
                break
            allowed = known_layers[-MAX_ALLOWED:]
            message = "is no layer" if layer is None else "is returned anyway"
            problems.append(
                Problem(
                    code="bad_reference",
                    field=f"spec.outputs[{index}]",
                    value=name,
                    message=message,
                    allowed=allowed if layer is None else (),
                    hint=did_you_mean(name, allowed),
                )
            )
        elif source := source_in(real, by_name, phase):
            outputs[name] = source
    return outputs, problems


def _tie_problems(layers: Mapping[str, ResolvedLayer]) -> list[Problem]:
    problems = []
    for layer in layers.values():
        name = layer.flat.tied_to
        if name is None or name not in layers:
            continue
        other = layers[name]
        mine, theirs = (each.inferred.weights.get("weight") for each in (layer, other))
        if mine is None or mine != theirs:
            message = f"has a weight of {mine}, and '{name}' one of {theirs}"
            hint = "layers that share a weight need sizes that make it equal"
        elif not {*layer.flat.phase} <= {*other.flat.phase}:
            message, hint = f"is in a net that '{name}' is not in", "give both the same phase"
        else:
            continue
        problems.append(
            Problem(
                code="conflict",
                field=f"{layer.flat.field}.tiedTo",
                value=name,
                message=f"layer '{layer.name}' {message}",
                hint=hint,
            )
        )
    return problems


def _use_problems(nets: Mapping[Phase, Net]) -> list[Problem]:
    """Return what is wrong with a network whose layers are all good."""
    problems = []
    used = {each.layer.name for net in nets.values() for each in net.inputs}
    for each in nets["train"].of_kind("input"):
        if each.layer.name not in used:
            message = f"layer '{each.layer.name}' is taken by no other layer"
            hint = "name it in the `inputs` of one, or remove it"
            problems.append(
                Problem(code="conflict", field=f"{each.layer.field}.name", value=each.layer.name, message=message, hint=hint)
            )  # fmt: skip
    losses = [each.layer.name for each in nets["train"].of_kind("loss")]
    for each in nets["train"].layers:
        if each.layer.name == "loss" and losses not in ([], ["loss"]):
            message = "is the name of the sum of all losses"
            problems.append(
                Problem(code="bad_name", field=f"{each.layer.field}.name", value="loss", message=message, hint="'loss_1' would do")
            )  # fmt: skip
    for phase, net in nets.items():
        if not net.outputs:
            message = f"the {NET_NAMES[phase]} has no output"
            hint = f"some layer must have {phase} in its phase"
            problems.append(
                Problem(code="missing", field="spec.layers", message=message, hint=hint)
            )
    return problems
