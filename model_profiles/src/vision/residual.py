"""ResNet (arXiv 1512.03385) and its likes: ResNeXt (1611.05431), wide (1605.07146), squeezing (1709.01507), stems
of three convolutions and averaging shortcuts (1812.01187), channel attention (1910.03151), pre-activation
(1603.05027), RegNet (2003.13678), Res2Net (1904.01169), DPN (1707.01629), SelecSLS (1907.00837), VoVNet
(1911.06667)."""

import math
from functools import partial

import torch
from parts import ConvNorm, Gate, Head, LineGate, SumGate, divisible
from torch import nn


class Basic(nn.Module):
    def __init__(self, inputs, inner, stride, gate, **_):
        super().__init__()
        self.branch = nn.Sequential(
            ConvNorm(inputs, inner, 3, stride), ConvNorm(inner, inner, 3, act=""), gate(inner)
        )

    def forward(self, x):
        return self.branch(x)


class Split(nn.Module):
    """A 3×3 convolution in parts, each of which gets the result of the one before (Res2Net)."""

    def __init__(self, width, scale, stride):
        super().__init__()
        self.scale, self.whole = scale, stride > 1
        self.convs = nn.ModuleList(ConvNorm(width, width, 3, stride) for _ in range(scale - 1))
        self.pool = nn.AvgPool2d(3, stride, 1) if self.whole else nn.Identity()

    def forward(self, x):
        parts, found = x.chunk(self.scale, 1), []
        for at, conv in enumerate(self.convs):
            found.append(conv(parts[at] if at == 0 or self.whole else found[-1] + parts[at]))
        return torch.cat([*found, self.pool(parts[-1])], 1)


def bottleneck(inputs, inner, stride, gate, groups=1, width=64, split=0, norm=nn.BatchNorm2d):
    wide = int(inner * width / 64) * groups
    if split:
        middle = [ConvNorm(inputs, wide * split), Split(wide, split, stride)]
    else:
        middle = [ConvNorm(inputs, wide, norm=norm), ConvNorm(wide, wide, 3, stride, groups, norm=norm)]
    return nn.Sequential(*middle, ConvNorm(wide * (split or 1), 4 * inner, act="", norm=norm), gate(4 * inner))


class Block(nn.Module):
    def __init__(self, branch, shortcut):
        super().__init__()
        self.branch, self.shortcut, self.relu = branch, shortcut, nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.branch(x) + self.shortcut(x))


def stem_of(kind, norm=nn.BatchNorm2d):
    if not kind:
        return ConvNorm(3, 64, 7, 2, norm=norm)
    one, two, three = kind
    return nn.Sequential(
        ConvNorm(3, one, 3, 2, norm=norm), ConvNorm(one, two, 3, norm=norm), ConvNorm(two, three, 3, norm=norm)
    )


def shortcut_of(inputs, outputs, stride, averaged, kernel=1, norm=nn.BatchNorm2d):
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if averaged:
        pool = [nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)] if stride > 1 else []
        return nn.Sequential(*pool, ConvNorm(inputs, outputs, act="", norm=norm))
    return ConvNorm(inputs, outputs, kernel if stride > 1 else 1, stride, act="", norm=norm)


def resnet(
    depths, block=bottleneck, stem=(), averaged=False, gate=nn.Identity, strided=False, norm=nn.BatchNorm2d, **more
):
    first, expansion = stem[-1] if stem else 64, 1 if block is Basic else 4
    layers = [stem_of(stem, norm), ConvNorm(64, 64, 3, 2) if strided else nn.MaxPool2d(3, 2, 1)]
    if norm is not nn.BatchNorm2d:
        more["norm"] = norm
    channels = first
    for stage, depth in enumerate(depths):
        for at in range(depth):
            inner, stride = 64 * 2**stage, 2 if stage and not at else 1
            branch = block(channels, inner, stride, gate, **more)
            layers.append(Block(branch, shortcut_of(channels, expansion * inner, stride, averaged, norm=norm)))
            channels = expansion * inner
    return nn.Sequential(*layers, Head(channels))


def squeeze(channels, ratio=16):
    return Gate(channels, divisible(channels / ratio, least=0.0))


def line(channels):
    del channels
    return LineGate(5)


class Before(nn.Sequential):
    """Norm and activation, then the convolution."""

    def __init__(self, inputs, outputs, kernel=1, stride=1):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        super().__init__(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv)


class PreBlock(nn.Module):
    """Pre-activation: the shortcut begins behind the first norm."""

    def __init__(self, inputs, inner, stride, averaged):
        super().__init__()
        outputs = 4 * inner
        self.norm, self.relu = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        self.shortcut = None
        if stride > 1 or inputs != outputs:
            pool = (
                [nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)]
                if averaged and stride > 1
                else []
            )
            self.shortcut = nn.Sequential(
                *pool, nn.Conv2d(inputs, outputs, 1, 1 if averaged else stride, bias=False)
            )
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), Before(inner, inner, 3, stride), Before(inner, outputs)
        )

    def forward(self, x):
        seen = self.relu(self.norm(x))
        return self.branch(seen) + (x if self.shortcut is None else self.shortcut(seen))


def resnet_before(depths, stem=()):
    plain = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    layers = [
        plain
        if not stem
        else nn.Sequential(
            ConvNorm(3, stem[0], 3, 2),
            ConvNorm(stem[0], stem[1], 3),
            nn.Conv2d(stem[1], stem[2], 3, 1, 1, bias=False),
        ),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for stage, depth in enumerate(depths):
        for at in range(depth):
            inner = 64 * 2**stage
            layers.append(PreBlock(channels, inner, 2 if stage and not at else 1, bool(stem)))
            channels = 4 * inner
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), Head(channels))


def regnet(width, slope, factor, group, depth, squeezed=False):
    """Widths along a line, rounded to powers of a factor and to whole groups; depth blocks in all."""
    steps = [round(math.log((width + slope * at) / width, factor)) for at in range(depth)]
    wanted = [round(width * factor**step / 8) * 8 for step in steps]
    channels, layers = 32, [ConvNorm(3, 32, 3, 2)]
    for one in dict.fromkeys(wanted):
        size = min(group, one)
        outputs = round(one / size) * size
        for at in range(wanted.count(one)):
            stride = 2 if at == 0 else 1
            gate = Gate(outputs, round(channels / 4)) if squeezed else nn.Identity()
            branch = nn.Sequential(
                ConvNorm(channels, outputs),
                ConvNorm(outputs, outputs, 3, stride, outputs // size),
                gate,
                ConvNorm(outputs, outputs, act=""),
            )
            layers.append(Block(branch, shortcut_of(channels, outputs, stride, False)))
            channels = outputs
    return nn.Sequential(*layers, Head(channels))


class Dual(nn.Module):
    """A block of DPN: part of its result is added to what came, part lies beside it."""

    def __init__(self, inputs, inner, width, more, groups, kind, stride, small):
        super().__init__()

        def norm_first(a, b, kernel=1, step=1, count=1):
            conv = nn.Conv2d(a, b, kernel, step, kernel // 2, groups=count, bias=False)
            return nn.Sequential(nn.BatchNorm2d(a), nn.ReLU(inplace=True), conv)

        self.width = width
        self.project = norm_first(inputs, width + 2 * more, 1, stride) if kind == "first" else None
        self.enter, self.middle = norm_first(inputs, inner), norm_first(inner, inner, 3, stride, groups)
        self.small = small
        if small:
            self.norm = nn.Sequential(nn.BatchNorm2d(inner), nn.ReLU(inplace=True))
            self.outs = nn.ModuleList(
                [nn.Conv2d(inner, width, 1, bias=False), nn.Conv2d(inner, more, 1, bias=False)]
            )
        else:
            self.leave = norm_first(inner, width + more)

    def forward(self, x):
        whole = torch.cat(x, 1) if isinstance(x, tuple) else x
        kept = self.project(whole).tensor_split([self.width], 1) if self.project is not None else x
        made = self.middle(self.enter(whole))
        if self.small:
            seen = self.norm(made)
            added, beside = (out(seen) for out in self.outs)
        else:
            added, beside = self.leave(made).tensor_split([self.width], 1)
        return kept[0] + added, torch.cat([kept[1], beside], 1)


class Joined(nn.Module):
    def forward(self, x):
        return torch.cat(x, 1)


def dpn(depths, stem, rank, groups, more, small=False):
    channels, layers = stem, [ConvNorm(3, stem, 3 if small else 7, 2), nn.MaxPool2d(3, 2, 1)]
    base = 64 if small else 256
    for stage, depth in enumerate(depths):
        width, inner = base * 2**stage, rank * 2**stage
        for at in range(depth):
            layers.append(
                Dual(
                    channels,
                    inner,
                    width,
                    more[stage],
                    groups,
                    "" if at else "first",
                    2 if stage and not at else 1,
                    small,
                )
            )
            channels = channels + more[stage] if at else width + 3 * more[stage]
    last = [Joined(), nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, *last, nn.Conv2d(channels, 1000, 1), nn.Flatten(1))


class OneShot(nn.Module):
    """Convolutions one after the other, all of whose results lie beside each other at the end (VoVNet)."""

    def __init__(self, inputs, inner, outputs, layers, gate, added, separable):
        super().__init__()

        def conv(a, b):
            if not separable:
                return ConvNorm(a, b, 3)
            return nn.Sequential(nn.Conv2d(a, b, 3, 1, 1, groups=b, bias=False), ConvNorm(b, b))

        self.enter = ConvNorm(inputs, inner) if separable and inputs != inner else None
        first = inner if self.enter is not None else inputs
        self.convs = nn.ModuleList(conv(inner if at else first, inner) for at in range(layers))
        self.leave, self.gate, self.added = ConvNorm(inputs + layers * inner, outputs), gate(outputs), added

    def forward(self, x):
        found = [x]
        now = x if self.enter is None else self.enter(x)
        for conv in self.convs:
            now = conv(now)
            found.append(now)
        made = self.gate(self.leave(torch.cat(found, 1)))
        return made + x if self.added else made


def vovnet(stem, inner, outputs, layers, depths, gate=SumGate, separable=False, added=True):
    def strided(a, b, step):
        if separable:
            return nn.Sequential(nn.Conv2d(a, a, 3, step, 1, groups=a, bias=False), ConvNorm(a, b))
        return ConvNorm(a, b, 3, step)

    made = [ConvNorm(3, stem[0], 3, 2), strided(stem[0], stem[1], 1), strided(stem[1], stem[2], 2)]
    channels = stem[2]
    for stage, depth in enumerate(depths):
        if stage:
            made.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for at in range(depth):
            last = gate if at == depth - 1 else nn.Identity
            made.append(OneShot(channels, inner[stage], outputs[stage], layers, last, added and at > 0, separable))
            channels = outputs[stage]
    return nn.Sequential(*made, Head(channels))


class Select(nn.Module):
    """A block of SelecSLS: three pairs of convolutions, their results and the stage's first beside each other."""

    def __init__(self, inputs, skip, inner, outputs, first, stride):
        super().__init__()
        half = inner // 2
        self.first, self.first_conv = first, ConvNorm(inputs, inner, 3, stride)
        self.second = nn.Sequential(ConvNorm(inner, inner), ConvNorm(inner, half, 3))
        self.third = nn.Sequential(ConvNorm(half, inner), ConvNorm(inner, half, 3))
        self.leave = ConvNorm(2 * inner + (0 if first else skip), outputs)

    def forward(self, x):
        now, kept = x if isinstance(x, tuple) else (x, None)
        one = self.first_conv(now)
        two = self.second(one)
        three = self.third(two)
        if self.first:
            made = self.leave(torch.cat([one, two, three], 1))
            return made, made
        return self.leave(torch.cat([one, two, three, kept], 1)), kept


class Kept(nn.Module):
    def forward(self, x):
        return x[0]


def selecsls(blocks, tail):
    layers = [ConvNorm(3, 32, 3, 2), *(Select(*one) for one in blocks), Kept()]
    layers += [ConvNorm(a, b, kernel, stride) for a, b, kernel, stride in tail]
    return nn.Sequential(*layers, Head(tail[-1][1]))


DEEP, TIERED, WIDE_STEM = (32, 32, 64), (24, 32, 64), (64, 64, 128)
R26, R50, R101, R152, R200 = (2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3), (3, 24, 36, 3)
MODELS = {
    "gluon_resnet18_v1b": partial(resnet, R26, Basic),
    "resnet34": partial(resnet, R50, Basic),
    "resnet26": partial(resnet, R26),
    "resnet26t": partial(resnet, R26, stem=TIERED, averaged=True),
    "resnet14t": partial(resnet, (1, 1, 1, 1), stem=TIERED, averaged=True),
    "ssl_resnet50": partial(resnet, R50),
    "gluon_resnet50_v1c": partial(resnet, R50, stem=DEEP),
    "gluon_resnet50_v1d": partial(resnet, R50, stem=DEEP, averaged=True),
    "resnet50t": partial(resnet, R50, stem=TIERED, averaged=True),
    "resnet50_gn": partial(resnet, R50, norm=partial(nn.GroupNorm, 32)),
    "tv_resnet101": partial(resnet, R101),
    "gluon_resnet101_v1s": partial(resnet, R101, stem=WIDE_STEM),
    "resnet101d": partial(resnet, R101, stem=DEEP, averaged=True),
    "resnet152": partial(resnet, R152),
    "resnet152d": partial(resnet, R152, stem=DEEP, averaged=True),
    "resnet200": partial(resnet, R200),
    "resnet200d": partial(resnet, R200, stem=DEEP, averaged=True),
    "wide_resnet50_2": partial(resnet, R50, width=128),
    "gluon_resnext50_32x4d": partial(resnet, R50, groups=32, width=4),
    "resnext50d_32x4d": partial(resnet, R50, groups=32, width=4, stem=DEEP, averaged=True),
    "resnext101_32x4d": partial(resnet, R101, groups=32, width=4),
    "resnext101_32x8d": partial(resnet, R101, groups=32, width=8),
    "ig_resnext101_32x16d": partial(resnet, R101, groups=32, width=16),
    "seresnet34": partial(resnet, R50, Basic, gate=squeeze),
    "seresnet50": partial(resnet, R50, gate=squeeze),
    "seresnet50t": partial(resnet, R50, stem=TIERED, averaged=True, gate=squeeze),
    "seresnet152": partial(resnet, R152, gate=squeeze),
    "seresnet152d": partial(resnet, R152, stem=DEEP, averaged=True, gate=squeeze),
    "seresnet200d": partial(resnet, R200, stem=DEEP, averaged=True, gate=squeeze),
    "seresnext50_32x4d": partial(resnet, R50, groups=32, width=4, gate=squeeze),
    "ecaresnet50t": partial(resnet, R50, stem=TIERED, averaged=True, gate=line),
    "resnetrs101": partial(resnet, R101, stem=DEEP, averaged=True, gate=partial(squeeze, ratio=4), strided=True),
    "resnetrs152": partial(resnet, R152, stem=DEEP, averaged=True, gate=partial(squeeze, ratio=4), strided=True),
    "resnetv2_50": partial(resnet_before, R50),
    "resnetv2_50d": partial(resnet_before, R50, DEEP),
    "resnetv2_101": partial(resnet_before, R101),
    "resnetv2_152d": partial(resnet_before, R152, DEEP),
    "res2net50_26w_4s": partial(resnet, R50, width=26, split=4),
    "res2net50_26w_6s": partial(resnet, R50, width=26, split=6),
    "res2net50_14w_8s": partial(resnet, R50, width=14, split=8),
    "regnetx_004": partial(regnet, 24, 24.48, 2.54, 16, 22),
    "regnetx_008": partial(regnet, 56, 35.73, 2.28, 16, 16),
    "regnetx_032": partial(regnet, 88, 26.31, 2.25, 48, 25),
    "regnetx_064": partial(regnet, 184, 60.83, 2.07, 56, 17),
    "regnetx_080": partial(regnet, 80, 49.56, 2.88, 120, 23),
    "regnetx_160": partial(regnet, 216, 55.59, 2.1, 128, 22),
    "regnetx_320": partial(regnet, 320, 69.86, 2.0, 168, 23),
    "regnety_002": partial(regnet, 24, 36.44, 2.49, 8, 13, True),
    "regnety_016": partial(regnet, 48, 20.71, 2.65, 24, 27, True),
    "regnety_032": partial(regnet, 80, 42.63, 2.66, 24, 21, True),
    "regnety_040": partial(regnet, 96, 31.41, 2.24, 64, 22, True),
    "regnety_120": partial(regnet, 168, 73.36, 2.37, 112, 19, True),
    "dpn68b": partial(dpn, (3, 4, 12, 3), 10, 128, 32, (16, 32, 32, 64), True),
    "dpn92": partial(dpn, (3, 4, 20, 3), 64, 96, 32, (16, 32, 24, 128)),
    "dpn107": partial(dpn, (4, 8, 20, 3), 128, 200, 50, (20, 64, 64, 128)),
    "vovnet39a": partial(
        vovnet,
        (64, 64, 128),
        (128, 160, 192, 224),
        (256, 512, 768, 1024),
        5,
        (1, 1, 2, 2),
        nn.Identity,
        added=False,
    ),
    "ese_vovnet39b": partial(vovnet, (64, 64, 128), (128, 160, 192, 224), (256, 512, 768, 1024), 5, (1, 1, 2, 2)),
    "ese_vovnet57b": partial(vovnet, (64, 64, 128), (128, 160, 192, 224), (256, 512, 768, 1024), 5, (1, 1, 4, 3)),
    "ese_vovnet99b": partial(vovnet, (64, 64, 128), (128, 160, 192, 224), (256, 512, 768, 1024), 5, (1, 3, 9, 3)),
    "ese_vovnet19b_slim": partial(vovnet, (64, 64, 128), (64, 80, 96, 112), (112, 256, 384, 512), 3, (1, 1, 1, 1)),
    "ese_vovnet19b_dw": partial(
        vovnet, (64, 64, 64), (128, 160, 192, 224), (256, 512, 768, 1024), 3, (1, 1, 1, 1), separable=True
    ),
    "ese_vovnet19b_slim_dw": partial(
        vovnet, (64, 64, 64), (64, 80, 96, 112), (112, 256, 384, 512), 3, (1, 1, 1, 1), separable=True
    ),
    "selecsls60": partial(
        selecsls,
        (
            (32, 0, 64, 64, True, 2),
            (64, 64, 64, 128, False, 1),
            (128, 0, 128, 128, True, 2),
            (128, 128, 128, 128, False, 1),
            (128, 128, 128, 288, False, 1),
            (288, 0, 288, 288, True, 2),
            (288, 288, 288, 288, False, 1),
            (288, 288, 288, 288, False, 1),
            (288, 288, 288, 416, False, 1),
        ),
        ((416, 756, 3, 2), (756, 1024, 3, 1), (1024, 1024, 3, 2), (1024, 1280, 1, 1)),
    ),
}
