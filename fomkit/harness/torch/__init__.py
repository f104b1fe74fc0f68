"""Ops timed with PyTorch."""
