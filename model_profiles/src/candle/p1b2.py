"""P1B2: the CANDLE classifier of cancer types from mutations, a perceptron of sigmoids.

28204-1024-512-256-10, sigmoid after every layer, the last too, categorical cross-entropy, RMSprop: 29,540,618
parameters, 29,538,816 multiply-adds a sample forward. The loss also holds the sum of squares of the hidden
layers' weights and of their outputs, times 0.00001.

Source: ECP-CANDLE/Benchmarks, Pilot1/P1B2, version 0.1 (2018), p1b2_default_model.txt; a benchmark of lecture
10 of Foster & Stevens, Learning Systems 2018. 3,000 samples, of which a tenth validates; epochs as in its
README.
"""

import torch
from torch import nn

WIDTHS = (28_204, 1024, 512, 256)
CLASSES = 10
PENALTY = 1e-5

batch_size = 60
train_samples = 2_700
validation_samples = 300
epochs = 20


class MutationClassifier(nn.Module):
    """Gives the classes' shares and the penalty on what the hidden layers put out."""

    def __init__(self):
        super().__init__()
        self.dense1 = nn.Linear(WIDTHS[0], WIDTHS[1])
        self.dense2 = nn.Linear(WIDTHS[1], WIDTHS[2])
        self.dense3 = nn.Linear(WIDTHS[2], WIDTHS[3])
        self.classes = nn.Linear(WIDTHS[3], CLASSES)

    def hidden(self):
        return self.dense1, self.dense2, self.dense3

    def forward(self, x):
        activity = 0.0
        for dense in self.hidden():
            x = torch.sigmoid(dense(x))
            activity = activity + x.square().sum()
        return torch.sigmoid(self.classes(x)), PENALTY * activity / len(x)


model = MutationClassifier()


def inputs(batch):
    return torch.rand(batch, WIDTHS[0])


def loss_fn(output, inputs):
    shares, activity = output
    # The step's work does not depend on the values, so class 0 stands for every label.
    target = inputs.new_zeros(shares.shape)
    shares = (shares / shares.sum(dim=1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
    kernels = sum(dense.weight.square().sum() for dense in model.hidden())
    return -(target * shares.log()).sum(dim=1).mean() + activity + PENALTY * kernels


def optimizer(parameters):
    return torch.optim.RMSprop(parameters, lr=0.001)
