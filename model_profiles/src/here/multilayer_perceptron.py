"""A multilayer perceptron that classifies: 784-1536-768-10, ReLU, dropout, Adam, batch 192."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 192

model = nn.Sequential(
    nn.Linear(784, 1536), nn.ReLU(), nn.Linear(1536, 768), nn.ReLU(), nn.Dropout(0.2), nn.Linear(768, 10)
)


def inputs(batch):
    return torch.randn(batch, 784)


def loss_fn(output, inputs):
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-4)
