"""Trains a small separable network on random flowers."""

import argparse

import keras
from flowernet import build_network, random_flowers


class Progress(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print(f"batch {batch} loss {logs['loss']:.4f}")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--samples", type=int, default=250)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weights", default="flowers.weights.h5")
    return parser.parse_args()


def main():
    args = parse_arguments()
    keras.utils.set_random_seed(1)
    train = random_flowers(args.samples, args.batch_size, training=True)
    valid = random_flowers(70, 32)
    model = build_network(classes=5)
    model.compile(
        optimizer=keras.optimizers.SGD(args.lr, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        Progress(),
        keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.LearningRateScheduler(lambda epoch: args.lr * 0.9**epoch),
        keras.callbacks.ModelCheckpoint(args.weights, save_weights_only=True, save_best_only=True),
    ]
    history = model.fit(train, validation_data=valid, epochs=args.epochs, callbacks=callbacks, verbose=2)
    print(f"accuracy {max(history.history['val_accuracy']):.3f}")


if __name__ == "__main__":
    main()
