"""Trace Keras models as TensorFlow graphs or on PyTorch."""
