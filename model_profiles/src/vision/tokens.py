"""Networks over patches: ViT (arXiv 2010.11929), DeiT (2012.12877) and DeiT III (2204.07118), BEiT (2106.08254),
CaiT (2103.17239), Swin (2103.14030), MLP-Mixer (2105.01601), gMLP (2105.08050), ResMLP (2105.03404), ConvMixer
(2201.09792), PoolFormer (2111.11418) and ConvNeXt (2201.03545).

Attention is two products and a softmax: fused kernels came later than the measured steps."""

from functools import partial

import torch
import torch.nn.functional as F
from parts import Head, LayerNorm2d, Residual
from torch import nn

NORM = partial(nn.LayerNorm, eps=1e-6)


def perceptron(width, inner, outputs=None):
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, outputs or width))


class Attention(nn.Module):
    """Over all tokens, with a learnt bias by place where there is one."""

    def __init__(self, width, heads, bias=True, tokens=0, table=0):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.project = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width)
        self.shift = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(0 if bias else 2))
        self.table = nn.Parameter(torch.zeros(table, heads)) if table else None
        self.register_buffer(
            "place", torch.zeros(tokens * tokens, dtype=torch.long) if table else None, persistent=False
        )

    def forward(self, x, mask=None):
        batch, tokens, width = x.shape
        bias = self.qkv.bias
        if bias is None:  # queries and values have one of their own, keys have none
            query, value = self.shift
            bias = torch.cat([query, torch.zeros_like(query), value])
        made = F.linear(x, self.qkv.weight, bias)
        q, k, v = made.reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        if self.table is not None:
            scores = scores + self.table[self.place].view(tokens, tokens, -1).permute(
                2, 0, 1
            ).contiguous().unsqueeze(0)
        if mask is not None:
            count = mask.shape[0]
            scores = scores.view(batch // count, count, self.heads, tokens, tokens) + mask.unsqueeze(1).unsqueeze(
                0
            )
            scores = scores.view(-1, self.heads, tokens, tokens)
        return self.project((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width))


def normed(width, layer):
    return nn.Sequential(NORM(width), layer)


class Vit(nn.Module):
    def __init__(self, width, depth, heads, patch, size, ratio=4.0, scaled=False, extra=1, beit=False):
        super().__init__()
        self.patches, side = nn.Conv2d(3, width, patch, patch), size // patch
        self.extra = nn.ParameterList(nn.Parameter(torch.zeros(1, 1, width)) for _ in range(extra))
        tokens, scale = side * side, width if scaled or beit else 0
        self.after, self.beit = scaled, beit
        self.places = None if beit else nn.Parameter(torch.zeros(1, tokens + (0 if scaled else extra), width))
        table = (2 * side - 1) ** 2 + 3 if beit else 0
        self.blocks = nn.Sequential(
            *(
                layer
                for _ in range(depth)
                for layer in (
                    Residual(normed(width, Attention(width, heads, not beit, tokens + 1, table)), scale),
                    Residual(normed(width, perceptron(width, int(width * ratio))), scale),
                )
            )
        )
        self.norm, self.heads = NORM(width), nn.ModuleList(nn.Linear(width, 1000) for _ in range(extra))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        first = [one.expand(len(x), -1, -1) for one in self.extra]
        if self.after:
            x = torch.cat([*first, x + self.places], 1)
        else:
            x = torch.cat([*first, x], 1)
            x = x if self.places is None else x + self.places
        x = self.blocks(x)
        if self.beit:
            return self.heads[0](self.norm(x[:, 1:].mean(1)))
        x = self.norm(x)
        made = [head(x[:, at]) for at, head in enumerate(self.heads)]
        return made[0] if len(made) == 1 else (made[0] + made[1]) / 2


class Window(nn.Module):
    """Attention inside windows, every other time inside shifted ones."""

    def __init__(self, width, heads, side, window, shift):
        super().__init__()
        self.window = min(window, side)
        self.shift = shift if side > window else 0
        tokens = self.window**2
        self.norm, self.attention = (
            nn.LayerNorm(width),
            Attention(width, heads, True, tokens, (2 * self.window - 1) ** 2),
        )
        self.norm2, self.mlp = nn.LayerNorm(width), perceptron(width, 4 * width)
        self.register_buffer(
            "mask",
            torch.zeros((side // self.window) ** 2, tokens, tokens) if self.shift else None,
            persistent=False,
        )

    def forward(self, x):
        batch, side, _, width = x.shape
        w = self.window
        now = self.norm(x)
        if self.shift:
            now = torch.roll(now, (-self.shift, -self.shift), (1, 2))
        now = (
            now.view(batch, side // w, w, side // w, w, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, width)
        )
        now = self.attention(now, self.mask).view(batch, side // w, side // w, w, w, width)
        now = now.permute(0, 1, 3, 2, 4, 5).reshape(batch, side, side, width)
        if self.shift:
            now = torch.roll(now, (self.shift, self.shift), (1, 2))
        x = x + now
        return x + self.mlp(self.norm2(x))


class Merge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self, width, depths, heads, size=224, window=7):
        super().__init__()
        self.patches, self.norm, side = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width), size // 4
        layers = []
        for stage, depth in enumerate(depths):
            layers += [
                Window(width, heads * 2**stage, side, window, window // 2 if at % 2 else 0) for at in range(depth)
            ]
            if stage < 3:
                layers.append(Merge(width))
                width, side = 2 * width, side // 2
        self.blocks, self.last, self.head = nn.Sequential(*layers), nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.norm(self.patches(x).permute(0, 2, 3, 1))
        return self.head(self.last(self.blocks(x)).mean((1, 2)))


class Across(nn.Module):
    """A layer over tokens instead of channels."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


class Affine(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.ones(1, 1, width)), nn.Parameter(torch.zeros(1, 1, width))

    def forward(self, x):
        return torch.addcmul(self.beta, self.alpha, x)


class SpatialGate(nn.Module):
    def __init__(self, width, tokens):
        super().__init__()
        self.norm, self.over = NORM(width), nn.Linear(tokens, tokens)

    def forward(self, x):
        kept, seen = x.chunk(2, -1)
        return kept * self.over(self.norm(seen).transpose(-1, -2)).transpose(-1, -2)


class Patches(nn.Module):
    """Patches of an image, blocks over them, and the mean."""

    def __init__(self, width, patch, blocks, norm=NORM):
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, width, patch, patch), nn.Sequential(*blocks)
        self.norm, self.head = norm(width), nn.Linear(width, 1000)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


def mixer(width, depth, patch, size=224):
    tokens = (size // patch) ** 2
    blocks = [
        layer
        for _ in range(depth)
        for layer in (
            Residual(nn.Sequential(NORM(width), Across(perceptron(tokens, width // 2)))),
            Residual(nn.Sequential(NORM(width), perceptron(width, 4 * width))),
        )
    ]
    return Patches(width, patch, blocks)


def resmlp(width, depth):
    blocks = [
        layer
        for _ in range(depth)
        for layer in (
            Residual(nn.Sequential(Affine(width), Across(nn.Linear(196, 196))), width),
            Residual(nn.Sequential(Affine(width), perceptron(width, 4 * width)), width),
        )
    ]
    return Patches(width, 16, blocks, Affine)


def gmlp(width, depth):
    def block():
        inner = nn.Sequential(
            nn.Linear(width, 6 * width), nn.GELU(), SpatialGate(3 * width, 196), nn.Linear(3 * width, width)
        )
        return Residual(nn.Sequential(NORM(width), inner))

    return Patches(width, 16, [block() for _ in range(depth)])


def convmixer(width, depth, kernel, patch, act=nn.GELU):
    def block():
        deep = nn.Sequential(
            nn.Conv2d(width, width, kernel, groups=width, padding="same"), act(), nn.BatchNorm2d(width)
        )
        return nn.Sequential(Residual(deep), nn.Conv2d(width, width, 1), act(), nn.BatchNorm2d(width))

    stem = nn.Sequential(nn.Conv2d(3, width, patch, patch), act(), nn.BatchNorm2d(width))
    return nn.Sequential(stem, *(block() for _ in range(depth)), Head(width))


class Next(nn.Module):
    """A block of ConvNeXt; its products are convolutions over channels or products over the last axis."""

    def __init__(self, width, by_conv):
        super().__init__()
        self.deep, self.by_conv = nn.Conv2d(width, width, 7, 1, 3, groups=width), by_conv
        self.scale = nn.Parameter(torch.ones(width))
        if by_conv:
            self.norm = LayerNorm2d(width)
            self.mlp = nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1))
        else:
            self.norm, self.mlp = NORM(width), perceptron(width, 4 * width)

    def forward(self, x):
        now = self.deep(x)
        now = (
            self.mlp(self.norm(now))
            if self.by_conv
            else self.mlp(self.norm(now.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        )
        return now * self.scale.view(1, -1, 1, 1) + x


class NextHead(nn.Module):
    def __init__(self, width, first):
        super().__init__()
        self.first, self.norm, self.fc = (
            first,
            NORM(width) if not first else LayerNorm2d(width),
            nn.Linear(width, 1000),
        )

    def forward(self, x):
        return self.fc(self.norm(x.mean((2, 3))) if not self.first else self.norm(x).mean((2, 3)))


def convnext(depths, widths, by_conv=False, norm_first=False):
    layers = [nn.Conv2d(3, widths[0], 4, 4), LayerNorm2d(widths[0])]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage:
            layers += [LayerNorm2d(widths[stage - 1]), nn.Conv2d(widths[stage - 1], width, 2, 2)]
        layers += [Next(width, by_conv) for _ in range(depth)]
    return nn.Sequential(*layers, NextHead(widths[-1], norm_first))


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x):
        return self.pool(x) - x


class Scaled(nn.Module):
    """x plus a branch, scaled per channel of an image."""

    def __init__(self, width, branch):
        super().__init__()
        self.branch, self.scale = branch, nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.scale.view(-1, 1, 1) * self.branch(x)


def poolformer(depths, widths):
    layers = [nn.Conv2d(3, widths[0], 7, 4, 2)]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage:
            layers.append(nn.Conv2d(widths[stage - 1], width, 3, 2, 1))
        for _ in range(depth):
            wide = nn.Sequential(
                nn.GroupNorm(1, width), nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
            )
            layers += [Scaled(width, nn.Sequential(nn.GroupNorm(1, width), Pooling())), Scaled(width, wide)]
    return nn.Sequential(*layers, NextHead(widths[-1], False))


class ClassAttention(nn.Module):
    """The class token asks all tokens."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.q, self.k, self.v, self.project = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, tokens, width = x.shape
        q = self.q(x[:, 0]).unsqueeze(1).reshape(batch, 1, self.heads, -1).permute(0, 2, 1, 3) * self.scale
        k, v = (layer(x).reshape(batch, tokens, self.heads, -1).permute(0, 2, 1, 3) for layer in (self.k, self.v))
        made = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.project(made.transpose(1, 2).reshape(batch, 1, width))


class ClassBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.attention, self.norm2, self.mlp = (
            NORM(width),
            ClassAttention(width, heads),
            NORM(width),
            perceptron(width, 4 * width),
        )
        self.one, self.two = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

    def forward(self, x, token):
        token = token + self.one * self.attention(self.norm(torch.cat([token, x], 1)))
        return token + self.two * self.mlp(self.norm2(token))


class TalkingHeads(nn.Module):
    """Attention whose heads are mixed before and after the softmax."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.after = nn.Linear(heads, heads), nn.Linear(heads, heads)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        scores = self.after(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.project((scores @ v).transpose(1, 2).reshape(batch, tokens, width))


class Cait(nn.Module):
    def __init__(self, width, depth, heads, size=224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token, self.places = (
            nn.Parameter(torch.zeros(1, 1, width)),
            nn.Parameter(torch.zeros(1, (size // 16) ** 2, width)),
        )
        self.blocks = nn.Sequential(
            *(
                layer
                for _ in range(depth)
                for layer in (
                    Residual(normed(width, TalkingHeads(width, heads)), width),
                    Residual(normed(width, perceptron(width, 4 * width)), width),
                )
            )
        )
        self.last = nn.ModuleList(ClassBlock(width, heads) for _ in range(2))
        self.norm, self.head = NORM(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.places)
        token = self.token.expand(len(x), -1, -1)
        for block in self.last:
            token = block(x, token)
        return self.head(self.norm(torch.cat([token, x], 1))[:, 0])


NEXT_T, NEXT_S = (3, 3, 9, 3), (3, 3, 27, 3)
MODELS = {
    "vit_tiny_patch16_384": partial(Vit, 192, 12, 3, 16, 384),
    "vit_small_patch32_384": partial(Vit, 384, 12, 6, 32, 384),
    "deit_small_patch16_224": partial(Vit, 384, 12, 6, 16, 224),
    "deit_small_distilled_patch16_224": partial(Vit, 384, 12, 6, 16, 224, extra=2),
    "deit_base_patch16_224": partial(Vit, 768, 12, 12, 16, 224),
    "vit_base_patch32_224_sam": partial(Vit, 768, 12, 12, 32, 224),
    "vit_base_patch32_384": partial(Vit, 768, 12, 12, 32, 384),
    "vit_base_patch8_224": partial(Vit, 768, 12, 12, 8, 224),
    "vit_large_patch32_224": partial(Vit, 1024, 24, 16, 32, 224),
    "vit_giant_patch14_224": partial(Vit, 1408, 40, 16, 14, 224, 48 / 11),
    "deit3_small_patch16_224": partial(Vit, 384, 12, 6, 16, 224, scaled=True),
    "deit3_base_patch16_384_in21ft1k": partial(Vit, 768, 12, 12, 16, 384, scaled=True),
    "deit3_large_patch16_224_in21ft1k": partial(Vit, 1024, 24, 16, 16, 224, scaled=True),
    "deit3_huge_patch14_224": partial(Vit, 1280, 32, 16, 14, 224, scaled=True),
    "beit_base_patch16_224": partial(Vit, 768, 12, 12, 16, 224, beit=True),
    "beit_large_patch16_224": partial(Vit, 1024, 24, 16, 16, 224, beit=True),
    "beit_large_patch16_512": partial(Vit, 1024, 24, 16, 16, 512, beit=True),
    "swin_tiny_patch4_window7_224": partial(Swin, 96, (2, 2, 6, 2), 3),
    "swin_base_patch4_window7_224": partial(Swin, 128, (2, 2, 18, 2), 4),
    "swin_base_patch4_window12_384": partial(Swin, 128, (2, 2, 18, 2), 4, 384, 12),
    "mixer_s32_224": partial(mixer, 512, 8, 32),
    "mixer_s16_224": partial(mixer, 512, 8, 16),
    "mixer_b16_224": partial(mixer, 768, 12, 16),
    "resmlp_24_224": partial(resmlp, 384, 24),
    "gmlp_s16_224": partial(gmlp, 256, 30),
    "convmixer_768_32": partial(convmixer, 768, 32, 7, 7, partial(nn.ReLU, inplace=True)),
    "convmixer_1536_20": partial(convmixer, 1536, 20, 9, 7),
    "poolformer_m36": partial(poolformer, (6, 6, 18, 6), (96, 192, 384, 768)),
    "convnext_nano": partial(convnext, (2, 2, 8, 2), (80, 160, 320, 640), True),
    "convnext_tiny_hnf": partial(convnext, NEXT_T, (96, 192, 384, 768), True, True),
    "convnext_tiny_384_in22ft1k": partial(convnext, NEXT_T, (96, 192, 384, 768)),
    "convnext_small": partial(convnext, NEXT_S, (96, 192, 384, 768)),
    "convnext_base_384_in22ft1k": partial(convnext, NEXT_S, (128, 256, 512, 1024)),
    "convnext_large": partial(convnext, NEXT_S, (192, 384, 768, 1536)),
    "convnext_large_384_in22ft1k": partial(convnext, NEXT_S, (192, 384, 768, 1536)),
    "convnext_xlarge_384_in22ft1k": partial(convnext, NEXT_S, (256, 512, 1024, 2048)),
    "cait_xxs24_224": partial(Cait, 192, 24, 4),
    "cait_xxs36_224": partial(Cait, 192, 36, 4),
    "cait_xs24_384": partial(Cait, 288, 24, 6, 384),
    "cait_s36_384": partial(Cait, 384, 36, 8, 384),
    "cait_m36_384": partial(Cait, 768, 36, 16, 384),
}
