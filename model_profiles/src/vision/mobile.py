"""Networks of inverted residual blocks: MobileNet v2 (arXiv 1801.04381) and v3 (1905.02244), MnasNet (1807.11626),
FBNet-C (1812.03443), Single-Path NAS (1904.02877), EfficientNet (1905.11946) with its lite and edge variants,
EfficientNet v2 (2104.00298), TinyNet (2010.14819) and MixNet (1907.09595).

A line of a table: kernel, blocks, stride of the first, widening, channels, share of the gate, form."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from parts import ACTS, ConvNorm, Gate, SamePad, divisible
from torch import nn


class Mixed(nn.Module):
    """A depthwise convolution whose channels have kernels of several sizes (MixNet)."""

    def __init__(self, channels, kernels, stride, same):
        super().__init__()
        each = [channels // len(kernels)] * len(kernels)
        each[0] += channels - sum(each)
        self.each = each
        self.convs = nn.ModuleList(
            nn.Sequential(
                *([SamePad(k, stride)] if same and stride > 1 else []),
                nn.Conv2d(n, n, k, stride, 0 if same and stride > 1 else k // 2, groups=n, bias=False),
            )
            for n, k in zip(each, kernels, strict=True)
        )

    def forward(self, x):
        return torch.cat([conv(part) for conv, part in zip(self.convs, x.split(self.each, 1), strict=True)], 1)


class MixedPoint(nn.Module):
    """A product over channels in halves, each from half of the channels (MixNet)."""

    def __init__(self, inputs, outputs, parts):
        super().__init__()
        self.parts = parts
        self.convs = nn.ModuleList(
            nn.Conv2d(inputs // parts, outputs // parts, 1, bias=False) for _ in range(parts)
        )

    def forward(self, x):
        return torch.cat([conv(part) for conv, part in zip(self.convs, x.chunk(self.parts, 1), strict=True)], 1)


def pointwise(inputs, outputs, act, parts=1):
    if parts == 1:
        return ConvNorm(inputs, outputs, act=act)
    return nn.Sequential(
        MixedPoint(inputs, outputs, parts), nn.BatchNorm2d(outputs), *([ACTS[act]()] if act else [])
    )


class Inverted(nn.Module):
    """Wide inside, narrow outside: a product, a depthwise convolution, a gate and a product."""

    def __init__(self, inputs, outputs, kernel, stride, widen, gate, act, form, same, gate_of, points=(1, 1)):
        super().__init__()
        inner = divisible(inputs * widen)
        layers = []
        if form == "fused":
            inner = inner if widen > 1 else outputs
            layers.append(ConvNorm(inputs, inner, kernel, stride, act=act, same=same))
        else:
            if form != "single":
                layers.append(pointwise(inputs, inner, act, points[0]))
            if isinstance(kernel, tuple):
                layers += [Mixed(inner, kernel, stride, same), nn.BatchNorm2d(inner), ACTS[act]()]
            else:
                layers.append(ConvNorm(inner, inner, kernel, stride, inner, act, same=same))
        if gate:
            layers.append(gate_of(inner, inputs, gate))
        if form != "fused" or widen > 1:
            layers.append(pointwise(inner, outputs, "", points[1]))
        self.body, self.adds = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def outer_gate(act, inner, inputs, share):
    """The inner channels of a gate are a share of what came in (EfficientNet)."""
    return Gate(inner, max(1, round(inputs * share)), act)


def inner_gate(act, inner, inputs, share):
    """They are a share of what is gated, its sigmoid of straight lines (MobileNet v3)."""
    del inputs
    return Gate(inner, divisible(inner * share), act, F.hardsigmoid)


def relu_gate(act, inner, inputs, share):
    """They are a share of what came in, with ReLU."""
    del act, inputs
    return Gate(inner, round(inner * share), "relu")


def network(
    table,
    width=1.0,
    depth=1.0,
    act="relu",
    stem=32,
    head=1280,
    same=False,
    gate_of=outer_gate,
    late=False,
    fix_stem=False,
    fix_ends=False,
    scale_head=False,
    counted=math.ceil,
):
    """Stem, the lines of a table and the head; `late`: the last product comes behind the mean (MobileNet v3)."""
    channels = stem if fix_stem else divisible(stem * width)
    layers = [ConvNorm(3, channels, 3, 2, act=act, same=same)]
    for at, (kernel, blocks, stride, widen, outputs, gate, form, *more) in enumerate(table):
        own = "relu" if "relu" in more else act
        points = next((one for one in more if isinstance(one, tuple)), (1, 1))
        outputs = divisible(outputs * width)
        if form == "plain":
            layers.append(ConvNorm(channels, outputs, kernel, stride, act=act, same=same))
            channels = outputs
            continue
        longer = depth[at] if isinstance(depth, tuple) else depth
        count = blocks if fix_ends and at in (0, len(table) - 1) else max(1, counted(blocks * longer))
        for number in range(count):
            layers.append(
                Inverted(
                    channels,
                    outputs,
                    kernel,
                    1 if number else stride,
                    widen,
                    gate,
                    own,
                    form,
                    same,
                    partial(gate_of, own),
                    points,
                )
            )
            channels = outputs
    last = divisible(head * width) if (scale_head and width > 1) or scale_head == "always" else head
    if late:
        behind = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, last, 1), ACTS[act](), nn.Flatten(1)]
    else:
        behind = [ConvNorm(channels, last, act=act), nn.AdaptiveAvgPool2d(1), nn.Flatten(1)]
    return nn.Sequential(*layers, *behind, nn.Linear(last, 1000))


V2 = (
    (3, 1, 1, 1, 16, 0, "single"),
    (3, 2, 2, 6, 24, 0, ""),
    (3, 3, 2, 6, 32, 0, ""),
    (3, 4, 2, 6, 64, 0, ""),
    (3, 3, 1, 6, 96, 0, ""),
    (3, 3, 2, 6, 160, 0, ""),
    (3, 1, 1, 6, 320, 0, ""),
)
V3_LARGE = (
    (3, 1, 1, 1, 16, 0, "single", "relu"),
    (3, 1, 2, 4, 24, 0, "", "relu"),
    (3, 1, 1, 3, 24, 0, "", "relu"),
    (5, 3, 2, 3, 40, 0.25, "", "relu"),
    (3, 1, 2, 6, 80, 0, ""),
    (3, 1, 1, 2.5, 80, 0, ""),
    (3, 2, 1, 2.3, 80, 0, ""),
    (3, 2, 1, 6, 112, 0.25, ""),
    (5, 3, 2, 6, 160, 0.25, ""),
    (1, 1, 1, 1, 960, 0, "plain"),
)
V3_SMALL = (
    (3, 1, 2, 1, 16, 0.25, "single", "relu"),
    (3, 1, 2, 4.5, 24, 0, "", "relu"),
    (3, 1, 1, 3.67, 24, 0, "", "relu"),
    (5, 1, 2, 4, 40, 0.25, ""),
    (5, 2, 1, 6, 40, 0.25, ""),
    (5, 2, 1, 3, 48, 0.25, ""),
    (5, 3, 2, 6, 96, 0.25, ""),
    (1, 1, 1, 1, 576, 0, "plain"),
)
V3_PLAIN = tuple((3 if one[0] == 5 else one[0], *one[1:5], 0, *one[6:]) for one in V3_LARGE)
MNAS_B = (
    (3, 1, 1, 1, 16, 0, "single"),
    (3, 3, 2, 3, 24, 0, ""),
    (5, 3, 2, 3, 40, 0, ""),
    (5, 3, 2, 6, 80, 0, ""),
    (3, 2, 1, 6, 96, 0, ""),
    (5, 4, 2, 6, 192, 0, ""),
    (3, 1, 1, 6, 320, 0, ""),
)
MNAS_A = (
    (3, 1, 1, 1, 16, 0, "single"),
    (3, 2, 2, 6, 24, 0, ""),
    (5, 3, 2, 3, 40, 0.25, ""),
    (3, 4, 2, 6, 80, 0, ""),
    (3, 2, 1, 6, 112, 0.25, ""),
    (5, 3, 2, 6, 160, 0.25, ""),
    (3, 1, 1, 6, 320, 0, ""),
)
FBNET_C = (
    (3, 1, 1, 1, 16, 0, ""),
    (3, 1, 2, 6, 24, 0, ""),
    (3, 2, 1, 1, 24, 0, ""),
    (5, 1, 2, 6, 32, 0, ""),
    (5, 1, 1, 3, 32, 0, ""),
    (5, 1, 1, 6, 32, 0, ""),
    (3, 1, 1, 6, 32, 0, ""),
    (5, 1, 2, 6, 64, 0, ""),
    (5, 1, 1, 3, 64, 0, ""),
    (5, 2, 1, 6, 64, 0, ""),
    (5, 3, 1, 6, 112, 0, ""),
    (5, 1, 1, 3, 112, 0, ""),
    (5, 4, 2, 6, 184, 0, ""),
    (3, 1, 1, 6, 352, 0, ""),
)
SINGLE_PATH = (
    (3, 1, 1, 1, 16, 0, "single"),
    (3, 3, 2, 3, 24, 0, ""),
    (5, 1, 2, 6, 40, 0, ""),
    (3, 3, 1, 3, 40, 0, ""),
    (5, 1, 2, 6, 80, 0, ""),
    (3, 3, 1, 3, 80, 0, ""),
    (5, 1, 1, 6, 96, 0, ""),
    (5, 3, 1, 3, 96, 0, ""),
    (5, 4, 2, 6, 192, 0, ""),
    (3, 1, 1, 6, 320, 0, ""),
)
EFFICIENT = (
    (3, 1, 1, 1, 16, 0.25, "single"),
    (3, 2, 2, 6, 24, 0.25, ""),
    (5, 2, 2, 6, 40, 0.25, ""),
    (3, 3, 2, 6, 80, 0.25, ""),
    (5, 3, 1, 6, 112, 0.25, ""),
    (5, 4, 2, 6, 192, 0.25, ""),
    (3, 1, 1, 6, 320, 0.25, ""),
)
LITE = tuple((*one[:5], 0, one[6]) for one in EFFICIENT)
EDGE = (
    (3, 1, 1, 4, 24, 0, "fused"),
    (3, 1, 1, 4, 24, 0, "fused"),
    (3, 2, 2, 8, 32, 0, "fused"),
    (3, 4, 2, 8, 48, 0, "fused"),
    (5, 5, 2, 8, 96, 0, ""),
    (5, 4, 1, 8, 144, 0, ""),
    (5, 2, 2, 8, 192, 0, ""),
)
V2_S = (
    (3, 2, 1, 1, 24, 0, "fused"),
    (3, 4, 2, 4, 48, 0, "fused"),
    (3, 4, 2, 4, 64, 0, "fused"),
    (3, 6, 2, 4, 128, 0.25, ""),
    (3, 9, 1, 6, 160, 0.25, ""),
    (3, 15, 2, 6, 256, 0.25, ""),
)
V2_M = (
    (3, 3, 1, 1, 24, 0, "fused"),
    (3, 5, 2, 4, 48, 0, "fused"),
    (3, 5, 2, 4, 80, 0, "fused"),
    (3, 7, 2, 4, 160, 0.25, ""),
    (3, 14, 1, 6, 176, 0.25, ""),
    (3, 18, 2, 6, 304, 0.25, ""),
    (3, 5, 1, 6, 512, 0.25, ""),
)
V2_L = (
    (3, 4, 1, 1, 32, 0, "fused"),
    (3, 7, 2, 4, 64, 0, "fused"),
    (3, 7, 2, 4, 96, 0, "fused"),
    (3, 10, 2, 4, 192, 0.25, ""),
    (3, 19, 1, 6, 224, 0.25, ""),
    (3, 25, 2, 6, 384, 0.25, ""),
    (3, 7, 1, 6, 640, 0.25, ""),
)
MIX_S = (
    (3, 1, 1, 1, 16, 0, "single"),
    (3, 1, 2, 6, 24, 0, "", (2, 2)),
    (3, 1, 1, 3, 24, 0, "", (2, 2)),
    ((3, 5, 7), 1, 2, 6, 40, 0.5, ""),
    ((3, 5), 3, 1, 6, 40, 0.5, "", (2, 2)),
    ((3, 5, 7), 1, 2, 6, 80, 0.25, "", (1, 2)),
    ((3, 5), 2, 1, 6, 80, 0.25, "", (1, 2)),
    ((3, 5, 7), 1, 1, 6, 120, 0.5, "", (2, 2)),
    ((3, 5, 7, 9), 2, 1, 3, 120, 0.5, "", (2, 2)),
    ((3, 5, 7, 9, 11), 1, 2, 6, 200, 0.5, ""),
    ((3, 5, 7, 9), 2, 1, 6, 200, 0.5, "", (1, 2)),
)
MIX_M = (
    (3, 1, 1, 1, 24, 0, "single"),
    ((3, 5, 7), 1, 2, 6, 32, 0, "", (2, 2)),
    (3, 1, 1, 3, 32, 0, "", (2, 2)),
    ((3, 5, 7, 9), 1, 2, 6, 40, 0.5, ""),
    ((3, 5), 3, 1, 6, 40, 0.5, "", (2, 2)),
    ((3, 5, 7), 1, 2, 6, 80, 0.25, ""),
    ((3, 5, 7, 9), 3, 1, 6, 80, 0.25, "", (2, 2)),
    (3, 1, 1, 6, 120, 0.5, ""),
    ((3, 5, 7, 9), 3, 1, 3, 120, 0.5, "", (2, 2)),
    ((3, 5, 7, 9), 1, 2, 6, 200, 0.5, ""),
    ((3, 5, 7, 9), 3, 1, 6, 200, 0.5, "", (1, 2)),
)
SILU = partial(network, EFFICIENT, act="silu", scale_head="always")
RELU6 = partial(network, act="relu6")
V3 = partial(network, act="hswish", stem=16, late=True, gate_of=inner_gate)


def edge(width, depth, same=False):
    """The very first block widens what the table's 24 channels become four times, not the stem's 32."""
    first, again, *rest = EDGE
    widen = 4 * divisible(24 * width) / divisible(32 * width)
    table = (
        (first[0], 1, 1, widen, *first[4:]),
        (*again[:1], math.ceil(depth) - 1, *again[2:]),
        *((one[0], math.ceil(one[1] * depth), *one[2:]) for one in rest),
    )
    return network([one for one in table if one[1]], width, act="relu", scale_head="always", same=same)


MODELS = {
    "mobilenetv2_050": partial(RELU6, V2, 0.5),
    "mobilenetv2_140": partial(RELU6, V2, 1.4, scale_head=True),
    "mobilenetv3_large_100": partial(V3, V3_LARGE),
    "mobilenetv3_large_075": partial(V3, V3_LARGE, 0.75),
    "tf_mobilenetv3_large_100": partial(V3, V3_LARGE, same=True),
    "tf_mobilenetv3_large_minimal_100": partial(V3, V3_PLAIN, act="relu", same=True),
    "mobilenetv3_small_100": partial(V3, V3_SMALL, head=1024),
    "mobilenetv3_small_075": partial(V3, V3_SMALL, 0.75, head=1024, fix_stem=True),
    "mobilenetv3_small_050": partial(V3, V3_SMALL, 0.5, head=1024, fix_stem=True),
    "mnasnet_050": partial(network, MNAS_B, 0.5),
    "mnasnet_075": partial(network, MNAS_B, 0.75),
    "semnasnet_075": partial(network, MNAS_A, 0.75, gate_of=outer_gate),
    "fbnetc_100": partial(network, FBNET_C, stem=16, head=1984),
    "spnasnet_100": partial(network, SINGLE_PATH),
    "tf_efficientnet_b0": partial(SILU, same=True),
    "efficientnet_b1": partial(SILU, 1.0, 1.1),
    "tf_efficientnet_b1_ap": partial(SILU, 1.0, 1.1, same=True),
    "efficientnet_b2a": partial(SILU, 1.1, 1.2),
    "tf_efficientnet_b3_ap": partial(SILU, 1.2, 1.4, same=True),
    "efficientnet_b4": partial(SILU, 1.4, 1.8),
    "tf_efficientnet_b5": partial(SILU, 1.6, 2.2, same=True),
    "efficientnet_b6": partial(SILU, 1.8, 2.6),
    "efficientnet_b7": partial(SILU, 2.0, 3.1),
    "efficientnet_l2": partial(SILU, 4.3, 5.3),
    "efficientnet_lite0": partial(RELU6, LITE, fix_stem=True, fix_ends=True),
    "efficientnet_lite1": partial(RELU6, LITE, 1.0, 1.1, fix_stem=True, fix_ends=True),
    "efficientnet_lite2": partial(RELU6, LITE, 1.1, 1.2, fix_stem=True, fix_ends=True),
    "efficientnet_lite3": partial(RELU6, LITE, 1.2, 1.4, fix_stem=True, fix_ends=True),
    "efficientnet_lite4": partial(RELU6, LITE, 1.4, 1.8, fix_stem=True, fix_ends=True),
    "tf_efficientnet_es": partial(edge, 1.0, 1.0, True),
    "efficientnet_em": partial(edge, 1.0, 1.1),
    "efficientnet_el": partial(edge, 1.2, 1.4),
    "efficientnetv2_rw_t": partial(network, V2_S, 0.8, 0.9, "silu", 24, scale_head="always"),
    "efficientnetv2_m": partial(network, V2_M, act="silu", stem=24),
    "efficientnetv2_l": partial(network, V2_L, act="silu"),
    "tf_efficientnetv2_m": partial(network, V2_M, act="silu", stem=24, same=True),
    "tinynet_b": partial(network, EFFICIENT, 0.75, 1.1, "silu", fix_stem=True, counted=round),
    "tinynet_c": partial(network, EFFICIENT, 0.54, 0.85, "silu", fix_stem=True, counted=round),
    "tinynet_e": partial(network, EFFICIENT, 0.51, 0.6, "silu", fix_stem=True, counted=round),
    "tf_mixnet_s": partial(network, MIX_S, stem=16, head=1536, same=True),
    "tf_mixnet_m": partial(network, MIX_M, stem=24, head=1536, same=True),
    "mixnet_l": partial(network, MIX_M, 1.3, stem=24, head=1536),
    "mixnet_xl": partial(network, MIX_M, 1.6, 1.2, stem=24, head=1536, counted=round),
}
