"""Keras models, traced as TensorFlow graphs or on PyTorch."""
