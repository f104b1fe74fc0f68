"""Time ops with TensorFlow, in compiled graphs."""
