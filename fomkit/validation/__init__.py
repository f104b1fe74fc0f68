"""Projected beside measured: public comparisons, the proof on the machine at hand, measured runs."""
