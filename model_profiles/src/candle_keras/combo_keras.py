"""COMBO in Keras: the CANDLE network of the response to drug pairs, towers of dense layers for cell and drugs.

The network of candle/combo.py; its facts and their source stand there.
"""

import keras
from candle_layers import drug_pair_response

batch_size = 32
train_samples = 248_656
validation_samples = 62_164
last_batch = "keep"
epochs = 10

model = drug_pair_response({"cell": 942, "drug": 3_820}, ("cell", "drug", "drug"))
model.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse")
