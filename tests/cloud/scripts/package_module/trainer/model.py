"""A bag of words."""

from torch import nn


class Bag(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bag = nn.EmbeddingBag(50, size, mode="mean")
        self.head = nn.Linear(size, 2)

    def forward(self, tokens, offsets):
        return self.head(self.bag(tokens, offsets))
