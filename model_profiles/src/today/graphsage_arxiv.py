"""GraphSAGE over the whole graph of ogbn-arxiv: three layers of means over neighbours, 256 wide.

218,664 parameters, as the Open Graph Benchmark's leaderboard has it. 169,343 papers of 128 numbers, 2,315,598
citations once each is there both ways, 40 classes. A step is the whole graph, so that the batch is 1; messages are
gathered along the edges and added up at their ends, as PyTorch does it without a library of sparse products.

Source: Open Graph Benchmark (Hu et al., arXiv 2005.00687), ogbn-arxiv and its example of GraphSAGE: batch
normalisation and dropout of a half between the layers, Adam at 0.01, 500 epochs.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

NODES, EDGES, FEATURES, WIDTH, CLASSES = 169_343, 2_315_598, 128, 256, 40
SIZES = (FEATURES, WIDTH, WIDTH, CLASSES)

batch_size = 1
train_samples = 1
epochs = 500


class Layer(nn.Module):
    """What a node is, and the mean of what its neighbours are, each through a dense layer."""

    def __init__(self, k, n):
        super().__init__()
        self.neighbours, self.own = nn.Linear(k, n), nn.Linear(k, n, bias=False)

    def forward(self, x, source, target, count):
        sums = x.new_zeros(x.shape).index_add(0, target, x.index_select(0, source))
        return self.neighbours(sums / count) + self.own(x)


class GraphSAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(k, n) for k, n in pairwise(SIZES))
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in SIZES[2:])

    def forward(self, x, source, target, count):
        for place, layer in enumerate(self.layers):
            x = layer(x, source, target, count)
            if place < len(self.norms):
                x = F.dropout(F.relu(self.norms[place](x)), 0.5, self.training)
        return F.log_softmax(x, -1)


model = GraphSAGE()


def inputs(batch):
    """Numbers of all nodes, both ends of each edge, and how many neighbours each node has; one graph."""
    ends = torch.zeros(2, batch * EDGES, dtype=torch.int64)
    return torch.zeros(batch * NODES, FEATURES), *ends, torch.ones(batch * NODES, 1)


def loss_fn(output, _inputs):
    labels = torch.zeros(len(output), dtype=torch.int64, device=output.device)
    return F.nll_loss(output, labels)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.01)
