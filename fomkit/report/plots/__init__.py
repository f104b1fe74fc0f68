"""Charts of reports and notebooks: each a function of a plain table."""
