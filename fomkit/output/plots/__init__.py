"""Figures: a plain table in, a chart out."""
