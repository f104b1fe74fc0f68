"""P3B2 in Keras: the CANDLE generator of pathology reports, one recurrent layer over 20 characters.

The network of candle/p3b2.py; its facts and their source stand there. What differs: the layer is Keras's own, one
row of the table, where PyTorch's is written out for its hard sigmoids.
"""

import keras
from keras import layers

batch_size = 100
validation_samples = 0
notes = ["samples of an epoch: not public"]
epochs = 2

model = keras.Sequential([
    keras.Input((20, 99)),
    layers.LSTM(64, recurrent_activation="hard_sigmoid"),
    layers.Dense(99, activation="softmax"),
])  # fmt: skip
model.compile(optimizer=keras.optimizers.RMSprop(0.01), loss="categorical_crossentropy")
