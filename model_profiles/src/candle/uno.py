"""UNO: the CANDLE network of drug response over several screens, towers of dense layers for cell and drugs.

Towers of 3×1000 for 949 expressions and for each of two drugs' 5,270 descriptors and 2,048 fingerprint bits
(both drugs through the same towers), then 3×1000 and one response; ReLU, mean squared error, Adam: 21,293,001
parameters, 32,599,000 multiply-adds a sample forward.

Source: ECP-CANDLE/Benchmarks, Pilot1/Uno, commit 1099740 (2018-10-05), uno_perf_bench_model.txt; a benchmark
of lecture 10 of Foster & Stevens, Learning Systems 2018. The 13 values beside the towers are two doses and an
11-wide source of the response; 7 of the 949 are the source of the expressions. That split is read from the
code. Samples are an estimate (62,000 ± 2,500 train, 18,000 validate): the benchmark splits 80,213 rows by
drug. What differs: the samples are drawn in memory, while the benchmark assembles each batch in Python, which
is what bounds its time.
"""

import torch
import torch.nn.functional as F
from candle_parts import DrugPairResponse

EXPRESSIONS, DESCRIPTORS, FINGERPRINTS, BESIDE = 949, 5_270, 2_048, 13

batch_size = 32
train_samples = 62_000
validation_samples = 18_000
last_batch = "keep"
notes = ["samples of an epoch: an estimate, 62,000 ± 2,500 (22 drugs with 80,213 rows, of which 17 drugs train)"]
epochs = 3

model = DrugPairResponse(
    {"cell_rnaseq": EXPRESSIONS, "drug_descriptors": DESCRIPTORS, "drug_fingerprints": FINGERPRINTS},
    ("cell_rnaseq", "drug_descriptors", "drug_fingerprints", "drug_descriptors", "drug_fingerprints"),
    BESIDE,
)


def inputs(batch):
    drug = (torch.randn(batch, DESCRIPTORS), torch.randn(batch, FINGERPRINTS))
    other = (torch.randn(batch, DESCRIPTORS), torch.randn(batch, FINGERPRINTS))
    return torch.randn(batch, EXPRESSIONS), *drug, *other, torch.randn(batch, BESIDE)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so zeros stand for the measured growth.
    return F.mse_loss(output, inputs[0].new_zeros(output.shape))


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.001)
