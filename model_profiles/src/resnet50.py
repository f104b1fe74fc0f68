"""ResNet-50 v1.5, which most of today's measurements mean: a block has its stride in the 3×3 convolution.

224×224 input, bottleneck blocks 3-4-6-3, batch normalisation after every convolution: 25,557,032
parameters, as many as v1, and 4,089,184,256 multiply-adds a sample forward (convolutions and the fully
connected layer).

Source: He, Zhang, Ren & Sun, Deep residual learning for image recognition, CVPR 2016, with the stride moved
as in Goyal et al., Accurate, large minibatch SGD, 2017: 32 images on each GPU, learning rate 0.1 for every
256 images, momentum 0.9, weight decay 0.0001, 90 epochs. What differs: resnet50_caffe.py has the stride in
the first 1×1 convolution of a block (v1), which makes 6 % less work; the first pooling pads its border by
one here and rounds its size up there, with the same 56×56 result.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, inner channels, stride of the first block
EXPANSION = 4  # a block gives four times its inner channels

batch_size = 32
train_samples = 1_281_167  # ImageNet (ILSVRC 2012) training set
epochs = 90


class ConvNorm(nn.Module):
    def __init__(self, channels_in, channels, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride) and 1×1 convolutions beside a shortcut."""

    def __init__(self, channels_in, inner, stride):
        super().__init__()
        channels = inner * EXPANSION
        self.reduce = ConvNorm(channels_in, inner, 1)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv3x3 = ConvNorm(inner, inner, 3, stride)
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
    layers["pool"] = nn.MaxPool2d(3, stride=2, padding=1)
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
    return torch.optim.SGD(parameters, lr=0.1 * batch_size / 256, momentum=0.9, weight_decay=1e-4)
