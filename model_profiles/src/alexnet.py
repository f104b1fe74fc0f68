"""AlexNet as Caffe ships it (bvlc_alexnet): the two-GPU network of the paper as one, with grouped convolutions.

227×227 input, convolutions 2, 4 and 5 in two groups, local response normalisation before pooling,
overlapping 3×3 pooling with stride 2: 60,965,224 parameters, 724,406,816 multiply-adds a sample forward
(665,784,864 of them in convolutions). Its 20 layers are the convolutions, ReLUs, normalisations, poolings
and fully connected layers; dropout and softmax are not counted.

Source: Krizhevsky, Sutskever & Hinton, ImageNet classification with deep convolutional neural networks,
NIPS 2012: batch 128, momentum 0.9, weight decay 0.0005, about 90 epochs. What differs: the version often
met today has no groups, no normalisation and fewer channels (61.1 million parameters, 714 million
multiply-adds); this is not that one.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 128
train_samples = 1_281_167  # ImageNet (ILSVRC 2012) training set
epochs = 90

model = nn.Sequential(
    OrderedDict(
        conv1=nn.Conv2d(3, 96, 11, stride=4),
        relu1=nn.ReLU(inplace=True),
        norm1=nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        pool1=nn.MaxPool2d(3, stride=2),
        conv2=nn.Conv2d(96, 256, 5, padding=2, groups=2),
        relu2=nn.ReLU(inplace=True),
        norm2=nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        pool2=nn.MaxPool2d(3, stride=2),
        conv3=nn.Conv2d(256, 384, 3, padding=1),
        relu3=nn.ReLU(inplace=True),
        conv4=nn.Conv2d(384, 384, 3, padding=1, groups=2),
        relu4=nn.ReLU(inplace=True),
        conv5=nn.Conv2d(384, 256, 3, padding=1, groups=2),
        relu5=nn.ReLU(inplace=True),
        pool5=nn.MaxPool2d(3, stride=2),
        flatten=nn.Flatten(),
        fc6=nn.Linear(256 * 6 * 6, 4096),
        relu6=nn.ReLU(inplace=True),
        drop6=nn.Dropout(0.5),
        fc7=nn.Linear(4096, 4096),
        relu7=nn.ReLU(inplace=True),
        drop7=nn.Dropout(0.5),
        fc8=nn.Linear(4096, 1000),
    )
)


def inputs(batch):
    return torch.randn(batch, 3, 227, 227)


def loss_fn(output, inputs):
    # The step's work does not depend on the values, so class 0 stands for every label.
    return F.cross_entropy(output, inputs.new_zeros(len(inputs), dtype=torch.int64))


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4)
