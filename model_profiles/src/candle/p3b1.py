"""P3B1: the CANDLE classifiers of pathology reports, three perceptrons trained in turn.

For each of three tasks 400-2400-2400-1200-1200 and 13, 2 or 4 classes; ReLU, softmax, categorical cross-
entropy, plain SGD: 33,164,419 parameters in all, 11,055,600 multiply-adds a sample forward in the first.

Source: ECP-CANDLE/Benchmarks, Pilot3/P3B1, version 0.1 (2018), p3b1_default_model.txt; a benchmark of lecture
10 of Foster & Stevens, Learning Systems 2018. The layers that the tasks were meant to share are not connected
there (mended in May 2020). 3,900, 600 and 1,200 reports train, a step is of one task: the step of the first,
which has most reports, stands for all three, whose work differs by 0.2 %.
"""

import torch
import torch.nn.functional as F
from candle_parts import dense_layers
from torch import nn

FEATURES = 400
CLASSES = (13, 2, 4)

batch_size = 10
train_samples = 5_700
validation_samples = 253
notes = ["one of three networks trained in turn is traced, that of the first task; parameters are of all three"]
epochs = 10


class ReportClassifiers(nn.Module):
    def __init__(self):
        super().__init__()
        self.tasks = nn.ModuleList(
            nn.Sequential(dense_layers((FEATURES, 2400, 2400, 1200, 1200)), nn.Linear(1200, classes))
            for classes in CLASSES
        )

    def forward(self, reports, task=0):
        return self.tasks[task](reports)


model = ReportClassifiers()


def inputs(batch):
    return torch.randn(batch, FEATURES)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so class 0 stands for every label.
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01)
