"""The network of train.py as a model file, to compare the two ways of profiling."""

import torch
from picturenet import PictureNet
from torch import nn

model = PictureNet()
criterion = nn.CrossEntropyLoss()
batch_size, train_samples, epochs, last_batch = 16, 250, 14, "keep"


def inputs(batch):
    return torch.randn(batch, 3, 32, 32)


def loss_fn(output, inputs):
    return criterion(output, torch.zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)
