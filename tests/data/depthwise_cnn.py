"""A depthwise-separable CNN: two blocks of a depthwise and a pointwise convolution, countable by hand.

Batch 8, 3×32×32 images. One fused multiply-add is 2 flop; counted are convolutions and the linear layer
(normalisation, ReLU, pooling and biases are not). A convolution makes 2 · 8 · (out channels · out height · out
width) · (in channels ÷ groups · kernel height · kernel width) flop, and so does each of its gradients:

===================== ======================= ======================== ============== ==============
layer                 output                  flop of one pass         weight gradient input gradient
===================== ======================= ======================== ============== ==============
stem.conv             16 × 16 × 16, stride 2  2·8·4096·3·9 = 1,769,472 1,769,472      0
block1.depthwise      16 × 16 × 16, groups 16 2·8·4096·1·9 = 589,824   589,824        589,824
block1.pointwise      32 × 16 × 16            2·8·8192·16 = 2,097,152  2,097,152      2,097,152
block2.depthwise      32 × 8 × 8, groups 32   2·8·2048·1·9 = 294,912   294,912        294,912
block2.pointwise      64 × 8 × 8              2·8·4096·32 = 2,097,152  2,097,152      2,097,152
classifier            10                      2·8·10·64 = 10,240       10,240         10,240
sum                                           6,858,752                6,858,752      5,089,280
===================== ======================= ======================== ============== ==============

The images need no gradient. One training step is 18,806,784 flop. A counter that multiplies the weight
gradient of a grouped convolution by its groups (torch's FlopCounterMode does) gives 36,796,416.

Parameters: convolutions 432 + 144 + 512 + 288 + 2,048, normalisations 2·(16 + 16 + 32 + 32 + 64), classifier 650:
4,394.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

batch_size = 8
train_samples = 50_000
epochs = 3


class ConvNormRelu(nn.Module):
    def __init__(self, channels_in, channels, kernel, stride=1, groups=1):
        super().__init__()
        padding = kernel // 2
        self.conv = nn.Conv2d(channels_in, channels, kernel, stride, padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.norm(self.conv(x)))


class Separable(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.depthwise = ConvNormRelu(channels_in, channels_in, 3, stride, groups=channels_in)
        self.pointwise = ConvNormRelu(channels_in, channels, 1)

    def forward(self, x):
        return self.pointwise(self.depthwise(x))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvNormRelu(3, 16, 3, stride=2)
        self.block1 = Separable(16, 32, stride=1)
        self.block2 = Separable(32, 64, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(64, 10)

    def forward(self, x):
        x = self.block2(self.block1(self.stem(x)))
        return self.classifier(self.pool(x).flatten(1))


model = Network()


def inputs(batch):
    return torch.randn(batch, 3, 32, 32)


def loss_fn(output, inputs):
    return cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
