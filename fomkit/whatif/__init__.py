"""What is not built or not chosen yet: sweeps, what a result hangs on, the change that reaches a target."""
