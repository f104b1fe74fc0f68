"""What image networks are made of: convolutions with their norm, squeezing gates, and the head."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

ACTS = {
    "relu": partial(nn.ReLU, inplace=True),
    "relu6": partial(nn.ReLU6, inplace=True),
    "silu": partial(nn.SiLU, inplace=True),
    "hswish": partial(nn.Hardswish, inplace=True),
    "leaky": partial(nn.LeakyReLU, 0.1, inplace=True),
    "gelu": nn.GELU,
    "": nn.Identity,
}
CLASSES = 1000


def divisible(channels, by=8, least=0.9):
    """Round to the nearest multiple, upwards where rounding would take off more than a tenth."""
    near = max(by, int(channels + by / 2) // by * by)
    return near + by if near < least * channels else near


class SamePad(nn.Module):
    """Pad as TensorFlow does: as many results as inputs over the stride, the odd one at the end."""

    def __init__(self, kernel, stride):
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x):
        over = [max((-(-n // self.stride) - 1) * self.stride + self.kernel - n, 0) for n in x.shape[-2:]]
        return F.pad(x, (over[1] // 2, over[1] - over[1] // 2, over[0] // 2, over[0] - over[0] // 2))


class ConvNorm(nn.Sequential):
    """A convolution without bias, batch normalisation and what follows."""

    def __init__(
        self,
        inputs,
        outputs,
        kernel=1,
        stride=1,
        groups=1,
        act="relu",
        *,
        same=False,
        pad=None,
        norm=nn.BatchNorm2d,
    ):
        own = same and stride > 1
        pad = 0 if own else kernel // 2 if pad is None else pad
        layers = [SamePad(kernel, stride)] if own else []
        layers += [nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=False), norm(outputs)]
        super().__init__(*layers, *([ACTS[act]()] if act else []))


class Gate(nn.Module):
    """Squeeze and excitation (arXiv 1709.01507): channels are scaled by what their means say."""

    def __init__(self, channels, inner, act="relu", gate=torch.sigmoid):
        super().__init__()
        self.reduce, self.act = nn.Conv2d(channels, inner, 1), ACTS[act]()
        self.expand, self.gate = nn.Conv2d(inner, channels, 1), gate

    def forward(self, x):
        return x * self.gate(self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))))


class LineGate(nn.Module):
    """Efficient channel attention (arXiv 1910.03151): a convolution over neighbouring channels' means."""

    def __init__(self, kernel):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, kernel, padding=kernel // 2, bias=False)

    def forward(self, x):
        mean = x.mean((2, 3)).unsqueeze(1)
        return x * torch.sigmoid(self.conv(mean)).transpose(1, 2).unsqueeze(-1).expand_as(x)


class SumGate(nn.Module):
    """One product of the channels' means and a hard sigmoid (VoVNet's eSE, arXiv 1911.06667)."""

    def __init__(self, channels):
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.fc(x.mean((2, 3), keepdim=True)))


class Head(nn.Sequential):
    """The mean over the image and a product."""

    def __init__(self, channels):
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(channels, CLASSES))


class Residual(nn.Module):
    """x plus a branch, scaled per channel where a scale is given."""

    def __init__(self, branch, scale=0):
        super().__init__()
        self.branch = branch
        self.scale = nn.Parameter(torch.ones(scale)) if scale else None

    def forward(self, x):
        made = self.branch(x)
        return x + (made if self.scale is None else self.scale * made)


class LayerNorm2d(nn.LayerNorm):
    """Over the channels of each pixel, of an image that lies channel by channel."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
