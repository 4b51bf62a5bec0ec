"""A small GPT of any size, without dropout: the model of several benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """The sizes of a GPT."""

    vocabulary: int
    context: int
    """Words of a sample at most."""
    width: int
    heads: int
    layers: int

    def words(self, samples: int, *, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw a batch, the same each time: words and those that follow them, (samples, context) each."""
        draw = torch.Generator().manual_seed(seed)
        text = torch.randint(0, self.vocabulary, (samples, self.context + 1), generator=draw)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class TransformerLayer(nn.Module):
    """Causal attention and a feed-forward network, each after a normalization."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.before = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.attend(self.before(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        deeper: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.between(x))))
        return deeper


class LanguageModel(nn.Module):
    """Words and their places to the scores of each next word; `recompute` forgets what is inside a layer."""

    def __init__(self, size: ModelSize, *, recompute: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.layers = nn.ModuleList(TransformerLayer(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.recompute = recompute

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.places(places)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores


def word_loss(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The cross-entropy, mean over words."""
    return nn.functional.cross_entropy(scores.flatten(0, -2), target.flatten())
