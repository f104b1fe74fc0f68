"""NT3: the CANDLE classifier of normal and tumour tissue, two convolutions over 60,483 gene expressions.

Convolutions 128×20 and 128×10 with maximum pooling by 10, dense 200-20-2, ReLU, dropout 0.1, softmax,
categorical cross-entropy, plain SGD: 154,922,918 parameters, 10,214,491,080 multiply-adds a sample forward.

Source: ECP-CANDLE/Benchmarks, Pilot1/NT3, version 0.1 (2018), nt3_default_model.txt; a benchmark of lecture 10
of Foster & Stevens, Learning Systems 2018. 1,400 samples, a fifth of which validates. What differs: the data
lie channel by channel (the benchmark's lie position by position).
"""

import torch
import torch.nn.functional as F
from candle_parts import expression_classifier

batch_size = 20
train_samples = 1_120
validation_samples = 280
epochs = 400

model = expression_classifier(classes=2)


def inputs(batch):
    return torch.randn(batch, 1, 60_483)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so class 0 stands for every label.
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.001)
