"""P1B3 in Keras: the CANDLE drug-response network, a multilayer perceptron that regresses tumour growth.

The network of candle/p1b3.py; its facts and their source stand there.
"""

import keras
from candle_layers import dense_layers

batch_size = 100
train_samples = 800_121
validation_samples = 200_030
epochs = 20

hidden = dense_layers((1000, 500, 100, 50), dropout=0.1)
model = keras.Sequential([keras.Input((29_532,)), *hidden, keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.001), loss="mse")
