"""A user's training program, run until one of its steps is recorded."""
