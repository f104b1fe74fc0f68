"""What several CANDLE networks share in Keras: dense layers in a row, the two convolution networks, the towers."""

import keras
from keras import layers


def dense_layers(widths, activation="relu", dropout=0.0, **options) -> list:
    """Dense layers of these widths with their activation, and dropout after each where it is asked."""
    made = []
    for width in widths:
        made.append(layers.Dense(width, activation=activation, **options))
        made += [layers.Dropout(dropout)] if dropout else []
    return made


def expression_classifier(classes) -> keras.Model:
    """TC1 and NT3: two convolutions over 60,483 gene expressions in a row, then dense layers."""
    return keras.Sequential([
        keras.Input((60_483, 1)),
        layers.Conv1D(128, 20, activation="relu"),
        layers.MaxPooling1D(1),
        layers.Conv1D(128, 10, activation="relu"),
        layers.MaxPooling1D(10),
        layers.Flatten(),
        *dense_layers((200, 20), dropout=0.1),
        layers.Dense(classes, activation="softmax"),
    ])  # fmt: skip


def drug_pair_response(widths, features, beside=0) -> keras.Model:
    """UNO and COMBO: a tower of three dense layers for each kind of feature, then three more on all together.

    ``widths`` has the inputs of each tower, ``features`` the tower of each input in turn: both drugs of a pair run
    through the same one. ``beside`` values go into the concatenation as they are.
    """
    towers = {
        name: keras.Sequential([keras.Input((width,)), *dense_layers((1000, 1000, 1000))], name=name)
        for name, width in widths.items()
    }
    inputs = [keras.Input((widths[name],)) for name in features]
    plain = [keras.Input((beside,))] if beside else []
    joint = layers.Concatenate()([*(towers[name](x) for name, x in zip(features, inputs, strict=True)), *plain])
    for layer in dense_layers((1000, 1000, 1000)):
        joint = layer(joint)
    return keras.Model([*inputs, *plain], layers.Dense(1)(joint))
