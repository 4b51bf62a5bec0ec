"""Small models of many kinds, each with data and loss: what is trained serially and split, and compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan
from torch.nn import functional

BATCH, CLASSES, WORDS, LENGTH, WIDTH = 16, 8, 16, 8, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A model, and how its inputs and targets are drawn; `positions` targets per sample, 0 for one class."""

    make: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator, int], tuple[Tensor, ...]]
    positions: int = 0

    def batch(self, step: int, size: int = BATCH) -> tuple[Any, Tensor]:
        """Draw the batch of a step, equal on all ranks."""
        generator = torch.Generator().manual_seed(1000 + step)
        given = self.inputs(generator, size)
        shape = (size, self.positions) if self.positions else (size,)
        target = torch.randint(0, CLASSES, shape, generator=generator)
        return (given if len(given) > 1 else given[0]), target


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean over samples and positions."""
    return functional.cross_entropy(output.flatten(0, -2), target.flatten())


def _vectors(generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
    return (torch.randn(size, WIDTH, generator=generator, dtype=torch.float64),)


def _sequences(generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
    return (torch.randn(size, LENGTH, WIDTH, generator=generator, dtype=torch.float64),)


def _images(generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
    return (torch.randn(size, 3, 8, 8, generator=generator, dtype=torch.float64),)


def _words(generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, WORDS, (size, LENGTH), generator=generator),)


def _two_texts(generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
    return (*_words(generator, size), *_words(generator, size))


def _two_ids(generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
    return (
        torch.randint(0, 32, (size,), generator=generator),
        torch.randint(0, 24, (size,), generator=generator),
    )


def mlp() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 16),
        nn.ReLU(),
        nn.Linear(16, CLASSES),
    )


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = norm(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(functional.relu(self.norm(self.first(x))))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList([ResidualBlock(8, norm) for _ in range(3)])
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


def resnet_group() -> nn.Module:
    return ResNet(lambda channels: nn.GroupNorm(2, channels))


def resnet_batch() -> nn.Module:
    return ResNet(nn.BatchNorm2d)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(words))
        return self.head(states[:, -1])  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(
            WIDTH, WIDTH, bias=False
        )  # softmax is blind to it: rounding alone would move it
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        size, length, _ = x.shape

        def heads(values: Tensor) -> Tensor:
            return values.view(size, values.shape[1], 4, WIDTH // 4).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            heads(self.query(x)),
            heads(self.key(memory)),
            heads(self.value(memory)),
            is_causal=self.causal,
        )
        return self.out(mixed.transpose(1, 2).reshape(size, length, WIDTH))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, *, causal: bool, crossed: bool = False) -> None:
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.attention = Attention(causal=causal)
        self.crossed = crossed
        if crossed:
            self.between = nn.LayerNorm(WIDTH)
            self.cross = Attention(causal=False)
        self.after = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.before(x))
        if self.crossed:
            x = x + self.cross(self.between(x), memory)
        return x + self.down(functional.gelu(self.up(self.after(x))))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(causal=False) for _ in range(4)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # type: ignore[no-any-return]


def torch_encoder() -> nn.Module:
    """Make an encoder of torch's own layers, whose attention has one weight for queries, keys and values."""
    layers = [
        nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        for _ in range(2)
    ]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


class FusedAttention(nn.Module):
    """Queries, keys and values are one projection, as in GPT-2, and the two halves of what follows are, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.attend = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.after = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2)
            for part in self.attend(self.before(x)).split(WIDTH, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, value = self.up(self.after(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * value)  # type: ignore[no-any-return]


def fused() -> nn.Module:
    return nn.Sequential(*(FusedAttention() for _ in range(3)), nn.Linear(WIDTH, CLASSES))


class Scanned(nn.Module):
    """A recurrent layer whose steps are one `scan`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.recurrent = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        steps = self.inner(self.embedding(words)).movedim(1, 0)

        def step(state: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
            state = torch.tanh(self.recurrent(state) + given)
            return state, state.clone()

        last, _ = scan(step, torch.zeros_like(steps[0]), steps)
        return self.head(last)  # type: ignore[no-any-return]


class Branching(nn.Module):
    """Its weights decide which of two layers it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.third = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = torch.cond(
            self.first.weight.sum() > 0,
            lambda x: torch.tanh(self.second(x)),
            lambda x: functional.silu(self.third(x)),
            (x,),
        )
        return self.head(x)  # type: ignore[no-any-return]


class GPT(nn.Module):
    """The head is the table of words itself."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList([Layer(causal=True) for _ in range(4)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Each token takes the two experts its gate likes most, weighted; all are computed."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, count)
        self.up = nn.Parameter(torch.randn(count, WIDTH, 2 * WIDTH) / 4)
        self.down = nn.Parameter(torch.randn(count, 2 * WIDTH, WIDTH) / 4)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x)
        top = scores.topk(2, dim=-1).values[..., -1:]
        share = torch.softmax(scores.masked_fill(scores < top, float("-inf")), dim=-1)
        hidden = functional.gelu(torch.einsum("bsh,ehf->bsef", x, self.up))
        return torch.einsum("bsef,efh,bse->bsh", hidden, self.down, share)


class MixtureOfExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Experts() for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        return self.head(x)  # type: ignore[no-any-return]


class EncoderDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(WORDS, WIDTH)
        self.target = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.ModuleList([Layer(causal=False) for _ in range(2)])
        self.decoder = nn.ModuleList([Layer(causal=True, crossed=True) for _ in range(2)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.source(source)
        for layer in self.encoder:
            memory = layer(memory)
        x = self.target(target)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(x)  # type: ignore[no-any-return]


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(16, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge = nn.Conv2d(16, 8, 3, padding=1)
        self.head = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = functional.relu(self.stem(x))
        deep = functional.relu(self.middle(functional.relu(self.down(wide))))
        both = torch.cat([wide, self.up(deep)], dim=1)
        return self.head(functional.relu(self.merge(both))).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]


class TwoTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(32, WIDTH)
        self.items = nn.Embedding(24, WIDTH)
        self.user = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.item = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.head(self.user(self.users(users)) * self.item(self.items(items)))  # type: ignore[no-any-return]


class FrozenNorm(nn.Module):
    """A batch norm that stays as it was trained, as in fine-tuning."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH).eval()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.first(x)))  # type: ignore[no-any-return]


class Padded(nn.Module):
    """A table whose first row is for padding and gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(WORDS, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(functional.embedding(words, self.table, padding_idx=0))  # type: ignore[no-any-return]


class Spare(nn.Module):
    """It holds a layer that its forward pass never reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.spare = nn.Linear(3, 3)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.relu(self.first(x)))  # type: ignore[no-any-return]


class Mixed(nn.Module):
    """Its result for a sample depends on the others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        return self.head(x - x.mean(0) / 2)  # type: ignore[no-any-return]


ZOO: dict[str, Specimen] = {
    "mlp": Specimen(make=mlp, inputs=_vectors),
    "cnn": Specimen(make=cnn, inputs=_images),
    "resnet-group": Specimen(make=resnet_group, inputs=_images),
    "resnet-batch": Specimen(make=resnet_batch, inputs=_images),
    "lstm": Specimen(make=Recurrent, inputs=_words),
    "encoder": Specimen(make=Encoder, inputs=_sequences, positions=LENGTH),
    "torch-encoder": Specimen(make=torch_encoder, inputs=_sequences, positions=LENGTH),
    "fused": Specimen(make=fused, inputs=_sequences, positions=LENGTH),
    "scan": Specimen(make=Scanned, inputs=_words),
    "cond": Specimen(make=Branching, inputs=_vectors),
    "gpt": Specimen(make=GPT, inputs=_words, positions=LENGTH),
    "moe": Specimen(make=MixtureOfExperts, inputs=_sequences, positions=LENGTH),
    "encoder-decoder": Specimen(make=EncoderDecoder, inputs=_two_texts, positions=LENGTH),
    "u-net": Specimen(make=UNet, inputs=_images, positions=64),
    "frozen-norm": Specimen(make=FrozenNorm, inputs=_vectors),
    "padded": Specimen(make=Padded, inputs=_words, positions=LENGTH),
    "mixed": Specimen(make=Mixed, inputs=_vectors),
    "spare": Specimen(make=Spare, inputs=_vectors),
    "two-tower": Specimen(make=TwoTower, inputs=_two_ids),
}
