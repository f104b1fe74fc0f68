"""A tagger: a two-layer LSTM over word vectors and a linear head, small enough to count its work by hand.

Batch B = 16, T = 20 steps, width 32 in, H = 64 hidden, 10 tags out. One fused multiply-add is 2 flop; counted
are the matrix products (the cell's elementwise work is not).

A layer multiplies its input and its last hidden state, at each step, by weights of 4H = 256 columns:

===================== ================================== ============== ============== ===============
product               size                                      forward weight gradient input gradient
===================== ================================== ============== ============== ===============
layer 0, input        (16·20 × 32)·(32 × 256)                 5,242,880      5,242,880               0
layer 0, hidden       20 × (16 × 64)·(64 × 256)              10,485,760     10,485,760      10,485,760
layer 1, input        (16·20 × 64)·(64 × 256)                10,485,760     10,485,760      10,485,760
layer 1, hidden       20 × (16 × 64)·(64 × 256)              10,485,760     10,485,760      10,485,760
head                  (16·20 × 64)·(64 × 10)                    409,600        409,600         409,600
sum                                                          37,109,760     37,109,760      31,866,880
===================== ================================== ============== ============== ===============

The data needs no gradient. A library call walks back through all 20 steps, to the zero state before the first;
taken apart into single ops, the framework stops at the second step, which saves 1,048,576 flop. One training
step of the library call is 106,086,400 flop.

Parameters: 4·64·(32 + 64 + 2) + 4·64·(64 + 64 + 2) + 10·(64 + 1) = 25,088 + 33,280 + 650 = 59,018 (an LSTM has two
biases of 4H).
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

STEPS, WIDTH, HIDDEN, TAGS = 20, 32, 64, 10

batch_size = 16
train_samples = 1_000
epochs = 2


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, HIDDEN, num_layers=2, batch_first=True)
        self.head = nn.Linear(HIDDEN, TAGS)

    def forward(self, words):
        hidden, _ = self.lstm(words)
        return self.head(hidden)


model = Tagger()


def inputs(batch):
    return torch.randn(batch, STEPS, WIDTH)


def loss_fn(output, inputs):
    tags = inputs.new_zeros(output.shape[:2], dtype=torch.int64)
    return cross_entropy(output.flatten(0, 1), tags.flatten())


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)
