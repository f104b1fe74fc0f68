"""The network of train.py as a model file, to compare the two ways of profiling."""

import torch
from language_model import LanguageModel
from torch.nn import functional

model = LanguageModel()
batch_size, train_samples, epochs = 4, 32, 3


def inputs(batch):
    return torch.randint(96, (batch, 24))


def loss_fn(output, inputs):
    return functional.cross_entropy(output.flatten(0, 1), inputs.flatten())


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)
