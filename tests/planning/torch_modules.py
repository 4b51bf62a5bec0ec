"""Small torch modules of every kind that a user may bring."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


class UnevenMlp(nn.Module):
    """Layers of different widths, without biases and with whole numbers as weights."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        pairs = pairwise(widths)
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)
        with torch.no_grad():
            for layer in self.layers:
                assert isinstance(layer, nn.Linear)
                layer.weight.copy_(torch.randint(-3, 4, layer.weight.shape))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x).sum()


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride) if before != after else nn.Identity()

    def forward(self, x):
        y = torch.relu_(self.norm_one(self.one(x)))
        return torch.relu_(self.norm_two(self.two(y)) + self.short(x))


class SmallResNet(nn.Module):
    """A convolutional network: a stem, two stages of two blocks, a classifier and its loss."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.first = nn.Sequential(Residual(width, width, 1), Residual(width, width, 1))
        self.wider = Residual(width, 2 * width, 2)
        self.second = nn.Sequential(*(Residual(2 * width, 2 * width, 1) for _ in range(3)))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, images, labels):
        features = self.second(self.wider(self.first(self.stem(images)))).mean((2, 3))
        return functional.cross_entropy(self.head(features), labels)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_one, self.norm_two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        parts = self.qkv(self.norm_one(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.drop(self.down(functional.gelu(self.up(self.norm_two(x)))))


class SmallGpt(nn.Module):
    def __init__(self, layers: int = 3, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(100, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, tokens, labels):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.transpose(1, 2), labels)


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)


class Conditional(TwoLayers):
    def forward(self, x):
        return torch.cond(x.sum() > 0, self.one, lambda x: self.two(x).relu(), (x,)).sum()


class Loop(TwoLayers):
    def forward(self, x):
        from torch._higher_order_ops import while_loop

        _, x = while_loop(
            lambda turn, x: turn < 5,
            lambda turn, x: (turn + 1, self.one(x)),
            (torch.tensor(0), x),
        )
        return x.sum()


class Scan(TwoLayers):
    def forward(self, x):
        from torch._higher_order_ops import scan

        last, all_of_them = scan(lambda c, y: (self.one(c) + y, (c * y).clone()), x[0] * 2, x)
        return last.sum() + all_of_them.sum()


class ScanOfOne(TwoLayers):
    """Its state is what it gives for each turn, too; the last is read."""

    def forward(self, x):
        from torch._higher_order_ops import scan

        def turn(c, y):
            c = self.one(c) + y
            return c, c.clone()

        last, _ = scan(turn, x[0] * 2, x)
        return last.sum()


class Branching(TwoLayers):
    """Python decides by the data which way to go."""

    def forward(self, x):
        x = self.one(x)
        return torch.relu_(x).sum() if x.sum() > -1e9 else self.two(x).sum()


class Rotary(nn.Module):
    """A mask and a table that only depend on sizes, read by every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("angles", torch.arange(8.0))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        turned = torch.cos(self.get_buffer("angles")) * torch.tril(torch.ones(8, 8))
        for layer in self.layers:
            x = torch.relu(layer(x) @ turned)
        return x.sum()


class Sorting(nn.Linear):
    def forward(self, x):
        return torch.sort(super().forward(x)).values.sum()
