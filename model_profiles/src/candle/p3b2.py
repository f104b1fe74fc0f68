"""P3B2: the CANDLE generator of pathology reports, one recurrent layer over 20 characters.

An LSTM of 64 units with hard sigmoids over 20 one-hot characters of 99, dense 99, softmax, categorical cross-
entropy, RMSprop: 48,419 parameters, 840,896 multiply-adds a sample forward.

Source: ECP-CANDLE/Benchmarks, Pilot3/P3B2, version 0.1 (2018), p3b2_default_model.txt; a benchmark of lecture
10 of Foster & Stevens, Learning Systems 2018. How many samples an epoch has is not public. The layer is
written out step by step, with one bias per gate and hard sigmoids as Keras has them, which the fused layers of
accelerator libraries lack. What differs: the four gates' products are one here, as in later versions of Keras.
"""

import torch
import torch.nn.functional as F
from torch import nn

CHARACTERS, STEPS, UNITS = 99, 20, 64

batch_size = 100
validation_samples = 0
notes = ["samples of an epoch: not public"]
epochs = 2


class Lstm(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.units = units
        self.gates = nn.Linear(features, 4 * units)
        self.recurrent = nn.Linear(units, 4 * units, bias=False)

    def forward(self, x):
        state, memory = x.new_zeros(len(x), self.units), x.new_zeros(len(x), self.units)
        for projected in self.gates(x).unbind(dim=1):
            enter, keep, candidate, leave = (projected + self.recurrent(state)).chunk(4, dim=1)
            memory = F.hardsigmoid(keep) * memory + F.hardsigmoid(enter) * torch.tanh(candidate)
            state = F.hardsigmoid(leave) * torch.tanh(memory)
        return state


model = nn.Sequential(Lstm(CHARACTERS, UNITS), nn.Linear(UNITS, CHARACTERS))


def inputs(batch):
    return torch.zeros(batch, STEPS, CHARACTERS)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so character 0 stands for every next one.
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.RMSprop(parameters, lr=0.01)
