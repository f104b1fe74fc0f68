"""What several CANDLE workloads share: dense layers in a row, the two convolution networks, the tower networks."""

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import nn


def dense_layers(widths, activation=nn.ReLU, dropout=0.0) -> nn.Sequential:
    """Dense layers of these widths, the data's first; each with its activation, and dropout where it is asked."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for index, (width_in, width_out) in enumerate(pairwise(widths), start=1):
        layers[f"dense{index}"] = nn.Linear(width_in, width_out)
        layers[f"activation{index}"] = activation()
        if dropout:
            layers[f"dropout{index}"] = nn.Dropout(dropout)
    return nn.Sequential(layers)


def expression_classifier(classes) -> nn.Sequential:
    """TC1 and NT3: two convolutions over 60,483 gene expressions in a row, then dense layers.

    The softmax is part of the loss. The first pooling takes the maximum of one value, as in the benchmark.
    """
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv1d(1, 128, 20),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool1d(1),
            conv2=nn.Conv1d(128, 128, 10),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool1d(10),
            flatten=nn.Flatten(),
            dense1=nn.Linear(6045 * 128, 200),
            relu3=nn.ReLU(),
            dropout1=nn.Dropout(0.1),
            dense2=nn.Linear(200, 20),
            relu4=nn.ReLU(),
            dropout2=nn.Dropout(0.1),
            dense3=nn.Linear(20, classes),
        )
    )


class DrugPairResponse(nn.Module):
    """UNO and COMBO: a tower of three dense layers for each kind of feature, then three more on all together.

    ``features`` names the tower of each input tensor in turn; both drugs of a pair run through the same one.
    Inputs beyond those go into the concatenation as they are.
    """

    def __init__(self, tower_widths, features, plain_width=0):
        super().__init__()
        self.features = features
        self.towers = nn.ModuleDict(
            {name: dense_layers((width, 1000, 1000, 1000)) for name, width in tower_widths.items()}
        )
        self.joint = dense_layers((1000 * len(features) + plain_width, 1000, 1000, 1000))
        self.response = nn.Linear(1000, 1)

    def forward(self, *inputs):
        named, plain = inputs[: len(self.features)], inputs[len(self.features) :]
        encoded = [self.towers[name](values) for name, values in zip(self.features, named, strict=True)]
        return self.response(self.joint(torch.cat([*encoded, *plain], dim=1)))
