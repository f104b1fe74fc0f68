"""P1B3: the CANDLE drug-response network, a multilayer perceptron that regresses tumour growth.

29532-1000-500-100-50-1 (1 dose, 25,722 gene expressions and 3,809 drug descriptors in), ReLU and dropout 0.1
after each hidden layer, linear output, mean squared error, plain SGD: 30,088,701 parameters, 30,087,050
multiply-adds a sample forward.

Source: ECP-CANDLE/Benchmarks, Pilot1/P1B3, version 0.1 (2018), the network of lecture 10 of Foster & Stevens,
Learning Systems 2018. Samples and epochs are those of the run in the benchmark's README: 20 epochs of 800,121
samples, 200,030 more to validate. What differs: the samples are drawn in memory, while the benchmark assembles
each batch in Python, which is what bounds its measured time.
"""

from collections import OrderedDict
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

WIDTHS = (29532, 1000, 500, 100, 50)

batch_size = 100
train_samples = 800_121
validation_samples = 200_030
epochs = 20


def perceptron() -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for index, (width_in, width_out) in enumerate(pairwise(WIDTHS), start=1):
        layers[f"dense{index}"] = nn.Linear(width_in, width_out)
        layers[f"relu{index}"] = nn.ReLU()
        layers[f"dropout{index}"] = nn.Dropout(0.1)
    layers["dense5"] = nn.Linear(WIDTHS[-1], 1)
    return nn.Sequential(layers)


model = perceptron()


def inputs(batch):
    return torch.randn(batch, WIDTHS[0])


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so zeros stand for the measured growth.
    return F.mse_loss(output, inputs.new_zeros(output.shape))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.001)
