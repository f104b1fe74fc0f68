"""Trace PyTorch models without data."""
