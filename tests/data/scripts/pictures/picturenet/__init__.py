"""The program's own package, beside it."""

from .data import RandomPictures
from .network import PictureNet

__all__ = ["PictureNet", "RandomPictures"]
