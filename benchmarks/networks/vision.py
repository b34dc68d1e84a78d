"""ResNet and MobileNetV2, as in the papers and in torchvision."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    kernel = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
    return [kernel, nn.BatchNorm2d(outputs)]


class _Residual(nn.Module):
    """``relu(body(x) + shortcut(x))``; the shortcut is a convolution where the shape changes."""

    def __init__(self, body: Sequence[nn.Module], inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(*(_convolution(inputs, outputs, 1, stride) if changes else ()))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def _basic(inputs: int, outputs: int, stride: int) -> _Residual:
    body = [*_convolution(inputs, outputs, 3, stride), nn.ReLU(), *_convolution(outputs, outputs, 3)]
    return _Residual(body, inputs, outputs, stride)


def _bottleneck(inputs: int, outputs: int, stride: int) -> _Residual:
    inner = outputs // 4
    middle = [*_convolution(inner, inner, 3, stride), nn.ReLU()]
    body = [*_convolution(inputs, inner, 1), nn.ReLU(), *middle, *_convolution(inner, outputs, 1)]
    return _Residual(body, inputs, outputs, stride)


class ResNet(nn.Module):
    """He and others 2015; depths (2, 2, 2, 2) make ResNet-18, (3, 4, 6, 3) with bottlenecks ResNet-50."""

    def __init__(
        self, depths: Sequence[int] = (2, 2, 2, 2), width: int = 64, classes: int = 1000, bottleneck: bool = False
    ) -> None:
        super().__init__()
        block, factor = (_bottleneck, 4) if bottleneck else (_basic, 1)
        layers: list[nn.Module] = [*_convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
        inputs = width
        for stage, depth in enumerate(depths):
            outputs = width * 2**stage * factor
            for number in range(depth):
                layers.append(block(inputs, outputs, 2 if stage and not number else 1))
                inputs = outputs
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(inputs, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.features(pixels))


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        expand = [*_convolution(inputs, inner, 1), nn.ReLU6()] if expansion != 1 else []
        depthwise = [*_convolution(inner, inner, 3, stride, groups=inner), nn.ReLU6()]
        self.body = nn.Sequential(*expand, *depthwise, *_convolution(inner, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class MobileNetV2(nn.Module):
    """Sandler and others 2018: depthwise convolutions, ReLU6, inverted residuals; without the final dropout."""

    # expansion, channels, repetitions, first stride
    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, stages: int = 7, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 32, 3, 2), nn.ReLU6()]
        inputs = 32
        for expansion, outputs, repetitions, stride in self.STAGES[:stages]:
            for number in range(repetitions):
                layers.append(_InvertedResidual(inputs, outputs, 1 if number else stride, expansion))
                inputs = outputs
        last = inputs * 4
        layers += [*_convolution(inputs, last, 1), nn.ReLU6()]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(last, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head(self.features(pixels))
