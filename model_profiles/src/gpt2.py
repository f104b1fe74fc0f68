"""GPT-2 small: twelve transformer blocks, 768 wide, 12 heads, 1024 positions, a vocabulary of 50,257.

The head shares its weight with the token embedding: 124,439,808 parameters. A batch of 4 sequences of 1024
tokens has 1.012 TFLOP of matrix products and 0.155 TFLOP of attention forward (every query against every
key; the causal mask could skip half of the latter). No dropout, as in the released code.

Source: Radford et al., Language models are unsupervised multitask learners, OpenAI 2019. The paper names
neither samples nor epochs; those here are the public reproduction's, karpathy/nanoGPT: 9,035,582,198 tokens
of OpenWebText in sequences of 1024, 600,000 iterations of 480 sequences (32.6 epochs, taken as 33), AdamW
with betas 0.9 and 0.95 and weight decay 0.1. What differs: a batch of 4 sequences on one device instead of
480 on eight, and weight decay on every parameter (the reproduction spares biases and norms; the work is the
same).
"""

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, POSITIONS, VOCABULARY = 12, 768, 12, 1024, 50257

batch_size = 4
train_samples = 9_035_582_198 // POSITIONS
epochs = 33


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = self.query_key_value(x).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.gelu = nn.GELU(approximate="tanh")
        self.contract = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.contract(self.gelu(self.expand(x)))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and added to its input."""

    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.feed_forward = FeedForward()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position_embedding = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token_embedding.weight

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        return self.head(self.norm(self.blocks(x)))


model = GPT2()


def inputs(batch, seq=POSITIONS):
    return torch.randint(VOCABULARY, (batch, seq))


def loss_fn(output, inputs):
    # A data loader hands the next tokens as a second tensor of the same size; the tokens themselves stand for it,
    # because the step's work does not depend on the values.
    return F.cross_entropy(output.flatten(0, 1), inputs.flatten())


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
