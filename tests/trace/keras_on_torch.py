"""Profile the models of `keras_twins` with Keras on PyTorch, in a separate process without TensorFlow."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from pathlib import Path


def main() -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    import keras
    import torch
    from keras_twins import PAIRS

    from fomkit.frontends.profile import profile_workload

    gc.freeze()  # as in conftest.py: each trace searches all other objects
    found = {}
    for pair in PAIRS:
        in_keras, _ = pair(keras, torch, int(sys.argv[2]))
        before = in_keras.model.get_weights()
        profile = profile_workload(in_keras)
        is_same = all(
            (one == other).all() for one, other in zip(before, in_keras.model.get_weights(), strict=True)
        )
        found[pair.__name__] = profile, is_same
    Path(sys.argv[1]).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
