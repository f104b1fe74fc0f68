"""Programs that time ops in a separate process, and in a vendor's pack."""
