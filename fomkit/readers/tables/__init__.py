"""Foreign tables and logs of timings."""
