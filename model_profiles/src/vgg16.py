"""VGG-16: configuration D of the paper, thirteen 3×3 convolutions in five blocks and three fully connected layers.

224×224 input, no batch normalisation: 138,357,544 parameters, 15,470,264,320 multiply-adds a sample
forward. Its 36 layers are the convolutions, ReLUs, poolings and fully connected layers; dropout and softmax
are not counted.

Source: Simonyan & Zisserman, Very deep convolutional networks for large-scale image recognition, ICLR 2015:
batch 256 over four GPUs (64 on each, the batch here), momentum 0.9, weight decay 0.0005, 74 epochs. What
differs: one device and its share of the batch.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

BLOCKS = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # convolutions of a block and their channels

batch_size = 64
train_samples = 1_281_167  # ImageNet (ILSVRC 2012) training set
epochs = 74


def vgg16() -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels_in = 3
    for block, (depth, channels) in enumerate(BLOCKS, start=1):
        for layer in range(1, depth + 1):
            layers[f"conv{block}_{layer}"] = nn.Conv2d(channels_in, channels, 3, padding=1)
            layers[f"relu{block}_{layer}"] = nn.ReLU(inplace=True)
            channels_in = channels
        layers[f"pool{block}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten()
    for name, width_in in (("6", 512 * 7 * 7), ("7", 4096)):
        layers[f"fc{name}"] = nn.Linear(width_in, 4096)
        layers[f"relu{name}"] = nn.ReLU(inplace=True)
        layers[f"drop{name}"] = nn.Dropout(0.5)
    layers["fc8"] = nn.Linear(4096, 1000)
    return nn.Sequential(layers)


model = vgg16()


def inputs(batch):
    return torch.randn(batch, 3, 224, 224)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so class 0 stands for every label.
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4)
