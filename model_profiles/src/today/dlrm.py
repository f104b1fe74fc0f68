"""DLRM of MLPerf: 26 tables of embeddings, 128 wide, of up to 40 million rows, and two small dense networks.

187,767,399 rows are 24,034,227,072 of its 24,036,595,969 parameters, 96 GB in fp32. It is served here: a sample is
13 numbers and one look-up in each table. Below 13-512-256-128; the 27 vectors are multiplied with each other (351
products); above 479-1024-1024-512-256-1.

Source: MLPerf training v0.7 to v2.1 and inference, recommendation: Naumov et al., arXiv 1906.00091, over the
Criteo 1 TB click logs with categories limited to 40 million; the tables' sizes are those of that limit
(facebookresearch/dlrm and mlcommons/inference, recommendation/dlrm).
"""

from itertools import pairwise

import torch
from torch import nn

WIDTH = 128
ROWS = (
    39_884_406, 39_043, 17_289, 7_420, 20_263, 3, 7_120, 1_543, 63, 38_532_951, 2_953_546, 403_346, 10, 2_208,
    11_938, 155, 4, 976, 14, 39_979_771, 25_641_295, 39_664_984, 585_935, 12_972, 108, 36,
)  # fmt: skip
BELOW, ABOVE, NUMBERS = (13, 512, 256, WIDTH), (1024, 1024, 512, 256, 1), 13

batch_size = 65_536


def dense(sizes):
    layers = [part for k, n in pairwise(sizes) for part in (nn.Linear(k, n), nn.ReLU())]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in ROWS)
        self.below = dense(BELOW)
        vectors = len(ROWS) + 1
        self.above = dense((WIDTH + vectors * (vectors - 1) // 2, *ABOVE))[:-1]
        self.register_buffer("pairs", torch.tensor([vectors * a + b for a in range(vectors) for b in range(a)]))

    def forward(self, numbers, categories):
        below = self.below(numbers)
        found = [table(categories[:, place]) for place, table in enumerate(self.tables)]
        vectors = torch.stack([below, *found], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.above(torch.cat([below, products[:, self.pairs]], 1)))


model = DLRM()


def inputs(batch):
    return torch.zeros(batch, NUMBERS), torch.zeros(batch, len(ROWS), dtype=torch.int64)


def loss_fn(output, _inputs):
    return output.mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=24.0)
