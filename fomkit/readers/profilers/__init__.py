"""Read traces that profilers wrote."""
