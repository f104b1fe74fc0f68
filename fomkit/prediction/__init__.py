"""Prediction of an op's time on a machine, with an interval, from the best available evidence."""
