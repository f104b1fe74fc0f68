"""NT3 in Keras: the CANDLE classifier of normal and tumour tissue, two convolutions over 60,483 gene expressions.

The network of candle/nt3.py; its facts and their source stand there. What differs: the data lie position by
position, as in the benchmark.
"""

import keras
from candle_layers import expression_classifier

batch_size = 20
train_samples = 1_120
validation_samples = 280
epochs = 400

model = expression_classifier(classes=2)
model.compile(optimizer=keras.optimizers.SGD(0.001), loss="categorical_crossentropy")
