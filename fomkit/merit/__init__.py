"""Rates of suites and campaigns, and the figure of merit computed from them."""
