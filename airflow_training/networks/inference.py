"""The shapes, parameters and operations of one layer, from what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.errors import Problem
from airflow_training.networks.expansion import FlatLayer
from airflow_training.networks.formulas import INSERTED, evaluate
from airflow_training.networks.shapes import Shape, ShapeError, numel

__all__ = ["InferredLayer", "LayerOutput", "infer"]

MOST_COUNTED = 2**63 - 1
"""Of the numbers that a layer gives, of its parameters and of its operations."""


@dataclass(frozen=True, slots=True)
class LayerOutput:
    """What a layer gives for one sample."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredLayer:
    """All that is known of a layer once its inputs are."""

    output: LayerOutput
    params: Mapping[str, Any]
    """Every parameter, in the order of the catalogue, inferred ones and defaults too."""
    left_out: frozenset[str]
    """Those that go without saying."""
    weights: Mapping[str, Shape | int]
    flops: int

    @property
    def parameters(self) -> int:
        return sum(map(numel, self.weights.values()))


class _FaultyLayer(Exception):
    """Raised in this module only: the first mistake of a layer, after which nothing more is known of it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def infer(layer: FlatLayer, inputs: Sequence[LayerOutput]) -> InferredLayer | Problem:
    """Infer shapes and parameters of a well-formed layer, or the reason why it cannot take these inputs."""
    try:
        return _infer(layer, inputs)
    except _FaultyLayer as fault:
        return fault.problem


def _infer(layer: FlatLayer, inputs: Sequence[LayerOutput]) -> InferredLayer:
    kind = layer.kind
    names: dict[str, Any] = {"inputs": [list(each.shape) for each in inputs]}
    names["shapes"] = " and ".join(str(shape) for shape in names["inputs"])
    if inputs:
        names["x"] = names["inputs"][0]
        _check_rank(layer, names["x"])
    _check_dtypes(layer, inputs)
    params, left_out = _params(layer, names)
    for need in kind.needs:
        if not _value(layer, need.that, names):
            raise _FaultyLayer(
                _problem(
                    layer,
                    need.param,
                    _filled(need.message, names),
                    value=params.get(need.param, names["inputs"]),
                    hint=_filled(need.hint, names),
                )
            )
    shape = _value(layer, kind.output, names)
    if not isinstance(shape, list) or any(type(size) is not int for size in shape):
        message = f"its type {layer.type} gives {shape!r}, which is no list of whole numbers"
        raise _FaultyLayer(_problem(layer, "inputs", message, value=names["inputs"]))
    names["y"] = shape
    weights = {key: _value(layer, formula, names) for key, formula in kind.weights.items()}
    flops = _value(layer, kind.flops, names)
    _check_size(layer, shape, weights, flops)
    dtype = kind.gives or (inputs[0].dtype if inputs else params["dtype"])
    return InferredLayer(
        output=LayerOutput(tuple(shape), dtype),
        params=params,
        left_out=left_out,
        weights={key: value for key, value in weights.items() if value},
        flops=flops,
    )


def _params(layer: FlatLayer, names: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the parameters and which of them need not be said; adds them to `names`."""
    params: dict[str, Any] = {}
    left_out = set()
    for key, wanted in layer.kind.params.items():
        given = layer.params.get(key)
        if wanted.infer:
            value = _value(layer, wanted.infer, names)
            if given is not None and given != value:
                message = f"is {given}, but its input {names['inputs']} makes it {value}"
                raise _FaultyLayer(
                    _problem(layer, key, message, value=given, allowed=[value], hint="leave it out")
                )
        elif key in layer.params:
            value = given
        else:
            value = _value(layer, wanted.fill, names) if wanted.fill else wanted.default
        params[key] = names[key] = value
        if wanted.type == "dim":
            names[key] = _position(layer, key, value, names["x"])
        elif wanted.type in ("sizes", "strides") and isinstance(value, list):
            _check_length(layer, key, value, names["x"])
        if _goes_without(layer, wanted.omit, names, value, (wanted.has_default, wanted.default)):
            left_out.add(key)
    return params, frozenset(left_out)


def _goes_without(
    layer: FlatLayer,
    omit: str,
    names: Mapping[str, Any],
    value: Any,
    default: tuple[bool, Any],
) -> bool:
    if omit:
        return bool(value == _value(layer, omit, names))
    return default[0] and type(value) is type(default[1]) and value == default[1]


def _check_length(layer: FlatLayer, key: str, value: Sequence[int], x: Shape) -> None:
    if len(value) != len(x) - 1:
        message = f"has {len(value)} values for {len(x) - 1} dimensions"
        raise _FaultyLayer(_problem(layer, key, message, value=value, hint="one number fits all"))


def _position(layer: FlatLayer, key: str, dim: int, x: Shape) -> int:
    """Return where a dimension stands in a shape without the batch."""
    count = len(x) + 1
    place = dim + count if dim < 0 else dim
    if not 0 < place < count:
        possible = [*range(1, count), *range(-len(x), 0)]
        what = "is the batch" if place == 0 else f"is no dimension of {x}"
        raise _FaultyLayer(
            _problem(
                layer, key, f"{dim} {what}; dimensions are counted from 1, as torch counts them",
                value=dim, allowed=possible,
            )
        )  # fmt: skip
    return place - 1


def _check_size(layer: FlatLayer, shape: Shape, weights: Mapping[str, Any], flops: int) -> None:
    """Refuse what torch cannot count; larger numbers could not even be written down."""
    counts = {
        "numbers that it gives": numel(shape),
        "parameters": sum(map(numel, weights.values())),
        "operations": flops,
    }
    for what, count in counts.items():
        if count > MOST_COUNTED:
            message = f"{what}: about 2**{count.bit_length() - 1}, more than torch can count, 2**63"
            raise _FaultyLayer(_problem(layer, "inputs", message, value=None, hint="smaller sizes"))


def _check_rank(layer: FlatLayer, x: Shape) -> None:
    ranks = layer.kind.ranks
    if not ranks or len(x) in ranks:
        return
    hint = "an Embedding, or the `shape` of the Input" if not x else ""
    if ranks == [3] and len(x) in (1, 2):
        hint = f"a Reshape to {layer.kind.takes} before it"
    elif len(x) > max(ranks):
        hint = "a Flatten, Reshape or Mean before it"
    message = f"{layer.type} takes {layer.kind.takes}, not {x}"
    raise _FaultyLayer(
        _problem(layer, "inputs", message, value=x, allowed=[layer.kind.takes], hint=hint)
    )


def _check_dtypes(layer: FlatLayer, inputs: Sequence[LayerOutput]) -> None:
    for position, each in enumerate(inputs):
        wanted = layer.kind.wanted_dtype(min(position, max(0, len(layer.kind.dtypes) - 1)))
        if wanted not in ("any", each.dtype):
            hint = (
                "an Embedding before it, or dtype: float32 of the Input"
                if wanted == "float32"
                else f"dtype: {wanted} of the Input"
            )
            message = f"{layer.type} takes {wanted} as input {position + 1}, not {each.dtype}"
            raise _FaultyLayer(
                _problem(layer, "inputs", message, value=each.dtype, allowed=[wanted], hint=hint)
            )


def _value(layer: FlatLayer, formula: str, names: Mapping[str, Any]) -> Any:
    try:
        return evaluate(formula, names)
    except ShapeError as error:
        value = layer.params.get(error.param, names["inputs"])
        problem = _problem(layer, error.param, str(error), value=value, hint=error.hint)
        raise _FaultyLayer(problem) from error
    except IndexError as error:
        message = f"{layer.type} needs more dimensions than {names['shapes']}"
        raise _FaultyLayer(_problem(layer, "inputs", message, value=names["inputs"])) from error
    except (ArithmeticError, NameError, TypeError, ValueError) as error:
        # a type of a user's: those of ours are tried with all that they take
        message = f"its type {layer.type} says `{formula}`, which fails here: {error}"
        raise _FaultyLayer(_problem(layer, "inputs", message, value=names["inputs"])) from error


def _filled(text: str, names: Mapping[str, Any]) -> str:
    """Return a text with the values of the formulas in its braces."""
    return INSERTED.sub(lambda found: str(evaluate(found[1], names)), text)


def _problem(
    layer: FlatLayer,
    param: str,
    message: str,
    *,
    value: Any,
    allowed: Sequence[Any] = (),
    hint: str = "",
) -> Problem:
    where = "inputs" if param == "inputs" else f"params.{param}"
    name = "" if param == "inputs" else f"{param} "
    return Problem(
        code="bad_shape" if param == "inputs" else "out_of_range",
        field=f"{layer.field}.{where}",
        value=value,
        message=f"layer '{layer.name}': {name}{message}",
        allowed=allowed,
        hint=hint,
    )
