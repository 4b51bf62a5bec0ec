"""What layers over sequences are in a computation view: places, recurrence, attention. Importing this registers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_training.planning.sources.network_writing import LayerWriter, writes

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
KEPT = ("selective", "full")


@writes("Positions")
def _positions(writer: LayerWriter) -> None:
    """Write the numbers without the batch: they are the same for every sample."""
    writer.gives(writer.tensor("places", writer.shape[1:], dtype="int64", kind="buffer"))


@writes("ClassToken")
def _class_token(writer: LayerWriter) -> None:
    (source,) = writer.inputs
    batch, _, width = writer.shape
    weight = writer.reshape("row", writer.parameter("weight"), (1, 1, width))
    token = writer.operator("token", "expand", [weight], (batch, 1, width))
    writer.gives(writer.operator("out", "concatenate", [token, source], dim=1))


@writes("RNN", "GRU", "LSTM")
def _recurrent(writer: LayerWriter) -> None:
    """Write the products of all steps as if they were one: what they cost, not that they wait for each other."""
    sequence = writer.inputs[0]
    for number in range(writer.params["num_layers"]):
        parts = [
            _direction(writer, sequence, f"l{number}{side}")
            for side in (("", "_reverse") if writer.params["bidirectional"] else ("",))
        ]
        sequence = parts[0]
        if len(parts) > 1:
            sequence = writer.operator(f"both_l{number}", "concatenate", parts, dim=2)
    writer.gives(sequence)


def _direction(writer: LayerWriter, sequence: str, place: str) -> str:
    """Write one layer of a recurrent net in one direction; return its output at every step."""
    batch, length, width = writer.shape_of(sequence)
    gates, hidden = GATES[writer.type], writer.params["hidden_size"]
    four, state = (batch, length, gates, hidden), (batch, length, hidden)

    def product(part: str, source: str, size: int) -> str:
        inputs = [source, writer.parameter(f"weight_{part}_{place}", (gates, hidden, size))]
        bias = ""
        if writer.params["bias"]:
            inputs.append(writer.parameter(f"bias_{part}_{place}", (gates, hidden)))
            bias = ",gh"
        equation = f"blk,ghk{bias}->blgh"
        return writer.operator(f"{part}_{place}", "matmul", inputs, four, equation=equation)

    taken = product("ih", sequence, width)
    before = writer.operator(f"before_{place}", "reduce", [taken], state, dims=(2,), function="sum")
    both = writer.operator(
        f"gates_{place}",
        "elementwise",
        [taken, product("hh", before, hidden)],
        four,
        function="tanh",
    )
    return writer.operator(f"state_{place}", "reduce", [both], state, dims=(2,), function="sum")


@writes("MultiheadAttention")
def _multihead(writer: LayerWriter) -> None:
    query = writer.inputs[0]
    key = writer.inputs[min(1, len(writer.inputs) - 1)]
    writer.gives(
        _attention(
            writer, "", query, key, writer.inputs[-1], heads=writer.params["num_heads"],
            causal=writer.params["is_causal"],
        )
    )  # fmt: skip


@writes("TransformerEncoderLayer")
def _encoder(writer: LayerWriter) -> None:
    (stream,) = writer.inputs
    heads, causal = writer.params["nhead"], writer.params["is_causal"]
    stream = _around(
        writer, "attention", stream,
        lambda x: _attention(writer, "self_", x, x, x, heads=heads, causal=causal),
    )  # fmt: skip
    writer.gives(_around(writer, "dense", stream, lambda x: _dense(writer, x)))


@writes("TransformerDecoderLayer")
def _decoder(writer: LayerWriter) -> None:
    stream, memory = writer.inputs
    heads, causal = writer.params["nhead"], writer.params["is_causal"]
    stream = _around(
        writer, "attention", stream,
        lambda x: _attention(writer, "self_", x, x, x, heads=heads, causal=causal),
    )  # fmt: skip
    stream = _around(
        writer, "memory", stream,
        lambda x: _attention(writer, "memory_", x, memory, memory, heads=heads, causal=False),
    )  # fmt: skip
    writer.gives(_around(writer, "dense", stream, lambda x: _dense(writer, x)))


def _around(writer: LayerWriter, part: str, stream: str, branch: Any) -> str:
    """Write a branch with its residual, and its norm before it or after their sum."""
    first = writer.params["norm_first"]
    given = branch(_norm(writer, part, stream) if first else stream)
    inputs = [given, stream]
    if writer.params["dropout"]:
        mask = writer.tensor(f"{part}_mask", writer.shape, dtype="bool")
        inputs[0] = writer.operator(
            f"{part}_dropped", "elementwise", [given], more=[mask], function="dropout"
        )
    summed = writer.operator(f"{part}_sum", "elementwise", inputs, function="add")
    return summed if first else _norm(writer, part, summed)


def _norm(writer: LayerWriter, part: str, source: str) -> str:
    width = writer.shape[-1:]
    inputs = [source, writer.parameter(f"{part}_norm_weight", width)]
    if writer.params["bias"]:
        inputs.append(writer.parameter(f"{part}_norm_bias", width))
    return writer.operator(f"{part}_norm", "norm", inputs, rank=1)


def _dense(writer: LayerWriter, source: str) -> str:
    batch, length, width = writer.shape
    inner = writer.params["dim_feedforward"]
    wide = _product(writer, "up", source, (batch, length, inner), "bsk,nk", "n", (inner, width))
    act = writer.operator(
        "act", "elementwise", [wide], (batch, length, inner), function=writer.params["activation"]
    )
    if writer.params["dropout"]:
        mask = writer.tensor("act_mask", (batch, length, inner), dtype="bool")
        act = writer.operator(
            "act_dropped",
            "elementwise",
            [act],
            (batch, length, inner),
            more=[mask],
            function="dropout",
        )
    return _product(writer, "down", act, writer.shape, "bsk,nk", "n", (width, inner))


def _attention(
    writer: LayerWriter, part: str, query: str, key: str, value: str, *, heads: int, causal: bool
) -> str:
    """Write the projections, the fused attention and the projection of its result."""
    batch, length, width = writer.shape
    head = width // heads
    parts = []
    for name, source in (("query", query), ("key", key), ("value", value)):
        _, rows, size = writer.shape_of(source)
        shape, weight = (batch, rows, heads, head), (heads, head, size)
        parts.append(_product(writer, f"{part}{name}", source, shape, "bsk,adk", "ad", weight))
    if writer.shape_of(key)[1] == length:
        totals = writer.tensor(f"{part}rows", (batch, heads, length), dtype="float32")
        context = writer.operator(
            f"{part}context", "attention", parts, (batch, length, heads, head), more=[totals],
            causal=causal, recompute=KEPT,
        )  # fmt: skip
    else:
        context = _unfused(writer, part, *parts)
    weight = (width, heads, head)
    return _product(writer, f"{part}out", context, writer.shape, "bsad,nad", "n", weight)


def _unfused(writer: LayerWriter, part: str, query: str, key: str, value: str) -> str:
    """Write attention to a sequence of another length, for which the fused one has no rule."""
    batch, length, heads, _ = shape = writer.shape_of(query)
    square = (batch, heads, length, writer.shape_of(key)[1])
    scores = writer.operator(
        f"{part}scores", "matmul", [query, key], square, equation="bsad,btad->bast", recompute=KEPT
    )
    shares = writer.operator(f"{part}shares", "softmax", [scores], square, recompute=KEPT)
    return writer.operator(
        f"{part}context",
        "matmul",
        [shares, value],
        shape,
        equation="bast,btad->bsad",
        recompute=KEPT,
    )


def _product(
    writer: LayerWriter,
    part: str,
    source: str,
    shape: Sequence[int],
    left: str,
    new: str,
    weight: Sequence[int],
) -> str:
    """Write a product with a weight, and a bias over the new dimensions."""
    inputs = [source, writer.parameter(f"{part}_weight", weight)]
    bias = ""
    if writer.params["bias"]:
        inputs.append(writer.parameter(f"{part}_bias", shape[len(shape) - len(new) :]))
        bias = f",{new}"
    equation = f"{left}{bias}->bs{new}"
    return writer.operator(f"{part}", "matmul", inputs, shape, equation=equation)
