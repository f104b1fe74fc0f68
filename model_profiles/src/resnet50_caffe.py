"""ResNet-50 as first published and shipped for Caffe: a block has its stride in the first 1×1 convolution.

224×224 input, bottleneck blocks 3-4-6-3, batch normalisation after every convolution: 25,557,032
parameters, 3,857,973,248 multiply-adds a sample forward (convolutions and the fully connected layer). Its
227 layers are the convolutions, batch normalisations, scalings, ReLUs, poolings, additions and the fully
connected layer; softmax is not counted. Caffe splits batch normalisation into a normalising and a scaling
layer, PyTorch has one module for both.

Source: He, Zhang, Ren & Sun, Deep residual learning for image recognition, CVPR 2016: batch 256 over eight
GPUs (32 on each, the batch here), momentum 0.9, weight decay 0.0001, 600,000 iterations (120 epochs). What
differs: resnet50.py has the stride in the 3×3 convolution (v1.5, 6 % more work); the first convolution has
no bias, which batch normalisation would undo, while Caffe's file has one of 64 values.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, inner channels, stride of the first block
EXPANSION = 4  # a block gives four times its inner channels

batch_size = 32
train_samples = 1_281_167  # ImageNet (ILSVRC 2012) training set
epochs = 120


class ConvNorm(nn.Module):
    def __init__(self, channels_in, channels, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    """1×1 (with the stride), 3×3 and 1×1 convolutions beside a shortcut."""

    def __init__(self, channels_in, inner, stride):
        super().__init__()
        channels = inner * EXPANSION
        self.reduce = ConvNorm(channels_in, inner, 1, stride)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv3x3 = ConvNorm(inner, inner, 3)
        self.relu2 = nn.ReLU(inplace=True)
        self.expand = ConvNorm(inner, channels, 1)
        self.shortcut = ConvNorm(channels_in, channels, 1, stride) if channels_in != channels else nn.Identity()
        self.relu3 = nn.ReLU(inplace=True)

    def forward(self, x):
        residual = self.expand(self.relu2(self.conv3x3(self.relu1(self.reduce(x)))))
        return self.relu3(residual + self.shortcut(x))


def resnet50() -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["stem"] = ConvNorm(3, 64, 7, stride=2)
    layers["relu"] = nn.ReLU(inplace=True)
    layers["pool"] = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    channels = 64
    for stage, (blocks, inner, stride) in enumerate(STAGES, start=2):
        for block in range(blocks):
            name = f"stage{stage}{'abcdef'[block]}"
            layers[name] = Bottleneck(channels, inner, stride if block == 0 else 1)
            channels = inner * EXPANSION
    layers["global_pool"] = nn.AvgPool2d(7)
    layers["flatten"] = nn.Flatten()
    layers["classifier"] = nn.Linear(channels, 1000)
    return nn.Sequential(layers)


model = resnet50()


def inputs(batch):
    return torch.randn(batch, 3, 224, 224)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so class 0 stands for every label.
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
