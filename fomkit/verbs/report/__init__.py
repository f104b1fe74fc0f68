"""The report of an estimate: everything that is known of it, on one page."""
