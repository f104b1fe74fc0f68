"""Rates of suites and campaigns, and the figure of merit made of them."""
