"""What to change in a training, and what it would save."""
