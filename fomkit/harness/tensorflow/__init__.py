"""Ops timed with TensorFlow, in compiled graphs."""
