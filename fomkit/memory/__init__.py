"""Device memory: what stands in it at each moment of a step, and the largest step that fits."""

from fomkit.memory.largest import largest_that_fits
from fomkit.memory.liveness import BLOCK_BYTE, Use, memory_use
from fomkit.memory.standing import Standing, standing_memory

__all__ = ["BLOCK_BYTE", "Standing", "Use", "largest_that_fits", "memory_use", "standing_memory"]
