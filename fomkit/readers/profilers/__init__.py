"""Traces that profilers wrote."""
