"""What types of layers are in a computation view: dense, convolutions, norms, activations, shapes, losses.

Importing this registers them. A type that is not here, or in `network_sequences`, is written under its own name, which has no rule.
"""

from __future__ import annotations

from math import prod

from airflow_training.planning.sources.network_writing import LayerWriter, writes

LETTERS = "abcdefghijlmopqrstuvwxyz"
"""For einsum equations; k is what is summed over, n a new dimension."""
ELEMENTWISE = {
    "ReLU": "relu", "ReLU6": "hardtanh", "GELU": "gelu", "SiLU": "silu", "Tanh": "tanh", "Sigmoid": "sigmoid",
    "LeakyReLU": "leaky_relu", "ELU": "elu", "SELU": "selu", "Softplus": "softplus", "Mish": "mish",
    "Hardswish": "hardswish", "Hardsigmoid": "hardsigmoid", "LocalResponseNorm": "local_response_norm",
    "Multiply": "mul", "Subtract": "sub", "Maximum": "maximum", "Add": "add",
}  # fmt: skip
"""Type of layer -> function of single elements."""
REDUCED = {"Mean": "mean", "Sum": "sum", "Max": "amax"}


@writes("Input")
def _input(writer: LayerWriter) -> None:
    dtype = "compute" if writer.dtype == "float32" else writer.dtype
    writer.gives(writer.tensor("given", writer.shape, dtype=dtype, kind="input"))


@writes("Identity")
def _identity(writer: LayerWriter) -> None:
    writer.gives(writer.inputs[0])


@writes("Linear")
def _linear(writer: LayerWriter) -> None:
    rows = LETTERS[: len(writer.shape) - 1]
    inputs = [writer.inputs[0], writer.parameter("weight")]
    bias = ""
    if "bias" in writer.weights:
        inputs.append(writer.parameter("bias"))
        bias = ",n"
    writer.gives(writer.operator("out", "matmul", inputs, equation=f"{rows}k,nk{bias}->{rows}n"))


@writes("Embedding")
def _embedding(writer: LayerWriter) -> None:
    numbers = writer.shape_of(writer.inputs[0])
    shape = (*numbers, writer.shape[-1])
    inputs = [writer.inputs[0], writer.parameter("weight")]
    rows = writer.operator("rows", "embedding", inputs, shape)
    if shape != writer.shape:  # the numbers of Positions are without the batch
        rows = writer.operator("out", "expand", [rows])
    writer.gives(rows)


@writes("EmbeddingBag")
def _bag(writer: LayerWriter) -> None:
    length = writer.shape_of(writer.inputs[0])[1]
    inputs = [writer.inputs[0], writer.parameter("weight")]
    each = writer.operator(
        "rows", "embedding", inputs, (*writer.shape[:1], length, *writer.shape[1:])
    )
    function = {"max": "amax"}.get(writer.params["mode"], writer.params["mode"])
    writer.gives(writer.operator("out", "reduce", [each], dims=(1,), function=function))


@writes("Conv1d", "Conv2d", "Conv3d")
def _convolution(writer: LayerWriter) -> None:
    writer.gives(writer.operator("out", "conv", [writer.inputs[0], *writer.own_parameters()]))


@writes("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
def _transposed(writer: LayerWriter) -> None:
    """Write the product of each place with the kernel, and the sum of those that overlap."""
    (source,), groups = writer.inputs, writer.params["groups"]
    weights = writer.own_parameters()
    if groups > 1:
        writer.gives(writer.operator("out", "grouped_conv_transpose", [source, *weights]))
        return
    batch, channels, *space = writer.shape_of(source)
    _, out, *window = writer.shape_of(weights[0])
    flat = writer.reshape("places", source, (batch, channels, prod(space)))
    letters = "ijl"[: len(window)]
    equation = f"bcs,co{letters}->bos{letters}"
    product = writer.operator(
        "product",
        "matmul",
        [flat, weights[0]],
        (batch, out, prod(space), *window),
        equation=equation,
    )
    dims = tuple(range(3, 3 + len(window)))
    summed = writer.operator(
        "summed", "reduce", [product], (batch, out, prod(space)), dims=dims, function="sum"
    )
    result = writer.operator("out", "pool", [summed], window=1)
    if weights[1:]:
        bias = writer.reshape("channel_bias", weights[1], (out, *[1] * len(space)))
        result = writer.operator("biased", "elementwise", [result, bias], function="add")
    writer.gives(result)


@writes(
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "Upsample", "ZeroPad2d",
)  # fmt: skip
def _pool(writer: LayerWriter) -> None:
    before, after = writer.shape_of(writer.inputs[0])[2:], writer.shape[2:]
    kernel = writer.params.get("kernel_size")
    window = 1
    if kernel is not None:
        window = prod(kernel) if isinstance(kernel, list) else kernel ** len(before)
    elif "output_size" in writer.params:
        window = max(1, prod(before) // prod(after))
    writer.gives(writer.operator("out", "pool", writer.inputs, window=window))


@writes("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
def _batch_norm(writer: LayerWriter) -> None:
    inputs = [*writer.inputs, *writer.own_parameters()]
    writer.gives(writer.operator("out", "batch_norm", inputs))


@writes("GroupNorm", "InstanceNorm1d", "InstanceNorm2d")
def _group_norm(writer: LayerWriter) -> None:
    inputs = [*writer.inputs, *writer.own_parameters()]
    writer.gives(writer.operator("out", "group_norm", inputs))


@writes("LayerNorm", "RMSNorm")
def _norm(writer: LayerWriter) -> None:
    rank = len(writer.params["normalized_shape"])
    inputs = [*writer.inputs, *writer.own_parameters()]
    writer.gives(writer.operator("out", "norm", inputs, rank=rank))


@writes("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout")
def _dropout(writer: LayerWriter) -> None:
    mask = writer.tensor("mask", writer.shape, dtype="bool")
    writer.gives(
        writer.operator("out", "elementwise", writer.inputs, more=[mask], function="dropout")
    )


@writes(*ELEMENTWISE)
def _elementwise(writer: LayerWriter) -> None:
    function = ELEMENTWISE[writer.type]
    writer.gives(
        writer.operator(
            "out",
            "elementwise",
            writer.inputs,
            function=function,
            flops=max(1.0, len(writer.inputs) - 1.0),
        )
    )


@writes("PReLU")
def _prelu(writer: LayerWriter) -> None:
    weight = writer.parameter("weight")
    if writer.params["num_parameters"] > 1:
        weight = writer.reshape(
            "shares", weight, (*writer.shape[1:2], *[1] * (len(writer.shape) - 2))
        )
    writer.gives(writer.operator("out", "elementwise", [*writer.inputs, weight], function="prelu"))


@writes("Softmax", "LogSoftmax")
def _softmax(writer: LayerWriter) -> None:
    writer.gives(writer.operator("out", "softmax", writer.inputs, dim=writer.dim()))


@writes("TopKSoftmax")
def _top_k_softmax(writer: LayerWriter) -> None:
    writer.gives(writer.operator("out", "softmax", writer.inputs, dim=len(writer.shape) - 1))


@writes("GLU")
def _gated(writer: LayerWriter) -> None:
    dim = writer.dim()
    gate = writer.tensor("gate", writer.shape)
    half = writer.operator("half", "split", writer.inputs, more=[gate], dim=dim)
    share = writer.operator("share", "elementwise", [gate], function="sigmoid")
    writer.gives(writer.operator("out", "elementwise", [half, share], function="mul"))


@writes("Flatten", "Reshape", "PixelShuffle")
def _reshape(writer: LayerWriter) -> None:
    writer.gives(writer.reshape("out", writer.inputs[0], writer.shape))


@writes("Permute")
def _permute(writer: LayerWriter) -> None:
    order = tuple(writer.params["dims"])
    writer.gives(writer.operator("out", "transpose", writer.inputs, order=order))


@writes("Select")
def _select(writer: LayerWriter) -> None:
    dim = writer.dim()
    shape = list(writer.shape_of(writer.inputs[0]))
    shape[dim] = 1
    one = writer.operator("one", "split", writer.inputs, shape, dim=dim)
    writer.gives(writer.reshape("out", one, writer.shape))


@writes(*REDUCED)
def _reduce(writer: LayerWriter) -> None:
    writer.gives(
        writer.operator(
            "out", "reduce", writer.inputs, dims=(writer.dim(),), function=REDUCED[writer.type]
        )
    )


@writes("Concat")
def _concatenate(writer: LayerWriter) -> None:
    writer.gives(writer.operator("out", "concatenate", writer.inputs, dim=writer.dim()))


@writes("Stack")
def _stack(writer: LayerWriter) -> None:
    batch, _, *rest = writer.shape
    rows = [
        writer.reshape(f"row{place}", source, (batch, 1, *rest))
        for place, source in enumerate(writer.inputs)
    ]
    writer.gives(writer.operator("out", "concatenate", rows, dim=1))


@writes("Dot", "CosineSimilarity")
def _dot(writer: LayerWriter) -> None:
    shape = writer.shape_of(writer.inputs[0])
    dim = len(shape) - 1 if writer.type == "Dot" else writer.dim()
    products = writer.operator("products", "elementwise", writer.inputs, shape, function="mul")
    writer.gives(writer.operator("out", "reduce", [products], dims=(dim,), function="sum"))


@writes("MatMul")
def _matmul(writer: LayerWriter) -> None:
    rows = LETTERS[: len(writer.shape) - 1]
    equation = f"{rows}k,{rows[:-1]}kn->{rows}n"
    writer.gives(writer.operator("out", "matmul", writer.inputs, equation=equation))


@writes("Scale")
def _scale(writer: LayerWriter) -> None:
    values, factors = writer.inputs
    own = writer.shape_of(factors)
    wide = writer.reshape("factors", factors, (*own, *[1] * (len(writer.shape) - len(own))))
    writer.gives(writer.operator("out", "elementwise", [values, wide], function="mul"))


@writes("CrossEntropyLoss", "NLLLoss")
def _cross_entropy(writer: LayerWriter) -> None:
    scores, labels = writer.inputs
    shape = writer.shape_of(scores)
    if len(shape) > 2:
        order = (0, *range(2, len(shape)), 1)
        scores = writer.operator(
            "classes_last", "transpose", [scores], [shape[i] for i in order], order=order
        )
    rows = writer.shape_of(labels)
    each = writer.operator("rows", "cross_entropy", [scores, labels], rows)
    _mean(writer, each)


@writes("MSELoss", "L1Loss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss", "TripletMarginLoss")
def _compared(writer: LayerWriter) -> None:
    shape = writer.shape_of(writer.inputs[0])
    each = writer.operator(
        "rows", "elementwise", writer.inputs, shape, function=writer.type, flops=3.0
    )
    _mean(writer, each)


@writes("PairwiseRankingLoss")
def _pairwise(writer: LayerWriter) -> None:
    """Write what is done with each pair of a list."""
    batch, count = writer.shape_of(writer.inputs[0])
    sides = [
        writer.reshape(f"{part}{place}", source, shape)
        for part, source in zip(("scores", "relevance"), writer.inputs, strict=True)
        for place, shape in enumerate(((batch, count, 1), (batch, 1, count)))
    ]
    pairs = writer.operator(
        "pairs", "elementwise", sides, (batch, count, count), function="logistic", flops=6.0
    )
    _mean(writer, pairs)


@writes("ListwiseRankingLoss")
def _listwise(writer: LayerWriter) -> None:
    shape = writer.shape_of(writer.inputs[0])
    shares = [
        writer.operator(part, "softmax", [source], shape, dim=1)
        for part, source in zip(("scores", "relevance"), writer.inputs, strict=True)
    ]
    _mean(writer, writer.operator("rows", "elementwise", shares, shape, function="mul", flops=2.0))


def _mean(writer: LayerWriter, each: str) -> None:
    dims = tuple(range(len(writer.shape_of(each))))
    writer.gives(writer.operator("out", "reduce", [each], (), dims=dims, function="mean"))
