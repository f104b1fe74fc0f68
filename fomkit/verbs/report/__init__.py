"""The report of an estimate: all results on one HTML page."""
