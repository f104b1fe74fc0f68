"""Time ops with PyTorch."""
