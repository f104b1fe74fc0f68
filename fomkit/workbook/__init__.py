"""Workbooks that still compute: written from a sheet model (inputs, and what they come to), read back, reviewed."""
