"""P2B1: the CANDLE autoencoder of lipid membranes, two wide convolutions and dense layers to 8 values and back.

Convolutions 256 (20×20, stride 20) and 128 (12×12, stride 12) over one row of 48,240 values, dense
64-32-16-8-16-32-64-128-256-48240; ELU, batch normalisation and dropout 0.5 after each, tanh at the end, no
biases, Adam: 18,865,360 parameters and 2,000 running statistics of the normalisation (18,867,360 as Keras
counts them), 1,209,468,160 multiply-adds a sample forward. The kernels are as high as wide while the row is
one high, so that 19 of 20 and 11 of 12 of their rows meet padding; libraries multiply those zeros too, and
they are counted. The loss is the mean squared error, 0.01 of the mean output and 0.01 of the sum of squares of
all weights.

Source: ECP-CANDLE/Benchmarks, Pilot2/P2B1, version 0.1 (2018), p2b1_default_model.txt; a benchmark of lecture
10 of Foster & Stevens, Learning Systems 2018. Samples are derived: 4 of 28 files, 15 frames of 3,040 molecules
each. What differs: the benchmark fits frame by frame, 60 × 48 steps an epoch in the place of 2,850.
"""

from collections import OrderedDict
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

VALUES = 48_240
CODE = (25_728, 64, 32, 16, 8, 16, 32, 64, 128, 256)
PENALTY = 0.01

batch_size = 64
train_samples = 182_400
validation_samples = 0
notes = ["samples of an epoch: derived from files and frames; 2,000 running statistics besides the parameters"]
epochs = 2


def same_convolution(channels_in, channels, size) -> nn.Sequential:
    """Pad to keep the one row; an even kernel has one row of padding more below than above."""
    return nn.Sequential(
        OrderedDict(
            pad=nn.ZeroPad2d((0, 0, 0, 1)),
            conv=nn.Conv2d(channels_in, channels, size, stride=(1, size), padding=(size // 2 - 1, 0), bias=False),
            elu=nn.ELU(),
            norm=nn.BatchNorm2d(channels),
            dropout=nn.Dropout(0.5),
        )
    )


def dense(width_in, width) -> nn.Sequential:
    layers = OrderedDict(linear=nn.Linear(width_in, width, bias=False), elu=nn.ELU(), norm=nn.BatchNorm1d(width))
    if width != min(CODE):  # nothing is dropped from the code itself
        layers["dropout"] = nn.Dropout(0.5)
    return nn.Sequential(layers)


def autoencoder() -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=same_convolution(1, 256, 20), conv2=same_convolution(256, 128, 12), flatten=nn.Flatten()
    )
    for index, (width_in, width) in enumerate(pairwise(CODE), start=1):
        layers[f"dense{index}"] = dense(width_in, width)
    layers["reconstruction"] = nn.Linear(CODE[-1], VALUES, bias=False)
    layers["tanh"] = nn.Tanh()
    return nn.Sequential(layers)


model = autoencoder()


def inputs(batch):
    return torch.randn(batch, 1, 1, VALUES)


def loss_fn(output, inputs):
    kernels = sum(one.square().sum() for one in model.parameters() if one.dim() > 1)
    return F.mse_loss(output, inputs.flatten(1)) + PENALTY * output.abs().mean() + PENALTY * kernels


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.01)
