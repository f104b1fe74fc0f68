"""DiT-XL/2: a diffusion transformer of 28 blocks over 2×2 patches of a 32×32 latent image of 4 channels.

1152 wide, 16 heads; each block is shifted, scaled and gated by what the time step and the class say (adaLN-Zero).
675,129,632 parameters with the fixed table of positions, 674,834,720 without; 118.6 GFLOP an image of 256×256 in
multiply-adds, as the paper counts (Table 4). Its autoencoder, which makes the latent images beforehand, and the
moving average of the weights are no part of the step; the loss is the noise's squared error, and the error of the
variance is not counted.

Source: Peebles and Xie, Scalable diffusion models with transformers, ICCV 2023 (arXiv 2212.09748): AdamW at 1e-4
without decay, batch 256, 7 million steps on ImageNet-1k, which is 1,399 epochs.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, PATCH, SIDE, CHANNELS, CLASSES = 28, 1152, 16, 2, 32, 4, 1000
TOKENS = (SIDE // PATCH) ** 2
FREQUENCIES = 256

batch_size = 256
train_samples = 1_281_167
epochs = 1399


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = self.query_key_value(x).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        return self.project(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def modulated(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.attention = Attention()
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.gelu = nn.GELU(approximate="tanh")
        self.contract = nn.Linear(4 * WIDTH, WIDTH)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attention(modulated(self.norm(x), shift1, scale1))
        wide = self.gelu(self.expand(modulated(self.norm(x), shift2, scale2)))
        return x + gate2.unsqueeze(1) * self.contract(wide)


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, WIDTH, PATCH, PATCH)
        self.time = nn.Sequential(nn.Linear(FREQUENCIES, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.classes = nn.Embedding(CLASSES + 1, WIDTH)  # one stands for none, for guidance without a classifier
        self.positions = nn.Parameter(torch.zeros(1, TOKENS, WIDTH), requires_grad=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 2 * WIDTH))
        self.output = nn.Linear(WIDTH, PATCH * PATCH * 2 * CHANNELS)  # noise, and its variance

    def forward(self, image, waves, label):
        x = self.patches(image).flatten(2).transpose(1, 2) + self.positions
        condition = self.time(waves) + self.classes(label)
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.modulation(condition).chunk(2, dim=1)
        x = self.output(modulated(self.norm(x), shift, scale))
        side = SIDE // PATCH
        x = x.unflatten(2, (PATCH, PATCH, 2 * CHANNELS)).unflatten(1, (side, side))
        return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, 2 * CHANNELS, SIDE, SIDE)


model = DiT()


def inputs(batch):
    """Noisy latent images, the waves of their time steps, and their classes."""
    waves, label = torch.zeros(batch, FREQUENCIES), torch.zeros(batch, dtype=torch.int64)
    return torch.zeros(batch, CHANNELS, SIDE, SIDE), waves, label


def loss_fn(output, inputs):
    # The noise to be told is a tensor of the image's size: the image itself stands for it.
    return F.mse_loss(output[:, :CHANNELS], inputs[0])


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0)
