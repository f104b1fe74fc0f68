"""Run in a process of its own: profiles the pairs of models with Keras on PyTorch, and without TensorFlow."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

BATCH = 24


def main() -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    import keras
    import torch
    from keras_twins import PAIRS

    from fomkit.trace import profile_workload

    found = {}
    for pair in PAIRS:
        in_keras, in_torch = pair(keras, torch, BATCH)
        before = in_keras.model.get_weights()
        profiles = profile_workload(in_keras), profile_workload(in_torch)
        is_same = all(
            (one == other).all() for one, other in zip(before, in_keras.model.get_weights(), strict=True)
        )
        found[pair.__name__] = (*profiles, is_same)
    Path(sys.argv[1]).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
