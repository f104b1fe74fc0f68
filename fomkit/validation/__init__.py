"""Comparison of predictions with measurements: public data sets, a check on this machine, measured runs."""
