"""Nouns and what all rooms share: errors, units, intervals, machines, models, suites, measurements, figures."""
