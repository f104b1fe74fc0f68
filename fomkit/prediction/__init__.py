"""How long an op takes on a machine, with an interval, from the best evidence there is."""
