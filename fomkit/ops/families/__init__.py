"""What ops of each kind cost, as formulas of their dimensions."""
