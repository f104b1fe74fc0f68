"""Workbooks that still compute: written from a sheet model (inputs and results), read back, reviewed."""
