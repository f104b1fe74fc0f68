"""Cost formulas of the kinds of ops, as functions of their dimensions."""
