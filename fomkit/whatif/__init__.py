"""What is not built or not chosen yet: sweeps, sensitivities, the smallest change that reaches a goal, advice."""
