"""Workbooks that still compute: written from a ledger, read back, reviewed."""
