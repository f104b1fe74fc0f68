"""Read foreign files as profiles, tables of ops or measurements; each format is recognised by its content."""
