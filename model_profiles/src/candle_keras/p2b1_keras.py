"""P2B1 in Keras: the CANDLE autoencoder of lipid membranes, wide convolutions, dense layers to 8 values and back.

The network of candle/p2b1.py; its facts and their source stand there.
"""

import keras
from keras import layers

VALUES = 48_240
PLAIN = {"use_bias": False, "kernel_regularizer": keras.regularizers.L2(0.01)}

batch_size = 64
train_samples = 182_400
validation_samples = 0
notes = ["samples of an epoch: derived from files and frames; 2,000 running statistics besides the parameters"]
epochs = 2


def autoencoder() -> keras.Model:
    made = [keras.Input((1, VALUES, 1))]
    for filters, size in ((256, 20), (128, 12)):
        made.append(layers.Conv2D(filters, size, strides=size, padding="same", activation="elu", **PLAIN))
        made += [layers.BatchNormalization(), layers.Dropout(0.5)]
    made.append(layers.Flatten())
    for width in (64, 32, 16, 8, 16, 32, 64, 128, 256):
        made += [layers.Dense(width, activation="elu", **PLAIN), layers.BatchNormalization()]
        made += [layers.Dropout(0.5)] if width != 8 else []  # nothing is dropped from the code itself
    mean = keras.regularizers.L1(0.01 / VALUES)  # of the output; Keras divides by the batch
    made.append(layers.Dense(VALUES, activation="tanh", activity_regularizer=mean, **PLAIN))
    return keras.Sequential(made)


model = autoencoder()
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
