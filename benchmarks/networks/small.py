"""A perceptron, a small convolutional network, a transformer and an LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def perceptron(inputs: int = 784, hidden: int = 500, classes: int = 10) -> nn.Module:
    """Two dense layers with a ReLU between them."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def matrices(layers: int, width: int) -> nn.Module:
    """Square matrices in a row, which keep the size of what passes."""
    network = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    for matrix in network.parameters():
        nn.init.normal_(matrix, std=width**-0.5)
    return network


def convolutional(width: int = 32, classes: int = 10) -> nn.Module:
    """Three convolutions with batch normalization, 3 → w → 2w (stride 2) → 4w; max-pooling after the first."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


class _Layer(nn.Module):
    """Pre-norm: attention, then a dense layer of four times the width with GELU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.reshape(split).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Token and position embeddings, layers, a norm and a dense layer that scores every token: [batch · length, v]."""

    def __init__(
        self, layers: int = 4, width: int = 256, heads: int = 4, length: int = 64, vocabulary: int = 1000
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.head(self.norm(self.layers(self.embedding(tokens) + self.positions)))
        return scores.reshape(-1, scores.shape[-1])


class LSTMClassifier(nn.Module):
    """An embedding, an LSTM, and a dense layer on its last state."""

    def __init__(self, vocabulary: int = 5000, width: int = 128, hidden: int = 256, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        _, (last, _) = self.lstm(self.embedding(tokens))
        return self.head(last[-1])
