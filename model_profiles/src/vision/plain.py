"""VGG (arXiv 1409.1556), RepVGG (2101.03697), DenseNet (1608.06993), Inception v3 (1512.00567), Xception
(1610.02357), CSPNet (1911.11929) and HRNet (1908.07919)."""

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from parts import ConvNorm, Head
from torch import nn


def vgg(stages, norm=False):
    layers, channels = [], 3
    for stage, depth in enumerate(stages):
        outputs = min(64 * 2**stage, 512)
        for _ in range(depth):
            layers += [
                nn.Conv2d(channels, outputs, 3, 1, 1),
                *([nn.BatchNorm2d(outputs)] if norm else []),
                nn.ReLU(inplace=True),
            ]
            channels = outputs
        layers.append(nn.MaxPool2d(2))
    behind = [
        nn.Conv2d(512, 4096, 7),
        nn.ReLU(inplace=True),
        nn.Dropout(0.0),
        nn.Conv2d(4096, 4096, 1),
        nn.ReLU(inplace=True),
    ]
    return nn.Sequential(*layers, *behind, Head(4096))


class Reparametrised(nn.Module):
    """A 3×3 and a 1×1 convolution, and the input itself where it has the shape, each with its norm, added."""

    def __init__(self, inputs, outputs, stride, groups):
        super().__init__()
        self.same = nn.BatchNorm2d(inputs) if inputs == outputs and stride == 1 else None
        self.wide = ConvNorm(inputs, outputs, 3, stride, groups, "")
        self.point = ConvNorm(inputs, outputs, 1, stride, groups, "")
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        made = self.wide(x) + self.point(x)
        return self.relu(made if self.same is None else made + self.same(x))


def repvgg(depths, widths, groups=1):
    channels, layers, number = 3, [], 0
    for stage, (depth, width) in enumerate(
        zip((1, *depths), (min(64, 64 * widths[0]), *(w * 64 * 2**i for i, w in enumerate(widths))), strict=True)
    ):
        for at in range(depth):
            layers.append(
                Reparametrised(channels, int(width), 1 if at else 2, groups if number % 2 == 0 and stage else 1)
            )
            channels, number = int(width), number + (stage > 0) + (stage == 0)
    return nn.Sequential(*layers, Head(channels))


class Dense(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )

    def forward(self, found):
        return [*found, self.body(torch.cat(found, 1))]


class DenseStage(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return torch.cat(self.layers([x]), 1)


def densenet(depths, growth=32, first=64):
    channels, layers = first, [ConvNorm(3, first, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for stage, depth in enumerate(depths):
        layers.append(DenseStage([Dense(channels + at * growth, growth) for at in range(depth)]))
        channels += depth * growth
        if stage < 3:
            layers += [
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), Head(channels))


class Beside(nn.Module):
    """Branches whose results lie beside each other."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def chain(inputs, *layers):
    """Convolutions one after the other: channels, kernel, and where they are given stride and padding."""
    made = []
    for outputs, kernel, *more in layers:
        stride, pad = more[0] if more else 1, more[1] if len(more) > 1 else None
        tall = isinstance(kernel, tuple)
        pad = tuple(n // 2 for n in kernel) if tall and pad is None else pad
        made.append(
            ConvNorm(inputs, outputs, kernel, stride, pad=pad)
            if tall or pad is not None
            else ConvNorm(inputs, outputs, kernel, stride)
        )
        inputs = outputs
    return nn.Sequential(*made)


def pooled(inputs, outputs):
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), ConvNorm(inputs, outputs))


def inception3():
    def small(n, pool):
        return Beside(
            chain(n, (64, 1)), chain(n, (48, 1), (64, 5)), chain(n, (64, 1), (96, 3), (96, 3)), pooled(n, pool)
        )

    def seven(c):
        row, column = (1, 7), (7, 1)
        return Beside(
            chain(768, (192, 1)),
            chain(768, (c, 1), (c, row), (192, column)),
            chain(768, (c, 1), (c, column), (c, row), (c, column), (192, row)),
            pooled(768, 192),
        )

    def wide(n):
        def fork():
            return Beside(chain(384, (384, (1, 3))), chain(384, (384, (3, 1))))

        return Beside(
            chain(n, (320, 1)),
            nn.Sequential(chain(n, (384, 1)), fork()),
            nn.Sequential(chain(n, (448, 1), (384, 3)), fork()),
            pooled(n, 192),
        )

    stem = [
        chain(3, (32, 3, 2, 0), (32, 3, 1, 0), (64, 3)),
        nn.MaxPool2d(3, 2),
        chain(64, (80, 1), (192, 3, 1, 0)),
        nn.MaxPool2d(3, 2),
    ]
    first = Beside(chain(288, (384, 3, 2, 0)), chain(288, (64, 1), (96, 3), (96, 3, 2, 0)), nn.MaxPool2d(3, 2))
    last = Beside(
        chain(768, (192, 1), (320, 3, 2, 0)),
        chain(768, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, 0)),
        nn.MaxPool2d(3, 2),
    )
    middle = [seven(128), seven(160), seven(160), seven(192)]
    return nn.Sequential(
        *stem,
        small(192, 32),
        small(256, 64),
        small(288, 64),
        first,
        *middle,
        last,
        wide(1280),
        wide(2048),
        Head(2048),
    )


class Separable(nn.Sequential):
    def __init__(self, inputs, outputs, stride=1):
        deep = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        super().__init__(deep, nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))


class XBlock(nn.Module):
    def __init__(self, widths, stride=1, leading=True):
        super().__init__()
        layers = []
        for at, (a, b) in enumerate(pairwise(widths)):
            layers += [*([nn.ReLU(inplace=at > 0)] if at or leading else []), Separable(a, b)]
        self.branch = nn.Sequential(*layers, *([nn.MaxPool2d(3, stride, 1)] if stride > 1 else []))
        plain = stride == 1 and widths[0] == widths[-1]
        self.shortcut = nn.Identity() if plain else ConvNorm(widths[0], widths[-1], 1, stride, act="")

    def forward(self, x):
        return self.branch(x) + self.shortcut(x)


def xception():
    stem = chain(3, (32, 3, 2, 0), (64, 3, 1, 0))
    blocks = [XBlock((64, 128, 128), 2, False), XBlock((128, 256, 256), 2), XBlock((256, 728, 728), 2)]
    blocks += [XBlock((728,) * 4) for _ in range(8)] + [XBlock((728, 728, 1024), 2)]
    relu = nn.ReLU(inplace=True)
    return nn.Sequential(
        stem, *blocks, Separable(1024, 1536), relu, Separable(1536, 2048), nn.ReLU(inplace=True), Head(2048)
    )


class Crossed(nn.Module):
    """A stage of CSPNet: half of the channels go through the blocks, the others past them."""

    def __init__(self, inputs, outputs, blocks, stride, wide, inner, down, block):
        super().__init__()
        self.down = ConvNorm(inputs, down, 3, stride, act="leaky") if stride > 1 else nn.Identity()
        entering = down if stride > 1 else inputs
        self.expand = ConvNorm(entering, wide, act="leaky")
        self.blocks = nn.Sequential(*(block(wide // 2, inner) for _ in range(blocks)))
        self.leave, self.join = ConvNorm(wide // 2, wide // 2, act="leaky"), ConvNorm(wide, outputs, act="leaky")

    def forward(self, x):
        past, through = self.expand(self.down(x)).chunk(2, 1)
        return self.join(torch.cat([past, self.leave(self.blocks(through))], 1))


class Dark(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.branch = nn.Sequential(
            ConvNorm(channels, inner, act="leaky"), ConvNorm(inner, channels, 3, act="leaky")
        )

    def forward(self, x):
        return self.branch(x) + x


def cspdarknet53():
    layers, channels = [ConvNorm(3, 32, 3, act="leaky")], 32
    for stage, blocks in enumerate((1, 2, 8, 8, 4)):
        outputs = 64 * 2**stage
        wide = 2 * outputs if stage == 0 else outputs
        layers.append(Crossed(channels, outputs, blocks, 2, wide, outputs // 2, outputs, Dark))
        channels = outputs
    return nn.Sequential(*layers, Head(channels))


class Unit(nn.Module):
    """A residual block of HRNet, of two or of three convolutions."""

    def __init__(self, inputs, inner, deep):
        super().__init__()
        outputs = 4 * inner if deep else inner
        convs = (
            (ConvNorm(inputs, inner), ConvNorm(inner, inner, 3), ConvNorm(inner, outputs, act=""))
            if deep
            else (ConvNorm(inputs, inner, 3), ConvNorm(inner, inner, 3, act=""))
        )
        self.branch = nn.Sequential(*convs)
        self.shortcut = ConvNorm(inputs, outputs, act="") if inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x), inplace=True)


class Exchange(nn.Module):
    """Branches of several resolutions, each of which gets the others' results."""

    def __init__(self, widths):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*(Unit(width, width, False) for _ in range(4))) for width in widths
        )
        self.fuse = nn.ModuleList(
            nn.ModuleList(self.path(widths, a, b) for a in range(len(widths))) for b in range(len(widths))
        )

    @staticmethod
    def path(widths, a, b):
        if a == b:
            return nn.Identity()
        if a > b:
            return nn.Sequential(ConvNorm(widths[a], widths[b], act=""), nn.Upsample(scale_factor=2 ** (a - b)))
        steps = [
            ConvNorm(
                widths[a], widths[b] if at == b - a - 1 else widths[a], 3, 2, act="" if at == b - a - 1 else "relu"
            )
            for at in range(b - a)
        ]
        return nn.Sequential(*steps)

    def forward(self, xs):
        made = [branch(x) for branch, x in zip(self.branches, xs, strict=True)]
        found = []
        for paths in self.fuse:
            total = paths[0](made[0])
            for path, x in zip(paths[1:], made[1:], strict=True):
                total = total + path(x)
            found.append(F.relu(total, inplace=True))
        return found


class HighResolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        widths = [width * 2**at for at in range(4)]
        self.stem = nn.Sequential(ConvNorm(3, 64, 3, 2), ConvNorm(64, 64, 3, 2))
        self.first = nn.Sequential(*(Unit(256 if at else 64, 64, True) for at in range(4)))
        self.enter = nn.ModuleList(
            [
                ConvNorm(256, widths[0], 3),
                ConvNorm(256, widths[1], 3, 2),
                ConvNorm(widths[1], widths[2], 3, 2),
                ConvNorm(widths[2], widths[3], 3, 2),
            ]
        )
        self.stages = nn.ModuleList(
            nn.Sequential(*(Exchange(widths[:count]) for _ in range(times)))
            for count, times in ((2, 1), (3, 4), (4, 3))
        )
        self.grow = nn.ModuleList(Unit(w, n, True) for w, n in zip(widths, (32, 64, 128, 256), strict=True))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(n, 2 * n, 3, 2, 1), nn.BatchNorm2d(2 * n), nn.ReLU(inplace=True))
            for n in (128, 256, 512)
        )
        self.last = nn.Sequential(
            nn.Conv2d(1024, 2048, 1), nn.BatchNorm2d(2048), nn.ReLU(inplace=True), Head(2048)
        )

    def forward(self, x):
        x = self.first(self.stem(x))
        xs = [self.enter[0](x), self.enter[1](x)]
        for at, stage in enumerate(self.stages):
            if at:
                xs = [*xs, self.enter[at + 1](xs[-1])]
            xs = stage(xs)
        made = self.grow[0](xs[0])
        for down, grow, x in zip(self.down, self.grow[1:], xs[1:], strict=True):
            made = grow(x) + down(made)
        return self.last(made)


REP_A, REP_B = (2, 4, 14, 1), (4, 6, 16, 1)
MODELS = {
    "vgg11": partial(vgg, (1, 1, 2, 2, 2)),
    "vgg13": partial(vgg, (2, 2, 2, 2, 2)),
    "vgg13_bn": partial(vgg, (2, 2, 2, 2, 2), True),
    "vgg16": partial(vgg, (2, 2, 3, 3, 3)),
    "vgg16_bn": partial(vgg, (2, 2, 3, 3, 3), True),
    "vgg19": partial(vgg, (2, 2, 4, 4, 4)),
    "vgg19_bn": partial(vgg, (2, 2, 4, 4, 4), True),
    "repvgg_a2": partial(repvgg, REP_A, (1.5, 1.5, 1.5, 2.75)),
    "repvgg_b2": partial(repvgg, REP_B, (2.5, 2.5, 2.5, 5)),
    "repvgg_b1g4": partial(repvgg, REP_B, (2, 2, 2, 4), 4),
    "repvgg_b3g4": partial(repvgg, REP_B, (3, 3, 3, 5), 4),
    "densenet169": partial(densenet, (6, 12, 32, 32)),
    "densenet201": partial(densenet, (6, 12, 48, 32)),
    "densenet264": partial(densenet, (6, 12, 64, 48), 48, 96),
    "tf_inception_v3": inception3,
    "xception": xception,
    "cspdarknet53": cspdarknet53,
    "hrnet_w32": partial(HighResolution, 32),
    "hrnet_w44": partial(HighResolution, 44),
    "hrnet_w48": partial(HighResolution, 48),
    "hrnet_w64": partial(HighResolution, 64),
}
