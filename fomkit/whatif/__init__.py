"""Questions beyond one estimate: sweeps, sensitivities, the smallest change that reaches a goal, and advice."""
