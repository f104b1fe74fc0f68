"""Readers that others add to ``fomkit import``."""

from fomkit.adapters.protocol import Adapter, ReadTable

__all__ = ["Adapter", "ReadTable"]
