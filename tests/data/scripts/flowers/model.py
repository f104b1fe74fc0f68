"""The network of train.py as a model file, to compare the two ways of profiling."""

import keras
from flowernet import build_network

model = build_network(classes=5)
model.compile(
    optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
batch_size, train_samples, validation_samples, epochs, last_batch = 16, 250, 70, 12, "keep"
