"""P1B1 in Keras: the CANDLE autoencoder of gene expressions, 60,483 values squeezed to 2 and back.

The network of candle/p1b1.py; its facts and their source stand there.
"""

import keras
from candle_layers import dense_layers

GENES = 60_483

batch_size = 100
train_samples = 2_700
validation_samples = 300
epochs = 100

inner = dense_layers((2000, 600, 2, 600, 2000))
model = keras.Sequential([keras.Input((GENES,)), *inner, keras.layers.Dense(GENES, activation="sigmoid")])
model.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse")
