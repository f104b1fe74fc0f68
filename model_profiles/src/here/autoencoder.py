"""An autoencoder of 1,200 features: 1200-640-320-40-320-640-1200, ReLU, mean squared error, Adam."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 144
WIDTHS = (1200, 640, 320, 40, 320, 640, 1200)

model = nn.Sequential(
    *(layer for width_in, width_out in pairwise(WIDTHS) for layer in (nn.Linear(width_in, width_out), nn.ReLU()))
)[:-1]


def inputs(batch):
    return torch.rand(batch, WIDTHS[0])


def loss_fn(output, inputs):
    return F.mse_loss(output, inputs)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-4)
