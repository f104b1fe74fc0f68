"""Random pictures of flowers as a pipeline: shuffled, turned and batched as files on disk would be."""

import numpy as np
import tensorflow as tf

SIDE = 24


def turn(picture, label):
    picture = tf.image.random_flip_left_right(tf.cast(picture, tf.float32) / 255.0)
    return picture, label


def random_flowers(count, batch_size, training=False):
    generator = np.random.default_rng(count)
    pictures = generator.integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)
    labels = generator.integers(0, 5, count)
    flowers = tf.data.Dataset.from_tensor_slices((pictures, labels))
    if training:
        flowers = flowers.shuffle(count, seed=1)
    return flowers.map(turn, num_parallel_calls=2).batch(batch_size).prefetch(1)
