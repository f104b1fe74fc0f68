"""GoogLeNet (Inception v1) as Caffe ships it (bvlc_googlenet), without the two auxiliary classifiers.

224×224 input, nine inception blocks, no batch normalisation, poolings of stride 2 that round their size up:
6,998,552 parameters, 1,582,671,872 multiply-adds a sample forward. Its 140 layers are the convolutions,
ReLUs, poolings, normalisations, concatenations and the fully connected layer; dropout and softmax are not
counted.

Source: Szegedy et al., Going deeper with convolutions, CVPR 2015, table 1; batch 32, 60 epochs, momentum
0.9 and weight decay 0.0002 as in Caffe's models/bvlc_googlenet (quick_solver). What differs: training adds
two auxiliary classifiers to the loss, which this network, the one of inference, leaves out; versions with
batch normalisation have other parameter counts.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 32
train_samples = 1_281_167  # ImageNet (ILSVRC 2012) training set
epochs = 60


class ConvRelu(nn.Module):
    def __init__(self, channels_in, channels, kernel, **options):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels, kernel, **options)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.conv(x))


class Inception(nn.Module):
    """Four branches over one input, joined along the channels."""

    def __init__(self, channels_in, one, three_reduce, three, five_reduce, five, pool_project):
        super().__init__()
        self.one = ConvRelu(channels_in, one, 1)
        self.three_reduce = ConvRelu(channels_in, three_reduce, 1)
        self.three = ConvRelu(three_reduce, three, 3, padding=1)
        self.five_reduce = ConvRelu(channels_in, five_reduce, 1)
        self.five = ConvRelu(five_reduce, five, 5, padding=2)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.pool_project = ConvRelu(channels_in, pool_project, 1)

    def forward(self, x):
        branches = (
            self.one(x),
            self.three(self.three_reduce(x)),
            self.five(self.five_reduce(x)),
            self.pool_project(self.pool(x)),
        )
        return torch.cat(branches, dim=1)


class GoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = ConvRelu(3, 64, 7, stride=2, padding=3)
        self.pool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.norm1 = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)
        self.conv2_reduce = ConvRelu(64, 64, 1)
        self.conv2 = ConvRelu(64, 192, 3, padding=1)
        self.norm2 = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)
        self.pool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception3a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.pool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception4a = Inception(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = Inception(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = Inception(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = Inception(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = Inception(528, 256, 160, 320, 32, 128, 128)
        self.pool4 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception5a = Inception(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = Inception(832, 384, 192, 384, 48, 128, 128)
        self.pool5 = nn.AvgPool2d(7)
        self.dropout = nn.Dropout(0.4)
        self.classifier = nn.Linear(1024, 1000)

    def forward(self, x):
        x = self.norm1(self.pool1(self.conv1(x)))
        x = self.pool2(self.norm2(self.conv2(self.conv2_reduce(x))))
        x = self.pool3(self.inception3b(self.inception3a(x)))
        x = self.inception4c(self.inception4b(self.inception4a(x)))
        x = self.pool4(self.inception4e(self.inception4d(x)))
        x = self.pool5(self.inception5b(self.inception5a(x)))
        return self.classifier(self.dropout(x.flatten(1)))


model = GoogLeNet()


def inputs(batch):
    return torch.randn(batch, 3, 224, 224)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so class 0 stands for every label.
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=2e-4)
