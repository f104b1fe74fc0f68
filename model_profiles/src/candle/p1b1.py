"""P1B1: the CANDLE autoencoder of gene expressions, 60,483 values squeezed to 2 and back.

60483-2000-600-2-600-2000-60483, ReLU, sigmoid at the end, mean squared error, Adam: 244,400,085 parameters,
244,334,400 multiply-adds a sample forward.

Source: ECP-CANDLE/Benchmarks, Pilot1/P1B1, version 0.1 (2018), p1b1_default_model.txt; a benchmark of lecture
10 of Foster & Stevens, Learning Systems 2018. 3,000 samples, of which a tenth validates.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from candle_parts import dense_layers
from torch import nn

GENES = 60_483

batch_size = 100
train_samples = 2_700
validation_samples = 300
epochs = 100

model = nn.Sequential(
    OrderedDict(
        encoder=dense_layers((GENES, 2000, 600, 2)),
        decoder=dense_layers((2, 600, 2000)),
        reconstruction=nn.Linear(2000, GENES),
        sigmoid=nn.Sigmoid(),
    )
)


def inputs(batch):
    return torch.rand(batch, GENES)


def loss_fn(output, inputs):
    return F.mse_loss(output, inputs)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.001)
