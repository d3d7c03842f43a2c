"""Residual networks of the CIFAR literature (He et al. 2016, with a 3x3 stem instead of ImageNet's 7x7).

`resnet18` to `resnet152` have four stages of 64 to 512 planes. The thin ones have three stages of 16, 32 and
64 planes and convolutions with biases, as the SWIFT authors' code trains them under the names of the
textbook's: it has the blocks of four stages in a table, and builds three. A message of thin_resnet18 is
0.70 MB, one of thin_resnet50 2.18 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from swiftfl.errors import UserError
from swiftfl.workload.models import MODELS
from swiftfl.workload.norms import Norm, norm_layer


@dataclass(frozen=True)
class Design:
    """What sets one network apart: planes and blocks per stage, kind of block, biases, normalisation."""

    planes: tuple[int, ...]
    blocks: tuple[int, ...]
    bottleneck: bool
    bias: bool
    norm: Norm

    @property
    def kernels(self) -> tuple[int, ...]:
        return (1, 3, 1) if self.bottleneck else (3, 3)

    @property
    def grow(self) -> int:
        """How many times wider than its planes a block's output is."""
        return 4 if self.bottleneck else 1


class ResidualBlock(nn.Module):
    """Convolutions with a shortcut around them; the first 3x3 one takes the stride."""

    def __init__(self, design: Design, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        kernels, norm, bias = design.kernels, design.norm, design.bias
        widths = [inputs, *[planes] * (len(kernels) - 1), planes * design.grow]
        strided = kernels.index(3)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, k, stride if i == strided else 1, k // 2, bias=bias)
            for i, ((a, b), k) in enumerate(zip(pairwise(widths), kernels, strict=True))
        )
        self.norms = nn.ModuleList(norm(width) for width in widths[1:])
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != widths[-1]:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, widths[-1], 1, stride, bias=bias), norm(widths[-1])
            )

    def forward(self, x: Tensor) -> Tensor:
        out = x
        last = len(self.norms) - 1
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            out = norm(convolution(out))
            if i < last:
                out = functional.relu(out)
        return functional.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, stages of blocks (each after the first halves the image), average pool, linear head."""

    def __init__(self, channels: int, classes: int, design: Design) -> None:
        super().__init__()
        width = design.planes[0]
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=design.bias)
        self.norm = design.norm(width)
        stages: list[nn.Module] = []
        for stage, (planes, count) in enumerate(zip(design.planes, design.blocks, strict=True)):
            for k in range(count):
                stages.append(ResidualBlock(design, width, planes, stride=2 if stage > 0 and k == 0 else 1))
                width = planes * design.grow
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(functional.relu(self.norm(self.stem(x))))
        out: Tensor = self.head(x.mean(dim=(2, 3)))
        return out


BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Blocks per stage by depth; from depth 50 on they are bottlenecks."""


def _resnet(shape: Sequence[int], classes: int, design: Design) -> nn.Module:
    if len(shape) != 3:
        raise UserError(
            f"a ResNet needs images (channels, height, width), not inputs of shape {tuple(shape)}"
        )
    return ResNet(shape[0], classes, design)


def _textbook(depth: int, shape: Sequence[int], classes: int, norm: str) -> nn.Module:
    design = Design((64, 128, 256, 512), BLOCKS[depth], depth >= 50, bias=False, norm=norm_layer(norm))
    return _resnet(shape, classes, design)


def _thin(depth: int, shape: Sequence[int], classes: int, norm: str) -> nn.Module:
    design = Design((16, 32, 64), BLOCKS[depth][:3], depth >= 50, bias=True, norm=norm_layer(norm))
    return _resnet(shape, classes, design)


@MODELS.add("resnet18")
def resnet18(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """11,173,962 parameters for colour images in 10 classes."""
    return _textbook(18, shape, classes, norm)


@MODELS.add("resnet34")
def resnet34(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """21,282,122 parameters for colour images in 10 classes."""
    return _textbook(34, shape, classes, norm)


@MODELS.add("resnet50")
def resnet50(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """23,520,842 parameters for colour images in 10 classes."""
    return _textbook(50, shape, classes, norm)


@MODELS.add("resnet101")
def resnet101(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """42,512,970 parameters for colour images in 10 classes."""
    return _textbook(101, shape, classes, norm)


@MODELS.add("resnet152")
def resnet152(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """58,156,618 parameters for colour images in 10 classes."""
    return _textbook(152, shape, classes, norm)


@MODELS.add("thin_resnet18")
def thin_resnet18(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """175,818 parameters for colour images in 10 classes."""
    return _thin(18, shape, classes, norm)


@MODELS.add("thin_resnet34")
def thin_resnet34(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """514,218 parameters for colour images in 10 classes."""
    return _thin(34, shape, classes, norm)


@MODELS.add("thin_resnet50")
def thin_resnet50(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """545,930 parameters for colour images in 10 classes."""
    return _thin(50, shape, classes, norm)


@MODELS.add("thin_resnet101")
def thin_resnet101(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """1,749,258 parameters for colour images in 10 classes."""
    return _thin(101, shape, classes, norm)


@MODELS.add("thin_resnet152")
def thin_resnet152(shape: Sequence[int], classes: int, norm: str = "batch") -> nn.Module:
    """2,741,386 parameters for colour images in 10 classes."""
    return _thin(152, shape, classes, norm)
