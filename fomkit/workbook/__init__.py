"""Workbooks that compute their results with formulas: written from a sheet model, read back, and reviewed."""
