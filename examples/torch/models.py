"""ResNet-50, ResNet-101 and VGG-16 as in their papers, for 1,000 classes; Horovod is not in it.

He et al., "Deep residual learning for image recognition", 2015 (with the stride in the 3 x 3 convolution, as
is usual today); Simonyan and Zisserman, "Very deep convolutional networks", 2014.
"""

from collections.abc import Callable

import torch
from torch import nn


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Makes a convolution that divides the extent by the stride, with its normalisation."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """Narrows, convolves 3 x 3 and widens; the input is added to the result."""

    WIDENS = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.WIDENS
        self.way = nn.Sequential(
            *(convolution(inputs, width, 1), nn.ReLU(inplace=True)),
            *(convolution(width, width, 3, stride), nn.ReLU(inplace=True)),
            convolution(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.way(x) + self.shortcut(x))


def resnet(blocks: tuple[int, ...]) -> nn.Sequential:
    """Four stages of that many blocks; each stage except the first halves the extent."""
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(inputs, 64 << stage, stride))
            inputs = (64 << stage) * Bottleneck.WIDENS
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def vgg(widths: tuple[tuple[int, ...], ...]) -> nn.Sequential:
    """Groups of 3 x 3 convolutions, each followed by a halving of the extent, then three large layers."""
    layers: list[nn.Module] = []
    inputs = 3
    for group in widths:
        for width in group:
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten()),
        *(nn.Linear(inputs * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(4096, 1000),
    )


MODELS: dict[str, Callable[[], nn.Sequential]] = {
    "resnet50": lambda: resnet((3, 4, 6, 3)),
    "resnet101": lambda: resnet((3, 4, 23, 3)),
    "vgg16": lambda: vgg(((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)),
}
