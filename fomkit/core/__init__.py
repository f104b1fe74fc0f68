"""Nouns and utilities of all rooms: errors, units, intervals, machines, models, suites, measurements."""
