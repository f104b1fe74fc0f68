"""Foreign files as profiles, tables of ops or measurements, each recognised by its content."""
