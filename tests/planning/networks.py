"""Networks that nobody described by its sizes: as tracing a module gives them, without names of dimensions."""

from __future__ import annotations

from itertools import pairwise

from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import ComputationView


def mlp(*sizes: int, batch: int = 32) -> ComputationView:
    """Return layers of these sizes with ReLU between them, a unit each, and a loss."""
    build = ViewBuilder("mlp", batch=batch)
    x = build.tensor("x", (("batch", batch), ("", sizes[0])), kind="input")
    for i, (m, n) in enumerate(pairwise(sizes)):
        weight = build.parameter(f"w{i}", ("", m), ("", n))
        bias = build.parameter(f"b{i}", ("", n))
        y = build.tensor(f"y{i}", (("", batch), ("", n)))
        build.operator(f"fc{i}", "matmul", (x, weight, bias), (y,), equation="bm,mn,n->bn")
        x = y
        if i < len(sizes) - 2:
            x = relu(build, f"relu{i}", y)
            build.unit(f"layer{i}")
    loss(build, x)
    return build.view()


def cnn(*channels: int, batch: int = 8, side: int = 16) -> ComputationView:
    """Return a stem, a residual block for each further number of channels, and a classifier."""
    build = ViewBuilder("cnn", batch=batch)
    image = (("batch", batch), ("", 3), ("", side), ("", side))
    x = relu(
        build, "stem.relu", conv(build, "stem", build.tensor("x", image, kind="input"), channels[0])
    )
    build.unit("stem")
    for i, count in enumerate(channels[1:]):
        y = relu(build, f"block{i}.relu", conv(build, f"block{i}.a", x, count))
        y = conv(build, f"block{i}.b", y, channels[0])
        total = build.tensor(f"block{i}.add", build.dims(y))
        build.operator(f"block{i}.add", "elementwise", (y, x), (total,), function="add")
        x = relu(build, f"block{i}.out", total)
        build.unit(f"block{i}")
    pooled = build.tensor("pooled", (("", batch), ("", channels[0])))
    build.operator("pooled", "reduce", (x,), (pooled,), dims=(2, 3), function="mean")
    weight = build.parameter("fc.weight", ("", channels[0]), ("", 10))
    logits = build.tensor("fc", (("", batch), ("", 10)))
    build.operator("fc", "matmul", (pooled, weight), (logits,), equation="bm,mn->bn")
    loss(build, logits)
    return build.view()


def conv(build: ViewBuilder, name: str, x: str, out: int) -> str:
    """Add a convolution of 3 x 3 that keeps the size, and a batch norm."""
    _, (_, channels), *space = build.dims(x)
    weight = build.parameter(f"{name}.weight", ("", out), ("", channels), ("", 3), ("", 3))
    y = build.tensor(name, (("", build.batch), ("", out), *space))
    build.operator(name, "conv", (x, weight), (y,))
    scales = [build.parameter(f"{name}.{part}", ("", out)) for part in ("scale", "shift")]
    normed = build.tensor(f"{name}.norm", build.dims(y))
    build.operator(f"{name}.norm", "batch_norm", (y, *scales), (normed,))
    return normed


def relu(build: ViewBuilder, name: str, x: str) -> str:
    y = build.tensor(name, build.dims(x))
    build.operator(name, "elementwise", (x,), (y,), function="relu")
    return y


def loss(build: ViewBuilder, logits: str) -> None:
    """Add a cross entropy and make the last unit of what has no unit yet."""
    build.tensor("labels", (("batch", build.batch),), dtype="int64", kind="input")
    build.tensor("loss", (("", build.batch),), dtype="float32", kind="output")
    build.operator("loss", "cross_entropy", (logits, "labels"), ("loss",))
    build.unit("head")
