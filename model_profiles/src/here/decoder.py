"""A transformer decoder over 2,000 words: two layers of width 160, five heads, 88 places, GELU, AdamW."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
WIDTH, HEADS, PLACES, WORDS = 160, 5, 88, 2000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, values):
        batch, places, _ = values.shape
        heads = self.mixed(values).view(batch, places, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, places, WIDTH))

    def forward(self, values):
        values = values + self.attend(self.before(values))
        return values + self.narrow(F.gelu(self.wide(self.after(values))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, text):
        return self.head(self.norm(self.layers(self.words(text))))


model = Decoder()


def inputs(batch):
    return torch.randint(0, WORDS, (batch, PLACES))


def loss_fn(output, inputs):
    return F.cross_entropy(output.flatten(0, 1), inputs.flatten())


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4)
