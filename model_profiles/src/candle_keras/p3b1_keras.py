"""P3B1 in Keras: the CANDLE classifiers of pathology reports, three perceptrons trained in turn, here the first.

The network of candle/p3b1.py; its facts and their source stand there. What differs: Keras trains a model as a
whole, so the two other tasks' networks are not in this one, and their parameters are not counted.
"""

import keras
from candle_layers import dense_layers

batch_size = 10
train_samples = 5_700
validation_samples = 253
notes = ["one of three networks trained in turn, that of the first task; parameters are of this one"]
epochs = 10

hidden = dense_layers((2400, 2400, 1200, 1200))
model = keras.Sequential([keras.Input((400,)), *hidden, keras.layers.Dense(13, activation="softmax")])
model.compile(optimizer=keras.optimizers.SGD(0.01), loss="categorical_crossentropy")
