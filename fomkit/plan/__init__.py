"""From op times to steps, runs, memory, energy and scaling of one model on one machine."""
