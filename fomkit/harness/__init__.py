"""Programs that time ops in a process of their own, and in a vendor's pack."""
