"""Training on many devices: layouts, traffic between devices, and the time and memory of a step."""
