"""The UNet of Stable Diffusion 1.5: it predicts the noise in a 64×64 latent image of 4 channels, given a text.

Four levels of 320, 640, 1280 and 1280 channels, two blocks each on the way down and three on the way up, where
each also sees what the way down made. A block is two convolutions with group norms, shifted by the time step; but
at the lowest level a transformer block follows, in which pixels look at each other and at the text's 77 tokens.
859,520,964 parameters. The autoencoder and the text's encoder, which are frozen, and the moving average of the
weights are no part of the step; the loss is the noise's squared error.

Source: Rombach et al., High-resolution image synthesis with latent diffusion models, CVPR 2022 (arXiv 2112.10752)
and the model card of Stable Diffusion v1-5: AdamW at 1e-4, 2048 images of 512×512 in a step (on 32 × 8 devices,
four at a time, twice), 595,000 steps, whose images count as one epoch.
"""

import torch
import torch.nn.functional as F
from torch import nn

WIDTHS, DEPTH, HEADS, GROUPS = (320, 640, 1280, 1280), 2, 8, 32
SIDE, CHANNELS, TIME, TEXT, TOKENS = 64, 4, 1280, 768, 77

batch_size = 8  # of one device; 2048 on all 256
train_samples = 2048 * 595_000
epochs = 1


class Residual(nn.Module):
    """Two convolutions, between which the time step is added, beside their input."""

    def __init__(self, k, n):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(GROUPS, k), nn.Conv2d(k, n, 3, padding=1)
        self.time = nn.Linear(TIME, n)
        self.norm2, self.conv2 = nn.GroupNorm(GROUPS, n), nn.Conv2d(n, n, 3, padding=1)
        self.beside = nn.Conv2d(k, n, 1) if k != n else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.beside(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Each pixel looks at what has ``seen`` numbers a place: at all pixels, or at the text."""

    def __init__(self, width, seen):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(seen, width, bias=False) for _ in range(2))
        self.project = nn.Linear(width, width)

    def forward(self, x, seen):
        given = (self.query(x), self.key(seen), self.value(seen))
        heads = (one.unflatten(2, (HEADS, -1)).transpose(1, 2) for one in given)
        return self.project(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """A transformer block over the pixels, with a gated feed-forward layer, beside its input."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.enter = nn.GroupNorm(GROUPS, width, eps=1e-6), nn.Conv2d(width, width, 1)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.pixels, self.text = Attention(width, width), Attention(width, TEXT)
        self.expand, self.contract = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)
        self.leave = nn.Conv2d(width, width, 1)

    def forward(self, image, text):
        x = self.enter(self.norm(image)).flatten(2).transpose(1, 2)
        normed = self.norm1(x)
        x = x + self.pixels(normed, normed)
        x = x + self.text(self.norm2(x), text)
        wide, gate = self.expand(self.norm3(x)).chunk(2, dim=-1)
        x = x + self.contract(wide * F.gelu(gate))
        return image + self.leave(x.transpose(1, 2).unflatten(2, image.shape[2:]))


class Block(nn.Module):
    def __init__(self, k, n, attends):
        super().__init__()
        self.residual = Residual(k, n)
        self.transformer = Transformer(n) if attends else None

    def forward(self, x, time, text):
        x = self.residual(x, time)
        return x if self.transformer is None else self.transformer(x, text)


class Level(nn.Module):
    """The blocks of one resolution, and the convolution to the next, where there is one."""

    def __init__(self, blocks, resample):
        super().__init__()
        self.blocks, self.resample = nn.ModuleList(blocks), resample


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(WIDTHS[0], TIME), nn.SiLU(), nn.Linear(TIME, TIME))
        self.enter = nn.Conv2d(CHANNELS, WIDTHS[0], 3, padding=1)
        lowest, width = len(WIDTHS) - 1, WIDTHS[0]
        self.down, held = nn.ModuleList(), [width]
        for level, n in enumerate(WIDTHS):
            blocks = [Block(k, n, level < lowest) for k in (width, *[n] * (DEPTH - 1))]
            resample = nn.Conv2d(n, n, 3, stride=2, padding=1) if level < lowest else None
            self.down.append(Level(blocks, resample))
            held += [n] * (DEPTH + (level < lowest))
            width = n
        self.middle = nn.ModuleList([Block(width, width, True), Residual(width, width)])
        self.up = nn.ModuleList()
        for level, n in reversed(list(enumerate(WIDTHS))):
            blocks = []
            for _ in range(DEPTH + 1):
                blocks.append(Block(width + held.pop(), n, level < lowest))
                width = n
            self.up.append(Level(blocks, nn.Conv2d(n, n, 3, padding=1) if level else None))
        self.norm, self.leave = nn.GroupNorm(GROUPS, width), nn.Conv2d(width, CHANNELS, 3, padding=1)

    def forward(self, image, waves, text):
        time, x = self.time(waves), self.enter(image)
        held = [x]
        for level in self.down:
            for block in level.blocks:
                x = block(x, time, text)
                held.append(x)
            if level.resample is not None:
                x = level.resample(x)
                held.append(x)
        x = self.middle[1](self.middle[0](x, time, text), time)
        for level in self.up:
            for block in level.blocks:
                x = block(torch.cat([x, held.pop()], 1), time, text)
            if level.resample is not None:
                x = level.resample(F.interpolate(x, scale_factor=2))
        return self.leave(F.silu(self.norm(x)))


model = UNet()


def inputs(batch):
    """Noisy latent images, the waves of their time steps, and their texts as the encoder gives them."""
    return (
        torch.zeros(batch, CHANNELS, SIDE, SIDE),
        torch.zeros(batch, WIDTHS[0]),
        torch.zeros(batch, TOKENS, TEXT),
    )


def loss_fn(output, inputs):
    # The noise to be told is a tensor of the image's size: the image itself stands for it.
    return F.mse_loss(output, inputs[0])


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4)
