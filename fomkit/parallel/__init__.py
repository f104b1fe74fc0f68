"""Training on many devices: layouts, traffic between devices, steps, what failures leave of the time."""
