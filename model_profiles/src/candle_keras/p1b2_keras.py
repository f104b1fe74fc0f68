"""P1B2 in Keras: the CANDLE classifier of cancer types from mutations, a perceptron of sigmoids.

The network of candle/p1b2.py; its facts and their source stand there.
"""

import keras
from candle_layers import dense_layers

batch_size = 60
train_samples = 2_700
validation_samples = 300
epochs = 20

squares = keras.regularizers.L2(1e-5)
hidden = dense_layers((1024, 512, 256), "sigmoid", kernel_regularizer=squares, activity_regularizer=squares)
model = keras.Sequential([keras.Input((28_204,)), *hidden, keras.layers.Dense(10, activation="sigmoid")])
model.compile(optimizer=keras.optimizers.RMSprop(0.001), loss="categorical_crossentropy")
