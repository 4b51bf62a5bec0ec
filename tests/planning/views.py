"""Hypothesis strategies for views of integers and for partial annotations of them."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from airflow_training.planning.reshard.distribution import Mesh
from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.labels import AxisSeed

SIZES = st.sampled_from([1, 2, 3, 4, 5, 6])
ROWS = 5
"""Rows of every embedding's table."""


class _Drawer:
    """Adds operators that read what is there."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.build = ViewBuilder("random")
        self.numbers: list[str] = []
        """Tensors that hold rows of a table."""
        for _ in range(draw(st.integers(1, 3))):
            self.given(draw(st.lists(SIZES, min_size=1, max_size=3)))

    def given(self, shape, kind="parameter", prefix="given") -> str:
        name = f"{prefix}{len(self.build.tensors)}"
        return self.build.tensor(name, [("", size) for size in shape], kind=kind)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.build.tensors[name].shape

    def any_tensor(self, *, least: int = 0) -> str:
        known = [
            name
            for name in self.build.tensors
            if name not in self.numbers and len(self.shape(name)) >= least
        ]
        return self.draw(st.sampled_from(known)) if known else self.given([2] * least)

    def add(self, kind: str, inputs: list[str], *shapes, **attributes) -> None:
        outputs = [self.given(shape, "activation", kind) for shape in shapes]
        self.build.operator(f"run_{outputs[0]}", kind, inputs, outputs, **attributes)

    def matmul(self) -> None:
        """Rows of a tensor times a matrix, some dimensions kept apart as a batch."""
        left = self.any_tensor(least=1)
        *rows, summed = self.shape(left)
        if len(rows) <= 2 and self.draw(st.booleans()) and self.draw(st.booleans()):
            # A tensor times itself.
            letters = "abcdefg"[: len(rows)]
            other = letters.upper()
            self.add(
                "matmul",
                [left, left],
                (*rows, *rows),
                equation=f"{letters}k,{other}k->{letters}{other}",
            )
            return
        batch = self.draw(st.integers(0, len(rows)))
        width = self.draw(SIZES)
        right = self.given([*rows[:batch], summed, width])
        letters = "abcdefg"[: len(rows)]
        left_and_right = f"{letters}k,{letters[:batch]}kn"
        if self.draw(st.booleans()):
            bias, equation = self.given([width]), f"{left_and_right},n->{letters}n"
            self.add("matmul", [left, right, bias], (*rows, width), equation=equation)
        else:
            equation = f"{left_and_right}->{letters}n"
            self.add("matmul", [left, right], (*rows, width), equation=equation)

    def softmax(self) -> None:
        name = self.any_tensor(least=1)
        shape = self.shape(name)
        self.add("softmax", [name], shape, dim=self.draw(st.integers(-len(shape), -1)))

    def norm(self) -> None:
        name = self.any_tensor(least=1)
        shape = self.shape(name)
        last = self.draw(st.integers(0, len(shape) - 1))
        self.add("norm", [name, self.given(shape[last:])], shape)

    def attention(self) -> None:
        batch, sequence, heads, groups, head = (self.draw(SIZES) for _ in range(5))
        query = self.given([batch, sequence, heads * groups, head])
        key, value = (self.given([batch, sequence, heads, head]) for _ in range(2))
        first = self.draw(st.booleans())
        if first:
            query, key, value = (self.swapped(name) for name in (query, key, value))
        self.add("attention", [query, key, value], self.shape(query), heads_first=first)

    def swapped(self, name: str) -> str:
        batch, sequence, heads, head = self.shape(name)
        self.add("transpose", [name], (batch, heads, sequence, head), order=(0, 2, 1, 3))
        return list(self.build.tensors)[-1]

    def cross_entropy(self) -> None:
        logits = self.any_tensor(least=1)
        rows = self.shape(logits)[:-1]
        labels = self.given(rows, prefix="rows")
        self.numbers.append(labels)
        self.add("cross_entropy", [logits, labels], rows)

    def elementwise(self) -> None:
        first = self.any_tensor()
        shape = self.shape(first)
        function = self.draw(st.sampled_from(["add", "sub", "mul", "neg", "relu"]))
        if function in {"neg", "relu"}:
            self.add("elementwise", [first], shape, function=function)
            return
        same = [n for n in self.build.tensors if self.shape(n) == shape and n not in self.numbers]
        cut = self.draw(st.integers(0, len(shape)))
        broadcast = [size if self.draw(st.booleans()) else 1 for size in shape[cut:]]
        second = self.draw(st.sampled_from([*same, ""])) or self.given(broadcast)
        self.add("elementwise", [first, second], shape, function=function)

    def sum_of(self) -> None:
        first = self.any_tensor()
        same = [n for n in self.build.tensors if self.shape(n) == self.shape(first)]
        others = self.draw(st.lists(st.sampled_from(same), min_size=1, max_size=2))
        if not set(others) & set(self.numbers):
            self.add("sum_of", [first, *others], self.shape(first))

    def reduce(self) -> None:
        name = self.any_tensor(least=1)
        shape = self.shape(name)
        dims = self.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
        keep = self.draw(st.booleans())
        left = [1 if i in dims else n for i, n in enumerate(shape) if keep or i not in dims]
        function = self.draw(st.sampled_from(["sum", "max"]))
        self.add("reduce", [name], left, dims=tuple(sorted(dims)), keep=keep, function=function)

    def embedding(self) -> None:
        rows = self.draw(st.lists(SIZES, min_size=1, max_size=2))
        numbers = self.given(rows, prefix="rows")
        self.numbers.append(numbers)
        width = self.draw(SIZES)
        self.add("embedding", [numbers, self.given([ROWS, width])], (*rows, width))

    def transpose(self) -> None:
        name = self.any_tensor(least=2)
        shape = self.shape(name)
        order = self.draw(st.permutations(range(len(shape))))
        self.add("transpose", [name], [shape[i] for i in order], order=tuple(order))

    def reshape(self) -> None:
        name = self.any_tensor(least=1)
        left = prod(self.shape(name))
        shape: list[int] = []
        while left > 1 and len(shape) < 3:
            size = self.draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0]))
            shape.append(size)
            left //= size
        self.add("reshape", [name], [*shape, left])

    def expand(self) -> None:
        name = self.any_tensor()
        shape = [self.draw(SIZES) if size == 1 else size for size in self.shape(name)]
        front = self.draw(st.lists(SIZES, max_size=1))
        self.add("expand", [name], [*front, *shape])

    def split(self) -> None:
        name = self.any_tensor(least=1)
        shape = self.shape(name)
        dim = self.draw(st.integers(0, len(shape) - 1))
        cut = self.draw(st.integers(0, shape[dim]))
        parts = [(*shape[:dim], size, *shape[dim + 1 :]) for size in (cut, shape[dim] - cut)]
        if cut and cut < shape[dim]:
            self.add("split", [name], *parts, dim=dim)

    def concatenate(self) -> None:
        name = self.any_tensor(least=1)
        shape = self.shape(name)
        dim = self.draw(st.integers(0, len(shape) - 1))
        other = self.given([*shape[:dim], self.draw(SIZES), *shape[dim + 1 :]])
        size = shape[dim] + self.shape(other)[dim]
        self.add("concatenate", [name, other], (*shape[:dim], size, *shape[dim + 1 :]), dim=dim)

    def unheard_of(self) -> None:
        name = self.any_tensor()
        self.add("unheard_of", [name], self.shape(name))


KINDS = [
    name
    for name in vars(_Drawer)
    if name
    in {
        "matmul",
        "elementwise",
        "sum_of",
        "reduce",
        "embedding",
        "transpose",
        "reshape",
        "expand",
        "split",
        "concatenate",
        "softmax",
        "norm",
        "attention",
        "cross_entropy",
        "unheard_of",
    }
]


@st.composite
def views(draw: st.DrawFn) -> tuple[ComputationView, tuple[str, ...]]:
    """Return a view in one to three units, and its tensors that hold rows of a table."""
    drawer = _Drawer(draw)
    for number in range(draw(st.integers(1, 3))):
        for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)):
            getattr(drawer, kind)()
        drawer.build.unit(f"unit{number}")
    return drawer.build.view(), tuple(drawer.numbers)


@st.composite
def partial_annotations(draw: st.DrawFn, view: ComputationView, mesh: Mesh) -> tuple[AxisSeed, ...]:
    """Return splits (and refusals of splits) of some tensors."""
    pairs = [(name, axis) for name in view.tensors for axis in mesh.axes]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6))
    seeds = []
    for name, axis in chosen:
        rank = len(view.tensors[name].shape)
        dim = draw(st.integers(-1, rank - 1))
        seeds.append(AxisSeed(name, axis, None if dim < 0 else dim, draw(st.integers(0, 1))))
    return tuple(seeds)
