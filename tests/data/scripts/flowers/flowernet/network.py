"""A small network of separable convolutions, as keras.io's tutorials build them."""

import keras
from keras import layers

SIDE = 24


def block(x, filters):
    shortcut = layers.Conv2D(filters, 1, strides=2, padding="same")(x)
    x = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    return layers.add([x, shortcut])


def build_network(classes):
    inputs = keras.Input((SIDE, SIDE, 3))
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    for filters in (12, 16):
        x = block(x, filters)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.25)(x)
    return keras.Model(inputs, layers.Dense(classes)(x), name="flowernet")
