"""Image models, and a perceptron."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import (
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

CLASSES = 5
SIDE = 32


def vectors(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    return (torch.randn(batch, 12, generator=generator),), torch.randn(batch, 3, generator=generator)


def _labels(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(CLASSES, shape, generator=generator)


def digits(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    return (torch.randn(batch, 1, SIDE, SIDE, generator=generator),), _labels(generator, batch)


def images(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    return (torch.randn(batch, 3, SIDE, SIDE, generator=generator),), _labels(generator, batch)


def pixel_labels(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    return images(generator, batch)[0], _labels(generator, batch, SIDE, SIDE)


def pixel_values(generator: torch.Generator, batch: int) -> tuple[tuple[Tensor, ...], Tensor]:
    return images(generator, batch)[0], torch.randn(batch, CLASSES, SIDE, SIDE, generator=generator)


class Perceptron(nn.Sequential):
    """Three dense layers, 12 → 16 → 10 → 3."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10), nn.Tanh(), nn.Linear(10, 3))


class LeNet(nn.Sequential):
    """Two convolutions with pooling, three dense layers, as in 1998 but narrower."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 5),
            nn.Sigmoid(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * 5 * 5, 24),
            nn.ReLU(),
            nn.Dropout(0.0),
            nn.Linear(24, 16),
            nn.ReLU(),
            nn.Linear(16, CLASSES),
        )


class _DoubleConvolution(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.1),
        )


class _UNet(nn.Module):
    """Two levels down, two up, with skip connections; subclasses say how to double the resolution."""

    def __init__(self, *up: nn.Module) -> None:
        super().__init__()
        self.down = nn.ModuleList([_DoubleConvolution(3, 6), _DoubleConvolution(6, 8)])
        self.bottom = _DoubleConvolution(8, 12)
        self.up = nn.ModuleList(up)
        self.merge = nn.ModuleList([_DoubleConvolution(8 + 8, 8), _DoubleConvolution(6 + 6, 6)])
        self.head = nn.Conv2d(6, CLASSES, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        skipped = []
        for stage in self.down:
            pixels = stage(pixels)
            skipped.append(pixels)
            pixels = nn.functional.max_pool2d(pixels, 2)
        pixels = self.bottom(pixels)
        for up, merge, skip in zip(self.up, self.merge, reversed(skipped), strict=True):
            pixels = merge(torch.cat([skip, up(pixels)], 1))
        return self.head(pixels)


class UNetTranspose(_UNet):
    """Doubles the resolution with transposed convolutions, one without overlap, one with."""

    def __init__(self) -> None:
        super().__init__(
            nn.ConvTranspose2d(12, 8, 2, stride=2),
            nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1),
        )


class UNetResize(_UNet):
    """Doubles the resolution by interpolation, once to the nearest pixel, once bilinearly."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(12, 8, 1)),
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(8, 6, 1)),
        )


class Logits(nn.Module):
    """The logits of an image classifier of ``transformers``, alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixel_values=pixels, return_dict=False)[0]


def resnet() -> nn.Module:
    """ResNet-18: basic blocks, two in each of four stages."""
    config = ResNetConfig(
        embedding_size=6, hidden_sizes=[6, 8, 10, 12], depths=[2, 2, 2, 2], layer_type="basic", num_labels=CLASSES
    )
    return Logits(ResNetForImageClassification(config))


def mobilenet() -> nn.Module:
    """MobileNetV2: depthwise convolutions, ReLU6, inverted residuals, dilation instead of stride after the third.

    All blocks have the same width, so that the first seven of sixteen make a network too.  The whole depth doubles
    rounding errors until ReLU6 switches sides.
    """
    config = MobileNetV2Config(
        image_size=SIDE,
        depth_multiplier=0.01,
        min_depth=8,
        output_stride=8,
        finegrained_output=False,
        classifier_dropout_prob=0.0,
        num_labels=CLASSES,
    )
    model = MobileNetV2ForImageClassification(config)
    del model.mobilenet_v2.layer[7:]
    return Logits(model)


def vit(attention: str = "eager") -> nn.Module:
    """Vision transformer: 8 × 8 patches, two layers of two heads.

    ``attention`` is how ``transformers`` computes it: ``"eager"`` in single steps, ``"sdpa"`` in one PyTorch function.
    """
    config = ViTConfig(
        image_size=SIDE,
        patch_size=8,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_labels=CLASSES,
        attn_implementation=attention,
    )
    return Logits(ViTForImageClassification(config))
