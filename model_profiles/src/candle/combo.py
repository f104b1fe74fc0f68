"""COMBO: the CANDLE network of the response to drug pairs, towers of dense layers for cell and drugs.

Towers of 3×1000 for 942 expressions and for each of two drugs' 3,820 descriptors (both drugs through the same
tower), then 3×1000 and one response; ReLU, mean squared error, Adam: 13,772,001 parameters, 19,583,000
multiply-adds a sample forward. Lecture 10 prints 5,823,000 parameters, which is the drugs' tower alone.

Source: ECP-CANDLE/Benchmarks, Pilot1/Combo, commit 1099740 (2018-10-05), combo_perf_bench_model.txt, samples
from its README of 2018-06-26; a benchmark of lecture 10 of Foster & Stevens, Learning Systems 2018.
"""

import torch
import torch.nn.functional as F
from candle_parts import DrugPairResponse

EXPRESSIONS, DESCRIPTORS = 942, 3_820

batch_size = 32
train_samples = 248_656
validation_samples = 62_164
last_batch = "keep"
epochs = 10

model = DrugPairResponse(
    {"cell_expression": EXPRESSIONS, "drug_descriptors": DESCRIPTORS},
    ("cell_expression", "drug_descriptors", "drug_descriptors"),
)


def inputs(batch):
    drugs = (torch.randn(batch, DESCRIPTORS), torch.randn(batch, DESCRIPTORS))
    return torch.randn(batch, EXPRESSIONS), *drugs


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so zeros stand for the measured growth.
    return F.mse_loss(output, inputs[0].new_zeros(output.shape))


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.001)
