"""A framework's model becomes a table of ops."""
