"""Files of our own: machines, models, suites and campaigns, found, read strictly and written whole."""
