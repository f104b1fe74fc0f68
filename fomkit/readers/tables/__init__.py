"""Read foreign tables and logs of timings."""
