"""Workbooks that still compute: written from a sheet model (all inputs, and what they come to), read back, reviewed."""
