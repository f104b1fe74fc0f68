"""TC1 in Keras: the CANDLE classifier of tumour types, two convolutions over 60,483 gene expressions.

The network of candle/tc1.py; its facts and their source stand there. What differs: the data lie position by
position, as in the benchmark.
"""

import keras
from candle_layers import expression_classifier

batch_size = 20
train_samples = 4_320
validation_samples = 1_080
epochs = 400

model = expression_classifier(classes=36)
model.compile(optimizer=keras.optimizers.SGD(0.01), loss="categorical_crossentropy")
