"""The program's own package, beside it."""

from .data import random_flowers
from .network import build_network

__all__ = ["build_network", "random_flowers"]
