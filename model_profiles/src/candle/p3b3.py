"""P3B3: the CANDLE convolution network over the words of pathology reports, four answers at once.

1,500 words of a vocabulary of 4,654 as 300 values each, 100 filters each of 3, 4 and 5 words side by side, the
maximum over the report, dropout 0.5 and softmax over 15, 3, 3 and 3 classes; the sum of four cross-entropies
and 0.001 of the embedding's sum of squares, Adam: 1,763,724 parameters, 540,007,200 multiply-adds a sample
forward.

Source: ECP-CANDLE/Benchmarks, Pilot3/P3B3, version 0.1 (2018), p3b3_default_model.txt; a benchmark of lecture
10 of Foster & Stevens, Learning Systems 2018. How many samples an epoch has is not public. What differs: the
words' values are turned to lie channel by channel before the convolutions (the benchmark's lie word by word).
"""

import torch
import torch.nn.functional as F
from torch import nn

WORDS, VOCABULARY, WIDTH, FILTERS = 1_500, 4_654, 300, 100
CLASSES = (15, 3, 3, 3)
PENALTY = 0.001

batch_size = 10
notes = ["samples of an epoch: not public"]
epochs = 10


class ReportConvolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.filters = nn.ModuleList(nn.Conv1d(WIDTH, FILTERS, size, padding="same") for size in (3, 4, 5))
        self.dropout = nn.Dropout(0.5)
        self.answers = nn.ModuleList(nn.Linear(3 * FILTERS, classes) for classes in CLASSES)

    def forward(self, words):
        values = self.embedding(words).transpose(1, 2)
        found = [F.relu(filters(values)).amax(dim=2) for filters in self.filters]
        joined = self.dropout(torch.cat(found, dim=1))
        return tuple(answer(joined) for answer in self.answers)


model = ReportConvolutions()


def inputs(batch):
    return torch.randint(0, VOCABULARY, (batch, WORDS))


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so class 0 stands for every label.
    label = inputs.new_zeros(len(inputs), dtype=torch.int64)
    answers = sum(F.cross_entropy(answer, label) for answer in output)
    return answers + PENALTY * model.embedding.weight.square().sum()


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.01)
