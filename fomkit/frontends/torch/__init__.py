"""PyTorch models, traced without data."""
