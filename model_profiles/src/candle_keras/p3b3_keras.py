"""P3B3 in Keras: the CANDLE convolution network over the words of pathology reports, four answers at once.

The network of candle/p3b3.py; its facts and their source stand there. What differs: the words' values lie word by
word, as in the benchmark, and are not turned before the convolutions.
"""

import keras
from keras import layers

batch_size = 10
notes = ["samples of an epoch: not public"]
epochs = 10


def report_convolutions() -> keras.Model:
    words = keras.Input((1_500,), dtype="int32")
    values = layers.Embedding(4_654, 300, embeddings_regularizer=keras.regularizers.L2(0.001))(words)
    filters = [layers.Conv1D(100, size, padding="same", activation="relu") for size in (3, 4, 5)]
    joined = layers.Concatenate()([layers.GlobalMaxPooling1D()(one(values)) for one in filters])
    joined = layers.Dropout(0.5)(joined)
    return keras.Model(words, [layers.Dense(classes, activation="softmax")(joined) for classes in (15, 3, 3, 3)])


model = report_convolutions()
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=["sparse_categorical_crossentropy"] * 4)
