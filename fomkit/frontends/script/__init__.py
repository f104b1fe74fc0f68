"""Run a user's training program until one of its steps is recorded."""
